import type { NewJournalEntry } from "../../../ports/journalStore.ts";
import { COUNTERS } from "../../../ports/operationsStore.ts";
import { JOURNAL_TIMEOUT_MS, type JournalStatements } from "../sql/journal.ts";
import type { TableNames } from "../sql/names.ts";
import type { CellStatements, OperationsStatements } from "../sql/operations.ts";
import { listsOf, msOf, ordered, PARKED_AT, routedColumns } from "./fragments.ts";
import { arraysOf, byIndex, type Statement } from "./statement.ts";

/** Rows of other processes that are too old are deleted, unless another session has locked them. */
export function operationsStatements(names: TableNames): OperationsStatements<Statement> {
  const { process, figures, audit } = names.operations;
  const [inbox, outbox, i, o] = [names.inboxTable, names.outboxTable, names.inbox, names.outbox];
  const each = (write: (counter: string) => string): string => COUNTERS.map(write).join(", ");
  const options = { timeoutMs: TIMEOUT_MS };
  const { ofMessage, placed, inOrder } = listsOf(names);
  const behind = inOrder("b", ">", "b.key", "b.destination").map(
    ({ where }) => `SELECT 1 FROM ${outbox} o WHERE ${where}`,
  );
  const blocked = (which: string): string => `(
  SELECT o.${o.id} AS id, ${placed("o")}, o.${o.key} AS key, o.${o.topic}::text AS topic, ${routedColumns(o, "o")}, o.${o.attempt} AS attempt,
    o.${o.scheduledAt} AS scheduled_at, left(o.${o.lastError}, 300) AS last_error
  FROM ${outbox} o
  WHERE o.${o.state} = 'pending' AND o.${o.attempt} > 0 AND o.${o.key} IS NOT NULL AND ${which}
  ORDER BY o.${o.scheduledAt} LIMIT $1::int)`;

  return {
    beat: byIndex("operations.beat(name, version, roles, upMs, figures)", { ...options, takesTurns: true })`
WITH seen AS (
  INSERT INTO ${process} (name, version, roles, started_at, seen_at)
  VALUES ($1, $2, $3, now() - $4::bigint * interval '1 millisecond', now())
  ON CONFLICT (name) DO UPDATE SET version = EXCLUDED.version, roles = EXCLUDED.roles, started_at = EXCLUDED.started_at, seen_at = EXCLUDED.seen_at
),
gone AS (
  DELETE FROM ${process} WHERE name IN (
    SELECT name FROM ${process} WHERE seen_at < now() - interval '1 hour' AND name <> $1 FOR UPDATE SKIP LOCKED)
),
old AS (
  DELETE FROM ${figures} f USING (
    SELECT minute, kind, name FROM ${figures} WHERE minute < now() - interval '1 day' ORDER BY minute LIMIT ${String(MOST_DELETED)} FOR UPDATE SKIP LOCKED) g
  WHERE f.minute = g.minute AND f.kind = g.kind AND f.name = g.name
),
forgotten AS (
  DELETE FROM ${audit} WHERE id IN (
    SELECT id FROM (SELECT id, at FROM ${audit} ORDER BY id LIMIT ${String(MOST_DELETED)} FOR UPDATE SKIP LOCKED) oldest WHERE oldest.at < now() - interval '90 days')
),
counted AS (
INSERT INTO ${figures} AS f (minute, kind, name, ${each((counter) => counter)})
SELECT date_trunc('minute', now()) - c."minutesAgo" * interval '1 minute', c.kind, c.name, ${each((counter) => `sum(c.${counter})`)}
FROM jsonb_to_recordset($5::jsonb) AS c(kind text, name text, "minutesAgo" int, ${each((counter) => `${counter} bigint`)})
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (minute, kind, name) DO UPDATE SET ${each((counter) => `${counter} = f.${counter} + EXCLUDED.${counter}`)}
)
SELECT ${["poller", "relay"].map((role) => `count(CASE WHEN ' ' || roles || ' ' LIKE '% ${role} %' THEN 1 END)::int AS ${role}s`).join(", ")}, string_agg(roles, ',') AS all_roles, ${msOf("now()")} AS at
FROM ${process} WHERE seen_at > now() - interval '1 minute' AND name <> $1`,

    leave: byIndex("operations.leave(name)", options)`DELETE FROM ${process} WHERE name = $1`,

    processes: byIndex("operations.processes", options)`
SELECT name, version, roles, ${msOf("started_at")} AS started_at, ${msOf("seen_at")} AS seen_at
FROM ${process} WHERE seen_at > now() - interval '1 minute' ORDER BY name`,

    figures: byIndex("operations.figures(minutes)", { ...options, takesTurns: true })`
SELECT ${msOf("minute")} AS minute, kind, name, ${each((counter) => counter)}
FROM ${figures} WHERE minute >= date_trunc('minute', now()) - $1::int * interval '1 minute' ORDER BY minute, kind, name`,

    addAudit: byIndex("operations.add to the audit log(actor, action, target, detail)", options)`
INSERT INTO ${audit} (actor, action, target, detail) VALUES ($1, $2, $3, $4)`,

    audit: byIndex("operations.audit log(before, limit)", options)`
SELECT a.id::text AS id, ${msOf("a.at")} AS at, actor, action, target, detail
FROM ${ordered(`${audit} a`)} WHERE $1::bigint IS NULL OR a.id < $1::bigint ORDER BY a.id DESC LIMIT $2::int`,

    deadRows: byIndex("operations.dead rows(limit)", options)`
SELECT o.${o.id} AS id, o.${o.topic}::text AS topic, ${routedColumns(o, "o")}, ${msOf(`o.${o.updatedAt}`)} AS updated_at, left(o.${o.lastError}, 300) AS last_error
FROM ${ordered(`${outbox} o`)} WHERE o.${o.state} = 'dead' ORDER BY o.${o.updatedAt} DESC, o.${o.sequence} DESC LIMIT $1::int`,

    partlyDead: byIndex("operations.messages of dead deliveries(limit)", options)`
SELECT DISTINCT d.id, d.expanded_to FROM (
  SELECT ${ofMessage(o.id)} AS id, ${ofMessage(o.expandedTo)} AS expanded_to
  FROM ${ordered(`${outbox} o`)} WHERE o.${o.state} = 'dead' ORDER BY o.${o.updatedAt} DESC, o.${o.sequence} DESC LIMIT $1::int) d
WHERE d.expanded_to IS NOT NULL`,
    sent: byIndex("operations.sent rows(ids)", options)`
SELECT o.${o.id} AS id FROM ${outbox} o WHERE o.${o.id} = ANY ($1::uuid[]) AND o.${o.state} = 'sent'`,

    blockedKeys: byIndex("operations.blocked keys(limit, behindLimit)", options)`
SELECT b.id, b.key, b.topic, b.destination, b.routes, b.attempt, CASE WHEN b.scheduled_at = ${PARKED_AT} THEN 1 ELSE 0 END AS is_parked,
  ${msOf("b.scheduled_at")} AS scheduled_at, b.last_error,
  (SELECT count(*) FROM (${behind.join(" UNION ALL ")} LIMIT $2::int) behind)::int AS rows_behind
FROM (${blocked(`o.${o.scheduledAt} > now() AND o.${o.scheduledAt} < ${PARKED_AT}`)} UNION ALL ${blocked(`o.${o.scheduledAt} = ${PARKED_AT}`)}) b`,

    inboxBacklog: byIndex("operations.inbox backlog(pullSources, limit)", options)`
SELECT p.source, count(*)::int AS pending, date_part('epoch', now() - min(p.created_at)) * 1000 AS age_ms
FROM ((
    SELECT i.${i.source} AS source, i.${i.createdAt} AS created_at FROM ${inbox} i
    WHERE i.${i.state} = 'pending' AND i.${i.consumption} = 'push' ORDER BY i.${i.createdAt}, i.${i.id} LIMIT $2::int)
  UNION ALL SELECT l.* FROM unnest($1::text[]) AS s(name) CROSS JOIN LATERAL (
    SELECT i.${i.source} AS source, i.${i.createdAt} AS created_at FROM ${inbox} i
    WHERE i.${i.state} = 'pending' AND i.${i.consumption} = 'pull' AND i.${i.source} = s.name ORDER BY i.${i.createdAt}, i.${i.id} LIMIT $2::int) l
) p
WHERE isfinite(p.created_at) GROUP BY p.source`,
  };
}

