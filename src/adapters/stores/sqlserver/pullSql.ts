import { EXPIRED } from "../../../model/rows.ts";
import type { TableNames } from "../sql/names.ts";
import type { PullStatements } from "../sql/pull.ts";
import { idsOf } from "../sql/rows.ts";
import { BATCH, BY_ID, COLLATED, hasCome, isExpired, NAMED_IDS, NOW, ONE_BY_ONE, TO_READ } from "./fragments.ts";
import { answersOf, type Statement, statement } from "./statement.ts";

/**
 * Rows read for each row of a claim: so many clients can claim from a source at once before one finds all its rows
 * taken.
 */
const READ_AHEAD = 4;

/**
 * States and consumption are literals: a parameter would keep the optimizer from the filtered indexes. Table variables
 * hold no text of a row: an owner's columns may be wider than any type chosen here, and have another collation. A
 * number within the batch, or a digest, represents an aggregate.
 */
export function pullStatements(names: TableNames): PullStatements<Statement> {
  const table = names.inboxTable;
  const c = names.inbox;
  const waiting = (row: string): string => `${row}.${c.state} = N'pending' AND ${row}.${c.consumption} = N'pull'`;
  /** A lease begins when the rows are locked: `@now` is when the batch began, which may have waited for a lock since. */
  const leaseEnd = "DATEADD(millisecond, @leaseMs, CONVERT(datetimeoffset(7), SYSUTCDATETIME()))";
  const held = (row: string): string => `${row}.${c.claimToken} IS NOT NULL AND ${row}.${c.leaseExpiresAt} > @now`;
  const free = (row: string): string =>
    `(${row}.${c.claimToken} IS NULL OR ${row}.${c.leaseExpiresAt} IS NULL OR ${row}.${c.leaseExpiresAt} <= @now)`;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;
  const uncounted = `CASE WHEN i.${c.attempt} > 0 THEN i.${c.attempt} - 1 ELSE 0 END`;
  /** A row that was never claimed is due from its receipt, whatever the clock, unless put off. */
  const isDue = `(${hasCome(`i.${c.scheduledAt}`)} OR (i.${c.attempt} = 0 AND i.${c.scheduledAt} <= i.${c.createdAt}))`;
  const available = `${waiting("i")} AND i.${c.source} = @source AND ${isDue} AND ${free("i")}`;
  /**
   * The same for rows found by id. Without the consumption no filtered index applies, and every statement locks the
   * index entry of the id before the row: no two deadlock.
   */
  const stillAvailable = `i.${c.state} = N'pending' AND ${isDue} AND ${free("i")}`;
  /** The fence: what a client still holds under its token. */
  const ofClaim = `${waiting("i")} AND i.${c.source} = @source AND i.${c.claimToken} = @token`;
  const stillOfClaim = `i.${c.state} = N'pending' AND i.${c.source} = @source AND i.${c.claimToken} = @token`;
  const spent = `i.${c.attempt} >= @maxAttempts`;
  const expired = isExpired(c.expiresAt, "i");
  const digest = `HASHBYTES('SHA2_256', i.${c.aggregateId})`;
  /** In characters, without reading the text itself. */
  const payloadLength = `COALESCE(DATALENGTH(i.${c.payload}) / DATALENGTH(N'.'), 0)`;

  const changed =
    "DECLARE @changed TABLE (created_at datetimeoffset(7), id uniqueidentifier, PRIMARY KEY (created_at, id));";
  const intoChanged = `OUTPUT inserted.${c.createdAt}, inserted.${c.id} INTO @changed (created_at, id)`;
  const numbered = (row: string): string =>
    `CASE WHEN ${row}.aggregate_id IS NOT NULL THEN DENSE_RANK() OVER (ORDER BY ${row}.aggregate_id) END`;

  /** Changes rows of a claim, each by itself: those of `@ids` (JSON array), or all for null. */
  const close = (assignments: string, condition: string): string => `${BATCH}
${NOW}
DECLARE @named TABLE (id uniqueidentifier PRIMARY KEY);
INSERT INTO @named (id)
SELECT i.${c.id} FROM ${table} i WHERE @ids IS NULL AND ${ofClaim}
UNION
SELECT n.id FROM OPENJSON(@ids) WITH (id uniqueidentifier '$') n;
${changed}
UPDATE i
SET ${assignments}
${intoChanged}
FROM @named n JOIN ${table} i ${BY_ID.change} ON i.${c.id} = n.id
WHERE ${condition}
${ONE_BY_ONE};
SELECT id FROM @changed ORDER BY created_at, id;`;

  const ofAClaim = "source text, token uuid, ids list";

  /**
   * One claim of up to `@limit` rows and `@maxBytes` payload characters; for busy aggregates, stops and open rows see
   * the claim of PostgreSQL. Returns the rows that died, and the claimed rows.
   *
   * - seen: available rows in order, read without locks: rows that a scan locks stay locked until the commit, and
   *   thousands of rows of busy aggregates would escalate to a table lock.
   * - candidates: rows of these that are still available, locked; rows that another claim has locked are skipped.
   *
   * The stops are read after the candidates are locked, in a separate statement that skips nothing: it waits for
   * another client that claims or closes a claim, or with READ_COMMITTED_SNAPSHOT sees the rows as before. The updates
   * check again what the locks hold, and a claim with a gap is rolled back. Payloads are read after the commit, without
   * locks.
   */
  const claim = `${BATCH}
${NOW}
DECLARE @busy TABLE (aggregate_digest varbinary(32) PRIMARY KEY);
INSERT INTO @busy (aggregate_digest)
SELECT ${digest} FROM ${table} i ${TO_READ}
WHERE ${waiting("i")} AND i.${c.source} = @source AND i.${c.aggregateId} IS NOT NULL AND ${held("i")}
UNION
SELECT ${digest} FROM ${table} i ${TO_READ}
WHERE ${waiting("i")} AND i.${c.source} = @source AND i.${c.aggregateId} IS NOT NULL
  AND i.${c.attempt} > 0 AND i.${c.claimToken} IS NULL AND i.${c.scheduledAt} > @now;
DECLARE @seen TABLE (created_at datetimeoffset(7), id uniqueidentifier, PRIMARY KEY (created_at, id));
INSERT INTO @seen (created_at, id)
SELECT TOP (@limit * ${READ_AHEAD}) i.${c.createdAt}, i.${c.id}
FROM ${table} i ${TO_READ}
WHERE ${available} AND NOT EXISTS (SELECT * FROM @busy b WHERE b.aggregate_digest = ${digest})
ORDER BY i.${c.createdAt}, i.${c.id};
BEGIN TRANSACTION;
DECLARE @candidates TABLE (id uniqueidentifier PRIMARY KEY, created_at datetimeoffset(7), aggregate int, spent int, length bigint);
INSERT INTO @candidates (id, created_at, aggregate, spent, length)
SELECT t.id, t.created_at, ${numbered("t")}, t.spent, t.length
FROM (
  SELECT TOP (@limit) s.id, s.created_at, i.${c.aggregateId} AS aggregate_id, CASE WHEN ${spent} OR ${expired} THEN 1 ELSE 0 END AS spent,
    CASE WHEN ${spent} OR ${expired} THEN 0 ELSE ${payloadLength} END AS length
  FROM @seen s JOIN ${table} i ${BY_ID.take} ON i.${c.id} = s.id
  WHERE ${stillAvailable}
  ORDER BY s.created_at, s.id
) t
${ONE_BY_ONE};
DECLARE @lookedAt datetimeoffset(7) = SYSUTCDATETIME();
DECLARE @stops TABLE (aggregate int PRIMARY KEY, created_at datetimeoffset(7), id uniqueidentifier);
INSERT INTO @stops (aggregate, created_at, id)
SELECT n.aggregate, s.created_at, s.id
FROM (
  SELECT id, created_at, aggregate, ROW_NUMBER() OVER (PARTITION BY aggregate ORDER BY created_at DESC, id DESC) AS from_the_end
  FROM @candidates WHERE aggregate IS NOT NULL
) n
JOIN ${table} i ${BY_ID.read} ON i.${c.id} = n.id
CROSS APPLY (
  SELECT TOP (1) e.${c.createdAt} AS created_at, e.${c.id} AS id
  FROM ${table} e
  WHERE ${waiting("e")} AND e.${c.source} = @source AND e.${c.aggregateId} = i.${c.aggregateId} AND e.${c.aggregateId} IS NOT NULL
    AND e.${c.createdAt} <= n.created_at AND (e.${c.createdAt} < n.created_at OR e.${c.id} < n.id)
    AND (e.${c.attempt} > 0 OR ${hasCome(`e.${c.scheduledAt}`, "@lookedAt")} OR e.${c.scheduledAt} <= e.${c.createdAt})
    AND NOT EXISTS (SELECT * FROM @candidates x WHERE x.id = e.${c.id})
  ORDER BY e.${c.createdAt}, e.${c.id}
) s
WHERE n.from_the_end = 1
${ONE_BY_ONE};
DECLARE @open TABLE (id uniqueidentifier PRIMARY KEY, spent int, length_before bigint);
INSERT INTO @open (id, spent, length_before)
SELECT k.id, k.spent, SUM(k.length) OVER (ORDER BY k.created_at, k.id ROWS UNBOUNDED PRECEDING) - k.length
FROM @candidates k LEFT JOIN @stops s ON s.aggregate = k.aggregate
WHERE s.id IS NULL OR k.created_at < s.created_at OR (k.created_at = s.created_at AND k.id < s.id);
DECLARE @died TABLE (id uniqueidentifier PRIMARY KEY);
UPDATE i
SET ${c.state} = N'dead', ${c.processedAt} = @now, ${unclaimed},
  ${c.lastError} = CASE WHEN ${expired} THEN N'${EXPIRED}'
    ELSE CONCAT(N'claimed ', i.${c.attempt}, N' times without being acknowledged', N'; last reason: ' + i.${c.lastError}) END
OUTPUT inserted.${c.id} INTO @died (id)
FROM @open o JOIN ${table} i ${BY_ID.change} ON i.${c.id} = o.id
WHERE o.spent = 1 AND ${stillAvailable}
${ONE_BY_ONE};
${changed}
UPDATE i
SET ${c.attempt} = COALESCE(i.${c.attempt}, 0) + 1, ${c.claimToken} = @token, ${c.claimedAt} = @now,
  ${c.leaseExpiresAt} = ${leaseEnd}
${intoChanged}
FROM @open o JOIN ${table} i ${BY_ID.change} ON i.${c.id} = o.id
WHERE o.spent = 0 AND o.length_before < @maxBytes AND ${stillAvailable}
${ONE_BY_ONE};
IF (SELECT COUNT(*) FROM @died) + (SELECT COUNT(*) FROM @changed)
  = (SELECT COUNT(*) FROM @open o WHERE o.spent = 1 OR o.length_before < @maxBytes)
  COMMIT TRANSACTION;
ELSE
BEGIN
  ROLLBACK TRANSACTION;
  DELETE FROM @died;
  DELETE FROM @changed;
END;
SELECT id FROM @died;
SELECT n.id, i.${c.aggregateId} AS aggregate_id, i.${c.eventType} AS event_type, i.${c.idempotencyKey} AS idempotency_key,
  i.${c.correlationId} AS correlation_id, i.${c.attempt} AS attempt, n.created_at, i.${c.headers} AS headers, i.${c.payload} AS payload
FROM @changed n JOIN ${table} i ${BY_ID.read} ON i.${c.id} = n.id
WHERE i.${c.claimToken} = @token
ORDER BY n.created_at, n.id
${ONE_BY_ONE};`;

  return {
    claim: statement("pull.claim(source text, token uuid, limit int, maxBytes bigint, leaseMs ms, maxAttempts int)")(
      claim,
    ),

    acknowledge: statement(`pull.acknowledge(${ofAClaim})`)(
      close(`${c.state} = N'processed', ${c.processedAt} = @now, ${unclaimed}`, stillOfClaim),
    ),

    extend: statement(`pull.extend(${ofAClaim}, leaseMs ms)`)(
      close(`${c.leaseExpiresAt} = ${leaseEnd}`, `${stillOfClaim} AND ${held("i")}`),
    ),

    /**
     * `@reason` null keeps the last one. The whole claim is locked, so that none of its rows is closed before the
     * update.
     */
    reject: statement(`pull.reject(${ofAClaim}, maxAttempts int, delayMs ms, reason longText)`)`${BATCH}
${NOW}
${NAMED_IDS}
DECLARE @ours TABLE (id uniqueidentifier PRIMARY KEY);
INSERT INTO @ours (id) SELECT i.${c.id} FROM ${table} i WHERE ${ofClaim};
DECLARE @held TABLE (id uniqueidentifier PRIMARY KEY, created_at datetimeoffset(7), aggregate int, named int, spent int);
BEGIN TRANSACTION;
INSERT INTO @held (id, created_at, aggregate, named, spent)
SELECT h.id, h.created_at, ${numbered("h")}, h.named, h.spent
FROM (
  SELECT i.${c.id} AS id, i.${c.createdAt} AS created_at, i.${c.aggregateId} AS aggregate_id,
    CASE WHEN @ids IS NULL OR n.id IS NOT NULL THEN 1 ELSE 0 END AS named, CASE WHEN ${spent} THEN 1 ELSE 0 END AS spent
  FROM @ours o JOIN ${table} i ${BY_ID.hold} ON i.${c.id} = o.id LEFT JOIN @named n ON n.id = o.id
  WHERE ${stillOfClaim}
) h
${ONE_BY_ONE};
DECLARE @outcomes TABLE (id uniqueidentifier PRIMARY KEY, outcome nvarchar(10) ${COLLATED});
INSERT INTO @outcomes (id, outcome)
SELECT h.id, CASE WHEN h.named = 0 THEN N'released' WHEN h.spent = 1 THEN N'dead' ELSE N'retried' END
FROM (
  SELECT id, aggregate, named, spent,
    MAX(named) OVER (PARTITION BY aggregate ORDER BY created_at, id ROWS UNBOUNDED PRECEDING) AS named_so_far
  FROM @held
) h
WHERE h.named = 1 OR (h.aggregate IS NOT NULL AND h.named_so_far = 1);
${changed}
UPDATE i
SET ${c.state} = CASE o.outcome WHEN N'dead' THEN N'dead' ELSE N'pending' END, ${unclaimed},
  ${c.processedAt} = CASE o.outcome WHEN N'dead' THEN @now ELSE i.${c.processedAt} END,
  ${c.attempt} = CASE o.outcome WHEN N'released' THEN ${uncounted} ELSE i.${c.attempt} END,
  ${c.scheduledAt} = CASE o.outcome WHEN N'retried' THEN DATEADD(millisecond, @delayMs, @now) ELSE i.${c.scheduledAt} END,
  ${c.lastError} = CASE o.outcome WHEN N'released' THEN i.${c.lastError} ELSE COALESCE(@reason, i.${c.lastError}) END
${intoChanged}
FROM @outcomes o JOIN ${table} i ${BY_ID.change} ON i.${c.id} = o.id
WHERE ${stillOfClaim}
${ONE_BY_ONE};
COMMIT TRANSACTION;
SELECT o.id, o.outcome FROM @changed n JOIN @outcomes o ON o.id = n.id ORDER BY n.created_at, n.id;`,

    dialect: {
      claimOf(results) {
        const [dead = [], rows = []] = answersOf(results, 2);
        return { rows, dead: idsOf(dead) };
      },
    },
  };
}
