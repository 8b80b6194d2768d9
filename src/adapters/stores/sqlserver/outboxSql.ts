import type { TableNames } from "../sql/names.ts";
import type { LabelStatements, OutboxStatements } from "../sql/outbox.ts";
import { claimStatements } from "./claimSql.ts";
import {
  BATCH,
  BY_ID,
  COLLATED,
  hasCome,
  labelOf,
  NAMED_IDS,
  NOW,
  ONE_BY_ONE,
  PARKED_AT,
  TO_READ,
} from "./fragments.ts";
import { outboxParts } from "./outboxParts.ts";
import { type Statement, statement } from "./statement.ts";

/**
 * States are literals: a parameter would keep the optimizer from the filtered indexes. `OUTPUT` goes into a table
 * variable, as tables with triggers require. Rows are changed by `sequence` and `id`, the keys of the bundled table:
 * every change locks the row before its entries in other indexes, so that no two statements deadlock.
 *
 * @param names already quoted
 */
export function outboxStatements(names: TableNames): OutboxStatements<Statement> {
  const parts = outboxParts(names);
  const { table, c, unclaimed, scheduledAtGivenBack, isDue } = parts;
  /** Split so that each half is a range of the index on leases: only rows without a lease are read further. */
  const hasExpired = `o.${c.state} = N'processing' AND (o.${c.leaseExpiresAt} < @now OR o.${c.leaseExpiresAt} IS NULL)
  AND (o.${c.leaseExpiresAt} IS NOT NULL
    OR COALESCE(o.${c.claimedAt}, o.${c.updatedAt}, CONVERT(datetimeoffset(7), N'1970-01-01')) < DATEADD(millisecond, -@claimTimeoutMs, @now))`;

  const isBlocking = `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} > @now AND o.${c.key} IS NOT NULL`;

  const isParked = `CASE WHEN o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT} THEN 1 ELSE 0 END`;

  /** The backlog of all. @param pending a query for the number of pending rows */
  const totals = (pending: string): string => `SELECT (${pending}) AS all_pending,
  (SELECT TOP (1) DATEDIFF_BIG(millisecond, o.${c.createdAt}, @now) FROM ${table} o ${TO_READ} WHERE ${isDue}
   ORDER BY o.${c.sequence}) AS all_oldest_ms,
  (SELECT COUNT_BIG(DISTINCT o.${c.key}) FROM ${table} o ${TO_READ} WHERE ${isBlocking}) AS blocked_keys,
  (SELECT COUNT_BIG(*) FROM ${table} o ${TO_READ}
   WHERE o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}) AS parked`;

  const destination = `CONVERT(nvarchar(max), ${labelOf(c, "o")}) ${COLLATED}`;
  const topic = `CASE WHEN ${labelOf(c, "o")} IS NULL THEN CONVERT(nvarchar(max), o.${c.topic}) ${COLLATED} END`;

  return {
    ...claimStatements(names, parts),
    labels: labelStatements(names),

    /**
     * Skips locked rows, which keep their leases. Finds the rows first and changes them by their keys: a change that reads the index on leases would lock its
     * entries before the rows, against the order of settlements.
     */
    // Far below the lease: a renewal that hangs must not keep the next one from being tried in time.
    renew: statement("outbox.renew(tokens list, leaseMs ms, claimTimeoutMs ms)", { timeoutMs: 4000 })`
${BATCH}
${NOW}
DECLARE @held TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, token uniqueidentifier NOT NULL);
DECLARE @renewed TABLE (id uniqueidentifier NOT NULL);
INSERT INTO @held (sequence, id, token)
SELECT o.${c.sequence}, o.${c.id}, o.${c.claimToken}
FROM ${table} o ${TO_READ}
WHERE o.${c.state} = N'processing'
  AND o.${c.claimToken} IN (SELECT t.token FROM OPENJSON(@tokens) WITH (token uniqueidentifier '$') t);
UPDATE o
SET ${c.leaseExpiresAt} = CASE
  WHEN DATEADD(millisecond, @claimTimeoutMs, o.${c.claimedAt}) < DATEADD(millisecond, @leaseMs, @now)
  THEN DATEADD(millisecond, @claimTimeoutMs, o.${c.claimedAt})
  ELSE DATEADD(millisecond, @leaseMs, @now) END
OUTPUT inserted.${c.id} INTO @renewed (id)
FROM ${table} o ${BY_ID.take} JOIN @held h ON o.${c.sequence} = h.sequence AND o.${c.id} = h.id
WHERE o.${c.state} = N'processing' AND o.${c.claimToken} = h.token;
SELECT id FROM @renewed;`,

    clock: statement("outbox.clock", { timeoutMs: 4000 })`
SELECT DATEDIFF_BIG(millisecond, CONVERT(datetimeoffset(7), N'1970-01-01'), CONVERT(datetimeoffset(7), SYSUTCDATETIME())) AS ms;`,

    expired: statement("outbox.expired(limit int, claimTimeoutMs ms)", { timeoutMs: 4000 })`
${NOW}
SELECT TOP (@limit) o.${c.id} AS id FROM ${table} o ${TO_READ} WHERE ${hasExpired};`,

    reclaim: statement("outbox.reclaim(ids list, claimTimeoutMs ms)", { timeoutMs: 4000 })`
${BATCH}
${NOW}
${NAMED_IDS}
DECLARE @reclaimed TABLE (id uniqueidentifier NOT NULL);
UPDATE o
SET ${c.state} = N'pending', ${c.updatedAt} = @now, ${c.scheduledAt} = ${scheduledAtGivenBack}, ${unclaimed}
OUTPUT inserted.${c.id} INTO @reclaimed (id)
FROM @named n JOIN ${table} o ${BY_ID.take} ON o.${c.id} = n.id
WHERE ${hasExpired}
${ONE_BY_ONE};
SELECT id FROM @reclaimed;`,

    backlogTotals: statement("outbox.backlog")`
${NOW}
${totals(`SELECT COUNT_BIG(*) FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'pending'`)};`,

    /** At least one row: per destination with unfinished rows, or per topic without one; each has the totals. */
    backlog: statement("outbox.backlog by destination")`
${NOW}
DECLARE @unfinished TABLE (destination nvarchar(max) ${COLLATED}, topic nvarchar(max) ${COLLATED}, pending bigint NOT NULL, processing bigint NOT NULL,
  blocked bigint NOT NULL, parked bigint NOT NULL, due bigint NOT NULL, oldest_ms bigint NULL);
INSERT INTO @unfinished (destination, topic, pending, processing, blocked, parked, due, oldest_ms)
SELECT u.destination, u.topic, SUM(u.pending), SUM(u.processing), SUM(u.blocked), SUM(u.parked), COUNT_BIG(u.oldest_ms), MAX(u.oldest_ms)
FROM (
  SELECT ${destination} AS destination, ${topic} AS topic, CONVERT(bigint, 1) AS pending, CONVERT(bigint, 0) AS processing, CONVERT(bigint, 0) AS blocked,
    CONVERT(bigint, ${isParked}) AS parked,
    CASE WHEN ${hasCome(`o.${c.scheduledAt}`)} THEN DATEDIFF_BIG(millisecond, o.${c.createdAt}, @now) END AS oldest_ms
  FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'pending'
  UNION ALL
  SELECT ${destination}, ${topic}, CONVERT(bigint, 0), CONVERT(bigint, 1), CONVERT(bigint, 0), CONVERT(bigint, 0), NULL
  FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'processing'
  UNION ALL
  SELECT k.destination, k.topic, CONVERT(bigint, 0), CONVERT(bigint, 0), CONVERT(bigint, 1), CONVERT(bigint, 0), NULL
  FROM (SELECT DISTINCT ${destination} AS destination, ${topic} AS topic, o.${c.key} AS [key] FROM ${table} o ${TO_READ} WHERE ${isBlocking}) k
) u GROUP BY u.destination, u.topic;
SELECT d.destination, d.topic, CASE WHEN d.pending IS NULL THEN 0 ELSE 1 END AS is_destination, d.pending, d.processing, d.blocked, d.parked AS parked_there, d.due, d.oldest_ms, a.all_pending, a.all_oldest_ms, a.blocked_keys, a.parked
FROM (${totals("SELECT SUM(u.pending) FROM @unfinished u")}
) a LEFT JOIN @unfinished d ON 1 = 1;`,
  };
}