const TIMEOUT_MS = 5000;
/** Of one beat. */
const MOST_DELETED = 1000;

/** @param names already quoted */
export function cellStatements(names: TableNames): CellStatements<Statement> {
  const { inboxTable: inbox, outboxTable: outbox, inbox: i, outbox: o } = names;
  const { cell } = names.operations;
  const waits = (consumption: string) =>
    `EXISTS (SELECT FROM ${inbox} i WHERE i.${i.state} = 'pending' AND i.${i.consumption} = '${consumption}')`;
  const options = { timeoutMs: 5000 };
  return {
    read: byIndex("cell.read", options)`SELECT c.position, c.name, c.cells FROM ${cell} c WHERE c.id = 1`,
    add: byIndex("cell.add(position, name, cells)", options)`
INSERT INTO ${cell} (id, position, name, cells) VALUES (1, $1::int, $2, $3::int) ON CONFLICT (id) DO NOTHING`,
    unfinished: byIndex("cell.unfinished rows", options)`
SELECT ${waits("push")} OR ${waits("pull")}
  OR EXISTS (SELECT FROM ${outbox} o WHERE o.${o.state} = 'pending')
  OR EXISTS (SELECT FROM ${outbox} o WHERE o.${o.state} = 'processing') AS found`,
  };
}

