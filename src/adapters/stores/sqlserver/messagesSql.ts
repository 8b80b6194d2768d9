import type { MessageStatements } from "../sql/messages.ts";
import type { TableNames } from "../sql/names.ts";
import {
  BATCH,
  BY_ID,
  COLLATED,
  hasCome,
  labelOf,
  listsOf,
  MAX_BIGINT,
  NOW,
  ONE_BY_ONE,
  routedColumns,
  TO_READ,
  timeOf,
  timeText,
} from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

/**
 * A page merges the indexes of the states, each read from its newest row on, since no index holds every row. Rows that
 * others change just now are skipped.
 */
export function messageStatements(names: TableNames): MessageStatements<Statement> {
  const [inbox, outbox, i, o] = [names.inboxTable, names.outboxTable, names.inbox, names.outbox];
  const { hasLists, carried, columns, placed, inOrder } = listsOf(names);
  const outboxColumns = `o.${o.id} AS id, CONVERT(nvarchar(20), o.${o.sequence}) AS sequence, o.${o.topic} AS topic, ${routedColumns(o, "o")}, o.${o.key} AS [key],
  o.${o.state} AS state, o.${o.attempt} AS attempt, o.${o.maxAttempts} AS max_attempts,
  CASE WHEN o.${o.scheduledAt} > SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_ahead, o.${o.claimToken} AS claim_token,
  o.${o.lastError} AS last_error, ${carried(o.headers)} AS headers, ${columns}, o.${o.createdAt} AS created_at, o.${o.updatedAt} AS updated_at,
  o.${o.scheduledAt} AS scheduled_at, o.${o.claimedAt} AS claimed_at, o.${o.leaseExpiresAt} AS lease_expires_at`;
  const inboxColumns = `i.${i.id} AS id, i.${i.source} AS source, i.${i.idempotencyKey} AS idempotency_key, i.${i.aggregateId} AS aggregate_id,
  i.${i.eventType} AS event_type, i.${i.state} AS state, i.${i.consumption} AS consumption, i.${i.correlationId} AS correlation_id,
  i.${i.attempt} AS attempt, i.${i.claimToken} AS claim_token, i.${i.lastError} AS last_error, i.${i.headers} AS headers,
  i.${i.createdAt} AS created_at, i.${i.processedAt} AS processed_at, i.${i.scheduledAt} AS scheduled_at, i.${i.claimedAt} AS claimed_at,
  i.${i.leaseExpiresAt} AS lease_expires_at`;
  /** Letter for letter, whatever the collation of the column is. */
  const is = (column: string, value: string): string =>
    `(${value} IS NULL OR (${column} IS NOT NULL AND CONCAT(${value}, N'.') = CONCAT(${column}, N'.') ${COLLATED}))`;
  const isWithin = (created: string): string =>
    `(@createdAfter IS NULL OR ${created} > ${timeOf("@createdAfter")}) AND (@createdBefore IS NULL OR ${created} < ${timeOf("@createdBefore")})`;

  const before = inOrder("r", "<", "r.[key]", "@destination").map(
    ({ where, place }) => `SELECT f.* FROM (
    SELECT TOP (1) ${outboxColumns}, ${place} AS place FROM ${outbox} o ${TO_READ} WHERE ${where}
      AND (o.${o.state} = N'processing' OR o.${o.attempt} > 0 OR ${hasCome(`o.${o.scheduledAt}`)}) ORDER BY ${place}) f`,
  );
  const newestOf = (states: string): string => `SELECT n.id, n.sequence FROM (
    SELECT TOP (@limit) o.${o.id} AS id, o.${o.sequence} AS sequence FROM ${outbox} o ${TO_READ}
    WHERE o.${o.state} IN (${states}) AND o.${o.sequence} < @first ORDER BY o.${o.sequence} DESC) n`;
  const newestReceived = (where: string): string => `SELECT n.id, n.created_at FROM (
    SELECT TOP (@limit) i.${i.id} AS id, i.${i.createdAt} AS created_at FROM ${inbox} i ${TO_READ}
    WHERE ${where} AND i.${i.createdAt} <= @time AND (i.${i.createdAt} < @time OR i.${i.id} < @beforeId)
    ORDER BY i.${i.createdAt} DESC, i.${i.id} DESC) n`;

  return {
    inboxRow: statement("messages.inbox row(id uuid, withPayload bit)")`${NOW}
SELECT @now AS now, ${inboxColumns}, CASE WHEN @withPayload = 1 THEN i.${i.payload} END AS payload FROM ${inbox} i WHERE i.${i.id} = @id;`,
    outboxRow: statement("messages.outbox row(id uuid, withPayload bit)")`${NOW}
SELECT @now AS now, ${outboxColumns}, CASE WHEN @withPayload = 1 THEN ${carried(o.payload)} END AS payload FROM ${outbox} o WHERE o.${o.id} = @id;`,
    deliveries: statement("messages.deliveries(ids list)")`
SELECT o.${o.id} AS id, ${labelOf(o, "o")} AS destination, o.${o.state} AS state, o.${o.attempt} AS attempt, o.${o.lastError} AS last_error,
  o.${o.scheduledAt} AS scheduled_at, o.${o.updatedAt} AS updated_at
FROM OPENJSON(@ids) WITH (id uniqueidentifier '$') n JOIN ${outbox} o ${BY_ID.look} ON o.${o.id} = n.id
${ONE_BY_ONE};`,

    byIdempotencyKey: statement("messages.by idempotency key(sources list, key text)")`
SELECT i.${i.id} AS id
FROM OPENJSON(@sources) WITH (name nvarchar(400) ${COLLATED} '$') s JOIN ${inbox} i ON i.${i.source} = s.name ${COLLATED} AND i.${i.idempotencyKey} = @key;`,

    rowBefore: statement(`messages.row before(id uuid${hasLists ? ", destination text" : ""})`)`${NOW}
SELECT TOP (1) b.* FROM (SELECT r.${o.key} AS [key], ${placed("r")} FROM ${outbox} r WHERE r.${o.id} = @id) r CROSS APPLY (
  ${before.join("\n  UNION ALL ")}
) b ORDER BY b.place;`,

    locks: undefined,

    outboxPage: statement(
      `messages.outbox page(before bigint, limit int, key longText, topic longText, destination longText,
        quotedCorrelationId longText, state text, createdAfter text, createdBefore text)`,
      { timeoutMs: PAGE_TIMEOUT_MS },
    )`${BATCH}
DECLARE @first bigint = COALESCE(@before, ${MAX_BIGINT});
DECLARE @page TABLE (id uniqueidentifier NOT NULL, sequence bigint NOT NULL);
INSERT INTO @page (id, sequence)
SELECT TOP (@limit) u.id, u.sequence FROM (
  ${[newestOf("N'pending'"), newestOf("N'processing'"), newestOf("N'sent', N'dead'")].join("\n  UNION ALL ")}
) u ORDER BY u.sequence DESC;
SELECT n.looked_at, n.last, m.* FROM (SELECT COUNT(*) AS looked_at, CONVERT(nvarchar(20), MIN(p.sequence)) AS last FROM @page p) n
LEFT JOIN (
  SELECT ${outboxColumns}, p.sequence AS place
  FROM @page p JOIN ${outbox} o ${TO_READ} ON o.${o.id} = p.id
  WHERE ${is(`o.${o.key}`, "@key")} AND ${is(`o.${o.topic}`, "@topic")}
    AND (@destination IS NULL OR COALESCE(${labelOf(o, "o")}, @destination) = @destination ${COLLATED})
    AND (@quotedCorrelationId IS NULL OR CHARINDEX(@quotedCorrelationId, (${carried(o.headers)}) ${COLLATED}) > 0)
    AND (@state IS NULL OR o.${o.state} = @state) AND ${isWithin(`o.${o.createdAt}`)}
) m ON 1 = 1 ORDER BY m.place DESC;`,

    inboxPage: statement(
      `messages.inbox page(beforeTime text, beforeId uuid, limit int, source longText, aggregateId longText,
        correlationId longText, state text, createdAfter text, createdBefore text, isUnrelayed bit, pullSources list)`,
      { timeoutMs: PAGE_TIMEOUT_MS },
    )`${BATCH}
DECLARE @time datetimeoffset(7) = ${timeOf("COALESCE(@beforeTime, N'9999-12-31T23:59:59.9999999Z')")};
DECLARE @page TABLE (id uniqueidentifier NOT NULL, created_at datetimeoffset(7) NOT NULL);
INSERT INTO @page (id, created_at)
SELECT TOP (@limit) u.id, u.created_at FROM (
  ${newestReceived(`i.${i.state} IN (N'processed', N'dead')`)}
  UNION ALL ${newestReceived(`i.${i.state} = N'pending' AND i.${i.consumption} = N'push'`)}
  UNION ALL SELECT l.id, l.created_at FROM OPENJSON(@pullSources) WITH (name nvarchar(400) ${COLLATED} '$') s CROSS APPLY (${newestReceived(
    `i.${i.state} = N'pending' AND i.${i.consumption} = N'pull' AND i.${i.source} = s.name ${COLLATED}`,
  )}) l
) u ORDER BY u.created_at DESC, u.id DESC;
DECLARE @last nvarchar(100) = (SELECT TOP (1) CONCAT(${timeText("p.created_at")}, N' ', p.id) FROM @page p ORDER BY p.created_at, p.id);
SELECT n.looked_at, @last AS last, m.* FROM (SELECT COUNT(*) AS looked_at FROM @page p) n
LEFT JOIN (
  SELECT ${inboxColumns}, i.${i.eventType} AS topic, i.${i.aggregateId} AS [key],
    CONCAT(${timeText(`i.${i.createdAt}`)}, N' ', i.${i.id}) AS position
  FROM @page p JOIN ${inbox} i ${TO_READ} ON i.${i.id} = p.id
  WHERE ${is(`i.${i.source}`, "@source")} AND ${is(`i.${i.aggregateId}`, "@aggregateId")} AND ${is(`i.${i.correlationId}`, "@correlationId")}
    AND (@state IS NULL OR i.${i.state} = @state) AND ${isWithin(`i.${i.createdAt}`)} AND (@isUnrelayed = 0 OR i.${i.state} <> N'processed')
) m ON 1 = 1 ORDER BY m.created_at DESC, m.id DESC;`,
  };
}

/** A page reads a bounded number of rows, which may lie anywhere on the disk. */
const PAGE_TIMEOUT_MS = 5000;