function labelStatements({ outboxTable, outbox: c }: TableNames): LabelStatements<Statement> | undefined {
  const { destination, routes } = c;
  if (destination === null || routes === null) return undefined;
  const isStale = (hash: string): string =>
    `${hash} ${COLLATED} NOT IN (SELECT k.hash FROM OPENJSON(@keep) WITH (hash nvarchar(16) ${COLLATED} '$') k)`;
  const next = (from: string): string => `SET @name = (SELECT TOP (1) o.${destination} FROM ${outboxTable} o ${TO_READ}
  WHERE o.${c.state} = N'pending' AND o.${destination} > ${from} ORDER BY o.${destination}, o.${c.sequence});`;
  return {
    /** As on PostgreSQL. The numbers of a page keep the order in which an owner's collation has the names. */
    relabel: statement(
      "outbox.relabel(keep list, fromDestination text, fromSequence bigint, isFirst int, limit int)",
    )`${BATCH}
DECLARE @page TABLE (n int NOT NULL IDENTITY (1, 1), id uniqueidentifier NOT NULL, label nvarchar(400) ${COLLATED} NOT NULL,
  sequence bigint NOT NULL, hash nvarchar(16) ${COLLATED} NULL);
DECLARE @stale TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL);
INSERT INTO @page (id, label, sequence, hash)
SELECT TOP (@limit) o.${c.id}, o.${destination}, o.${c.sequence}, o.${routes} FROM ${outboxTable} o ${TO_READ}
WHERE o.${c.state} = N'pending' AND o.${destination} >= @fromDestination
  AND (o.${destination} > @fromDestination OR o.${c.sequence} > @fromSequence)
ORDER BY o.${destination}, o.${c.sequence};
INSERT INTO @stale (sequence, id)
SELECT p.sequence, p.id FROM @page p WHERE ${isStale("p.hash")}
UNION ALL
SELECT o.${c.sequence}, o.${c.id} FROM ${outboxTable} o ${TO_READ}
WHERE @isFirst = 1 AND o.${c.state} = N'processing' AND ${isStale(`o.${routes}`)};
UPDATE o
SET ${destination} = NULL, ${routes} = NULL
FROM ${outboxTable} o ${BY_ID.take} JOIN @stale s ON o.${c.sequence} = s.sequence AND o.${c.id} = s.id
WHERE o.${c.state} IN (N'pending', N'processing') AND ${isStale(`o.${routes}`)};
SELECT (SELECT COUNT(*) FROM @page) AS looked_at, (SELECT COUNT(*) FROM @stale) AS found,
  (SELECT TOP (1) p.label FROM @page p ORDER BY p.n DESC) AS last_destination,
  CONVERT(nvarchar(20), (SELECT TOP (1) p.sequence FROM @page p ORDER BY p.n DESC)) AS last_sequence;`,

    waiting: statement("outbox.destinations waiting(limit int)")`${BATCH}
DECLARE @name nvarchar(400);
DECLARE @names TABLE (n int NOT NULL IDENTITY (1, 1), name nvarchar(400) ${COLLATED} NOT NULL);
${next("N''")}
WHILE @name IS NOT NULL AND @limit > 0
BEGIN
  INSERT INTO @names (name) VALUES (@name);
  SET @limit = @limit - 1;
  ${next("@name")}
END;
SELECT n.name FROM @names n ORDER BY n.n;`,
  };
}