export function journalStatements(names: TableNames): JournalStatements<Statement> {
  const table = names.operations.journal;
  const { inboxTable: inbox, inbox: i, journal: c } = names;
  const timeoutMs = JOURNAL_TIMEOUT_MS;
  const columns = [c.at, c.source, c.outcome, c.idempotencyKey, c.correlationId, c.messageId, c.replica].join(", ");
  const newest = (declaration: string, condition: string): Statement =>
    byIndex(declaration, { timeoutMs })`
SELECT ${msOf(`j.${c.at}`)} AS at, j.${c.source} AS source, j.${c.outcome} AS outcome, j.${c.idempotencyKey} AS idempotency_key,
  j.${c.correlationId} AS correlation_id, j.${c.messageId} AS message_id, j.${c.replica} AS replica
FROM ${table} j WHERE ${condition} ORDER BY j.${c.id} DESC LIMIT $1::int`;
  return {
    // A duplicate's key is in the inbox: its first message is found by the index of the keys.
    add: byIndex(`journal.add(${Object.keys(ENTRY).join(", ")})`, { timeoutMs })`
INSERT INTO ${table} (${columns})
SELECT now() - n.age * interval '1 millisecond', n.source, n.outcome, n.idempotency_key, n.correlation_id,
  CASE WHEN n.outcome = 'duplicate' THEN (
    SELECT i.${i.id} FROM ${inbox} i WHERE i.${i.source} = n.source AND i.${i.idempotencyKey} = n.idempotency_key LIMIT 1) END,
  n.replica
FROM unnest($1::float8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
  WITH ORDINALITY AS n(age, source, outcome, idempotency_key, correlation_id, replica, position)
ORDER BY n.position`,

    deleteOld: byIndex("journal.delete old(limit)", { timeoutMs })`
WITH deleted AS (
  DELETE FROM ${table} j WHERE j.${c.id} = ANY (ARRAY(
    SELECT o.id FROM (SELECT p.${c.id} AS id, p.${c.at} AS at FROM ${table} p ORDER BY p.${c.id} LIMIT $1::int) o WHERE o.at < now() - interval '24 hours'))
  RETURNING 1
)
SELECT count(*)::int AS deleted FROM deleted`,

    duplicatesOf: newest("journal.duplicates of a message(limit, id)", `j.${c.messageId} = $2::uuid`),
    byIdempotencyKey: newest(
      "journal.by idempotency key(limit, text, outcome)",
      `j.${c.idempotencyKey} = $2::text AND j.${c.outcome} = $3::text`,
    ),
    byCorrelationId: newest(
      "journal.by correlation id(limit, text, outcome)",
      `j.${c.correlationId} = $2::text AND j.${c.outcome} = $3::text`,
    ),

    dialect: { entryValues: (entries) => arraysOf(entries, ENTRY) },
  };
}

const ENTRY = {
  ages: "ageMs",
  sources: "source",
  outcomes: "outcome",
  idempotencyKeys: "idempotencyKey",
  correlationIds: "correlationId",
  replicas: "replica",
} as const satisfies Record<string, keyof NewJournalEntry>;
