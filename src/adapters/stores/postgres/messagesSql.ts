import type { MessageStatements } from "../sql/messages.ts";
import type { TableNames } from "../sql/names.ts";
import { labelOf, listsOf, msOf, routedColumns } from "./fragments.ts";
import { byIndex, type Statement, statement } from "./statement.ts";

/** A page merges the indexes of the states, each read from its newest row on, since no index holds every row. */
export function messageStatements(names: TableNames): MessageStatements<Statement> {
  const [inbox, outbox, i, o] = [names.inboxTable, names.outboxTable, names.inbox, names.outbox];
  const { hasLists, carried, columns, placed, inOrder } = listsOf(names);
  const headers = `(${carried(o.headers)})::text`;
  const times = (row: string, columns: Readonly<Record<string, string>>): string =>
    Object.entries(columns)
      .map(([name, column]) => `${msOf(`${row}.${column}`)} AS ${name}`)
      .join(", ");
  const outboxColumns = `o.${o.id} AS id, o.${o.sequence}::bigint AS sequence, o.${o.topic}::text AS topic, ${routedColumns(o, "o")}, o.${o.key}::text AS key,
  o.${o.state}::text AS state, o.${o.attempt} AS attempt, o.${o.maxAttempts} AS max_attempts,
  CASE WHEN o.${o.scheduledAt} > now() THEN 1 ELSE 0 END AS is_ahead, o.${o.claimToken} AS claim_token,
  o.${o.lastError} AS last_error, ${headers} AS headers, ${columns},
  ${times("o", { created_at: o.createdAt, updated_at: o.updatedAt, scheduled_at: o.scheduledAt, claimed_at: o.claimedAt, lease_expires_at: o.leaseExpiresAt })}`;
  const inboxColumns = `i.${i.id} AS id, i.${i.source} AS source, i.${i.idempotencyKey} AS idempotency_key, i.${i.aggregateId} AS aggregate_id,
  i.${i.eventType} AS event_type, i.${i.state}::text AS state, i.${i.consumption} AS consumption, i.${i.correlationId} AS correlation_id,
  i.${i.attempt} AS attempt, i.${i.claimToken} AS claim_token, i.${i.lastError} AS last_error, i.${i.headers}::text AS headers,
  ${times("i", { created_at: i.createdAt, processed_at: i.processedAt, scheduled_at: i.scheduledAt, claimed_at: i.claimedAt, lease_expires_at: i.leaseExpiresAt })}`;

  const before = inOrder("r", "<", "r.key", "$2::text").map(
    ({ where, place }) => `(
    SELECT ${outboxColumns}, ${place}::bigint AS place FROM ${outbox} o WHERE ${where}
      AND (o.${o.state} = 'processing' OR o.${o.attempt} > 0 OR coalesce(o.${o.scheduledAt}, '-infinity') <= now()) ORDER BY ${place} LIMIT 1)`,
  );
  const newestOf = (states: string): string => `(
    SELECT o.${o.id} AS id, o.${o.sequence} AS sequence FROM ${outbox} o
    WHERE o.${o.state} IN (${states}) AND ($1::bigint IS NULL OR o.${o.sequence} < $1::bigint)
    ORDER BY o.${o.sequence} DESC LIMIT $2::int)`;
  const position = `(i.${i.createdAt}, i.${i.id})`;
  const newestReceived = (where: string, from = ""): string => `(
    SELECT i.${i.id} AS id, i.${i.createdAt} AS created_at FROM ${from}${inbox} i
    WHERE ${where} AND ($1::timestamptz IS NULL OR ${position} < ($1::timestamptz, $2::uuid))
    ORDER BY i.${i.createdAt} DESC, i.${i.id} DESC LIMIT $3::int)`;
  const isWithin = (created: string, after: string, before: string): string =>
    `(${after}::timestamptz IS NULL OR ${created} > ${after}::timestamptz) AND (${before}::timestamptz IS NULL OR ${created} < ${before}::timestamptz)`;

  return {
    inboxRow: byIndex("messages.inbox row(id, withPayload)")`
SELECT ${msOf("now()")} AS now, ${inboxColumns}, CASE WHEN $2::boolean THEN i.${i.payload}::text END AS payload FROM ${inbox} i WHERE i.${i.id} = $1::uuid`,
    outboxRow: byIndex("messages.outbox row(id, withPayload)")`
SELECT ${msOf("now()")} AS now, ${outboxColumns}, CASE WHEN $2::boolean THEN (${carried(o.payload)})::text END AS payload FROM ${outbox} o WHERE o.${o.id} = $1::uuid`,
    deliveries: byIndex("messages.deliveries(ids)")`
SELECT o.${o.id} AS id, ${labelOf(o, "o")} AS destination, o.${o.state}::text AS state, o.${o.attempt} AS attempt, o.${o.lastError} AS last_error,
  ${times("o", { scheduled_at: o.scheduledAt, updated_at: o.updatedAt })}
FROM ${outbox} o WHERE o.${o.id} = ANY ($1::uuid[])`,

    byIdempotencyKey: byIndex(
      "messages.by idempotency key(sources, key)",
    )`SELECT i.${i.id} AS id FROM ${inbox} i WHERE i.${i.source} = ANY ($1::text[]) AND i.${i.idempotencyKey} = $2::text`,

    rowBefore: byIndex(`messages.row before(id${hasLists ? ", destination" : ""})`)`
SELECT b.* FROM (SELECT r.${o.key} AS key, ${placed("r")} FROM ${outbox} r WHERE r.${o.id} = $1::uuid) r CROSS JOIN LATERAL (
  ${before.join("\n  UNION ALL ")}
) b ORDER BY b.place LIMIT 1`,

    locks: { ofOutbox: lockOf("outbox", outbox, o.id), ofInbox: lockOf("inbox", inbox, i.id), holder: lockHolder() },

    outboxPage: byIndex(
      `messages.outbox page(before, limit, key, topic, destination, quotedCorrelationId, state, createdAfter,
        createdBefore)`,
      { timeoutMs: PAGE_TIMEOUT_MS },
    )`
WITH page AS MATERIALIZED (
  SELECT u.id, u.sequence FROM (
    ${[newestOf("'pending'"), newestOf("'processing'"), newestOf("'sent', 'dead'")].join("\n    UNION ALL ")}
  ) u ORDER BY u.sequence DESC LIMIT $2::int
),
matching AS MATERIALIZED (
  SELECT ${outboxColumns}
  FROM page p JOIN ${outbox} o ON o.${o.id} = p.id
  WHERE ($3::text IS NULL OR o.${o.key}::text = $3::text) AND ($4::text IS NULL OR o.${o.topic}::text = $4::text)
    AND ($5::text IS NULL OR coalesce(${labelOf(o, "o")}, $5::text) = $5::text)
    AND ($6::text IS NULL OR strpos(${headers} COLLATE "C", $6::text) > 0)
    AND ($7::text IS NULL OR o.${o.state}::text = $7::text) AND ${isWithin(`o.${o.createdAt}`, "$8", "$9")}
)
SELECT n.looked_at, n.last, m.* FROM (SELECT count(*)::int AS looked_at, min(sequence)::text AS last FROM page) n
LEFT JOIN matching m ON true ORDER BY m.sequence DESC`,

    inboxPage: byIndex(
      `messages.inbox page(beforeTime, beforeId, limit, source, aggregateId, correlationId, state, createdAfter,
        createdBefore, isUnrelayed, pullSources)`,
      { timeoutMs: PAGE_TIMEOUT_MS },
    )`
WITH page AS MATERIALIZED (
  SELECT u.id, u.created_at FROM (
    ${newestReceived(`i.${i.state} IN ('processed', 'dead')`)}
    UNION ALL ${newestReceived(`i.${i.state} = 'pending' AND i.${i.consumption} = 'push'`)}
    UNION ALL SELECT l.* FROM unnest($11::text[]) AS s(name) CROSS JOIN LATERAL ${newestReceived(`i.${i.state} = 'pending' AND i.${i.consumption} = 'pull' AND i.${i.source} = s.name`)} l
  ) u ORDER BY u.created_at DESC, u.id DESC LIMIT $3::int
),
matching AS MATERIALIZED (
  SELECT ${inboxColumns}, i.${i.eventType} AS topic, i.${i.aggregateId} AS key, ${positionOf(`i.${i.createdAt}`, `i.${i.id}`)} AS position,
    p.created_at AS exact_time
  FROM page p JOIN ${inbox} i ON i.${i.id} = p.id
  WHERE ($4::text IS NULL OR i.${i.source} = $4::text) AND ($5::text IS NULL OR i.${i.aggregateId} = $5::text)
    AND ($6::text IS NULL OR i.${i.correlationId} = $6::text) AND ($7::text IS NULL OR i.${i.state} = $7::text)
    AND ${isWithin(`i.${i.createdAt}`, "$8", "$9")} AND (NOT $10::boolean OR i.${i.state} <> 'processed')
)
SELECT n.looked_at, n.last, m.* FROM (
  SELECT count(*)::int AS looked_at, (SELECT ${positionOf("created_at", "id")} FROM page ORDER BY created_at, id LIMIT 1) AS last FROM page
) n
LEFT JOIN matching m ON true ORDER BY m.exact_time DESC, m.id DESC`,
  };
}

/** A transaction that locks, changes or deletes a row writes its number into it. Reading that waits for nobody. */
const lockOf = (of: string, table: string, id: string): Statement =>
  statement(`messages.lock of ${of}(id)`, { timeoutMs: 5000 })`
SELECT r.xmax::text AS transaction FROM ${table} r WHERE r.${id} = $1::uuid`;

/** A transaction holds the lock of its number until it ends. Apart from the row: on Citus that may be on a worker. */
const lockHolder = (): Statement =>
  statement("messages.lock holder(transactions)", { timeoutMs: 5000 })`
SELECT l.pid, a.usename AS user_name, a.application_name, a.state, date_part('epoch', clock_timestamp() - a.state_change) * 1000 AS state_ms,
  current_user AS seen_by
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.transactionid::text = ANY ($1::text[]) AND l.mode = 'ExclusiveLock' AND l.granted`;

/** As JSON a time has its microseconds, whatever the session's date style. */
function positionOf(time: string, id: string): string {
  return `(to_jsonb(${time}) #>> '{}') || ' ' || ${id}`;
}

/** A page reads a bounded number of rows, which may lie anywhere on the disk. */
const PAGE_TIMEOUT_MS = 5000;
