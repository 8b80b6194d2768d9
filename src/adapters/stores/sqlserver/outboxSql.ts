import type { Outcome } from "../../../model/rows.ts";
import type { WithHistory } from "../sql/history.ts";
import type { TableNames } from "../sql/names.ts";
import { attemptsOf, delayOf, type OutboxStatements, type ParkedStatements, STATE_AFTER } from "../sql/outbox.ts";
import { NO_ROUTING, type Routing } from "../sql/routing.ts";
import { idsOf } from "../sql/rows.ts";
import { claimStatements } from "./claimSql.ts";
import {
  BATCH,
  BEGIN,
  BY_ID,
  COMMIT,
  destinationOf,
  hasCome,
  LETTER_FOR_LETTER,
  NAMED_IDS,
  NOW,
  ONE_BY_ONE,
  overrideOf,
  PARKED_AT,
  placeFrom,
  placeNames,
  placeTypes,
  TO_READ,
  textBatch,
  textOf,
} from "./fragments.ts";
import { ENTRY_PARAMETERS, entryValues, noteAction, noteSettled } from "./historySql.ts";
import { type Statement, statement } from "./statement.ts";

const SETTLE_PARAMETERS = "rows longText, texts bytes";
const SETTLED_TEXTS = ["reason"] as const;

/**
 * Every statement on the outbox. States are literals: a parameter would keep the optimizer from the filtered indexes.
 * `OUTPUT` goes into a table variable, as tables with triggers require.
 *
 * Rows are changed by `sequence` and `id`, the keys of the bundled table: every change locks the row before its entries
 * in other indexes, so that no two statements deadlock.
 *
 * @param names already quoted

 */
export function outboxStatements(names: TableNames, routing: Routing = NO_ROUTING): OutboxStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  const destinationIn = (row: string): string => destinationOf(routing, c, row);
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;
  /**
   * `scheduled_at` of a claimed row that goes back unattempted: never ahead of its new `updated_at`, or later rows of
   * its key would overtake it.
   */
  const scheduledAtGivenBack = `CASE WHEN o.${c.scheduledAt} > @now THEN @now ELSE o.${c.scheduledAt} END`;
  const isDue = `o.${c.state} = N'pending' AND ${hasCome(`o.${c.scheduledAt}`)}`;
  /** No addition may leave the range of the column: the row could never be settled. */
  const attemptsPlus = (added: string): string => `CASE WHEN o.${c.attempt} > ${MAX_INT} - ${added} THEN ${MAX_INT}
    WHEN o.${c.attempt} > 0 THEN o.${c.attempt} + ${added} ELSE ${added} END`;
  /** Split so that each half is a range of the index on leases: only rows without a lease are read further. */
  const hasExpired = `o.${c.state} = N'processing' AND (o.${c.leaseExpiresAt} < @now OR o.${c.leaseExpiresAt} IS NULL)
  AND (o.${c.leaseExpiresAt} IS NOT NULL
    OR COALESCE(o.${c.claimedAt}, o.${c.updatedAt}, CONVERT(datetimeoffset(7), N'1970-01-01')) < DATEADD(millisecond, -@claimTimeoutMs, @now))`;

  /** Waits for its retry, or is parked, before the later rows of its key. */
  const isBlocking = `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} > @now AND o.${c.key} IS NOT NULL`;

  /** The backlog of all. @param pending a query for the number of pending rows */
  const totals = (pending: string): string => `SELECT (${pending}) AS all_pending,
  (SELECT TOP (1) DATEDIFF_BIG(millisecond, o.${c.createdAt}, @now) FROM ${table} o ${TO_READ} WHERE ${isDue}
   ORDER BY o.${c.sequence}) AS all_oldest_ms,
  (SELECT COUNT_BIG(DISTINCT o.${c.key}) FROM ${table} o ${TO_READ} WHERE ${isBlocking}) AS blocked_keys,
  (SELECT COUNT_BIG(*) FROM ${table} o ${TO_READ}
   WHERE o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}) AS parked`;

  /** @param noted a further statement, behind the change */
  const settle = (noted: string): string => {
    const [begin, end] = noted === "" ? ["", ""] : [BEGIN, `${noted}\n${COMMIT}`];
    return `
${BATCH}
${NOW}
DECLARE @processing nvarchar(20) = N'processing';
DECLARE @settled TABLE (id uniqueidentifier NOT NULL, token uniqueidentifier NOT NULL, state nvarchar(20) NOT NULL, attempts int NOT NULL,
  delay int NULL, ${SETTLED_TEXTS.map(placeTypes).join(", ")});
DECLARE @closed TABLE (id uniqueidentifier NOT NULL);
INSERT INTO @settled (id, token, state, attempts, delay, ${SETTLED_TEXTS.map(placeNames).join(", ")})
SELECT j.id, j.token, j.state, j.attempts, j.delay, ${SETTLED_TEXTS.map(placeNames).join(", ")}
FROM OPENJSON(@rows) WITH (id uniqueidentifier '$.id', token uniqueidentifier '$.token', state nvarchar(20) '$.state',
  attempts int '$.attempts', delay int '$.delay', ${SETTLED_TEXTS.map(placeFrom).join(", ")}) j;
${begin}
UPDATE o
SET ${c.state} = r.state, ${c.attempt} = ${attemptsPlus("r.attempts")}, ${c.updatedAt} = @now, ${unclaimed},
  ${c.scheduledAt} = CASE WHEN r.delay < 0 THEN ${PARKED_AT} WHEN r.delay IS NOT NULL THEN DATEADD(millisecond, r.delay, @now)
    WHEN r.state = N'pending' THEN ${scheduledAtGivenBack} ELSE o.${c.scheduledAt} END,
  ${c.lastError} = COALESCE(${textOf("reason")}, o.${c.lastError})
OUTPUT inserted.${c.id} INTO @closed (id)
FROM ${table} o ${BY_ID.change} JOIN @settled r ON o.${c.id} = r.id
WHERE o.${c.claimToken} = r.token AND o.${c.state} = @processing;
${end}
SELECT id FROM @closed;`;
  };

  const claims = claimStatements(names, routing);
  return {
    ...claims,

    /**
     * The rows are found first and changed after, by their keys: a change that read the index on leases would lock its
     * entries before the rows, against the order in which they are settled.
     */
    // Far below the lease: a renewal that hangs must not keep the next one from being tried in time.
    renew: statement("outbox.renew(tokens list, leaseMs ms, claimTimeoutMs ms)", { timeoutMs: 4000 })`
${BATCH}
${NOW}
DECLARE @held TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL, token uniqueidentifier NOT NULL);
DECLARE @renewed TABLE (id uniqueidentifier NOT NULL);
INSERT INTO @held (sequence, id, token)
SELECT o.${c.sequence}, o.${c.id}, o.${c.claimToken}
FROM ${table} o
WHERE o.${c.state} = N'processing'
  AND o.${c.claimToken} IN (SELECT t.token FROM OPENJSON(@tokens) WITH (token uniqueidentifier '$') t);
UPDATE o
SET ${c.leaseExpiresAt} = CASE
  WHEN DATEADD(millisecond, @claimTimeoutMs, o.${c.claimedAt}) < DATEADD(millisecond, @leaseMs, @now)
  THEN DATEADD(millisecond, @claimTimeoutMs, o.${c.claimedAt})
  ELSE DATEADD(millisecond, @leaseMs, @now) END
OUTPUT inserted.${c.id} INTO @renewed (id)
FROM ${table} o ${BY_ID.change} JOIN @held h ON o.${c.sequence} = h.sequence AND o.${c.id} = h.id
WHERE o.${c.state} = N'processing' AND o.${c.claimToken} = h.token;
SELECT id FROM @renewed;`,

    /**
     * The state is compared with a variable, which matches no filtered index: rows are found by id. For `@rows` and
     * `@texts` see {@link textBatch}; a delay below 0 parks the row, a null reason keeps the last one.
     */
    settle: statement(`outbox.settle(${SETTLE_PARAMETERS})`)(settle("")),
    settleNoting: statement(`outbox.settle with history(${SETTLE_PARAMETERS}, ${ENTRY_PARAMETERS})`)(
      settle(noteSettled(names)),
    ),

    reclaim: statement("outbox.reclaim(limit int, claimTimeoutMs ms)", { timeoutMs: 4000 })`
${BATCH}
${NOW}
DECLARE @expired TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL);
DECLARE @reclaimed TABLE (id uniqueidentifier NOT NULL);
INSERT INTO @expired (sequence, id)
SELECT TOP (@limit) o.${c.sequence}, o.${c.id} FROM ${table} o ${TO_READ} WHERE ${hasExpired};
UPDATE o
SET ${c.state} = N'pending', ${c.updatedAt} = @now, ${c.scheduledAt} = ${scheduledAtGivenBack}, ${unclaimed}
OUTPUT inserted.${c.id} INTO @reclaimed (id)
FROM ${table} o ${BY_ID.take} JOIN @expired e ON o.${c.sequence} = e.sequence AND o.${c.id} = e.id
WHERE ${hasExpired};
SELECT id FROM @reclaimed;`,

    expired: statement("outbox.expired(limit int, claimTimeoutMs ms)", { timeoutMs: 4000 })`
${NOW}
SELECT TOP (@limit) o.${c.id} AS id FROM ${table} o ${TO_READ} WHERE ${hasExpired};`,

    reclaimNamed: statement("outbox.reclaim of named rows(ids list, claimTimeoutMs ms)", { timeoutMs: 4000 })`
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

    /** At least one row, one per destination with unfinished rows; each with the totals. Skips locked rows. */
    backlog: statement("outbox.backlog by destination")`
${NOW}
DECLARE @unfinished TABLE (destination nvarchar(max) COLLATE ${LETTER_FOR_LETTER}, pending bigint NOT NULL, processing bigint NOT NULL,
  blocked bigint NOT NULL, oldest_ms bigint NULL);
INSERT INTO @unfinished (destination, pending, processing, blocked, oldest_ms)
SELECT u.destination, SUM(u.pending), SUM(u.processing), SUM(u.blocked), MAX(u.oldest_ms)
FROM (
  SELECT ${destinationIn("o")} AS destination, CONVERT(bigint, 1) AS pending, CONVERT(bigint, 0) AS processing, CONVERT(bigint, 0) AS blocked,
    CASE WHEN ${hasCome(`o.${c.scheduledAt}`)} THEN DATEDIFF_BIG(millisecond, o.${c.createdAt}, @now) END AS oldest_ms
  FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'pending'
  UNION ALL
  SELECT ${destinationIn("o")}, CONVERT(bigint, 0), CONVERT(bigint, 1), CONVERT(bigint, 0), NULL
  FROM ${table} o ${TO_READ} WHERE o.${c.state} = N'processing'
  UNION ALL
  SELECT k.destination, CONVERT(bigint, 0), CONVERT(bigint, 0), CONVERT(bigint, 1), NULL
  FROM (SELECT DISTINCT ${destinationIn("o")} AS destination, o.${c.key} AS [key] FROM ${table} o ${TO_READ} WHERE ${isBlocking}) k
) u GROUP BY u.destination;
SELECT d.destination, d.pending, d.processing, d.blocked, d.oldest_ms, a.all_pending, a.all_oldest_ms, a.blocked_keys, a.parked
FROM (${totals("SELECT SUM(u.pending) FROM @unfinished u")}
) a LEFT JOIN @unfinished d ON 1 = 1;`,

    dialect: {
      ...claims.dialect,
      entryValues,
      settleValues: (settlements) => ({ ...textBatch(settlements.map(outcomeOf), SETTLED_TEXTS) }),
      closedOf: idsOf,
    },
  };
}

const MAX_INT = 2 ** 31 - 1;

function outcomeOf(settlement: Outcome) {
  const delay = delayOf(settlement);
  return {
    id: settlement.id,
    token: settlement.claimToken,
    state: STATE_AFTER[settlement.kind],
    attempts: attemptsOf(settlement),
    delay: delay === null ? null : Math.min(delay, MAX_INT),
    reason: "reason" in settlement ? settlement.reason : null,
  };
}

export function parkedStatements(names: TableNames): WithHistory<ParkedStatements<Statement>> {
  return { plain: parked(names, false), noting: parked(names, true) };
}

function parked(names: TableNames, isNoting: boolean): ParkedStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  /** The index of rows in backoff finds them. */
  const isParked = `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;

  /** All statements lock rows in the order of their ids; the second one finds them changed, and leaves them. */
  const change = (set: string, noted: string, condition = isParked): string => `${BATCH}
${NOW}
${NAMED_IDS}
DECLARE @changed TABLE (id uniqueidentifier NOT NULL);
${isNoting ? BEGIN : ""}
UPDATE o
SET ${c.updatedAt} = @now, ${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL, ${set}
OUTPUT inserted.${c.id} INTO @changed (id)
FROM @named n JOIN ${table} o ${BY_ID.change} ON o.${c.id} = n.id
WHERE ${condition}
${ONE_BY_ONE};
${isNoting ? `${noted}\n${COMMIT}` : ""}
SELECT COUNT(*) AS changed FROM @changed;`;

  const discard = (name: string, condition: string): Statement =>
    statement(`${name}(ids list, before longText, whole longText${isNoting ? ", by longText, note longText" : ""})`)(
      change(
        `${c.state} = N'dead', ${c.lastError} = CASE WHEN @before IS NULL THEN @whole ELSE CONCAT(@before, N': ' + o.${c.lastError}) END`,
        noteAction(names, "discarded", "@note"),
        condition,
      ),
    );

  return {
    /** `@ids`: JSON array; null means any. Keys are compared letter for letter, whatever the collation. */
    list: statement("parked.list(from bigint, limit int, ids list, key longText)")`${BATCH}
${NAMED_IDS}
SELECT TOP (@limit) o.${c.id} AS id, CONVERT(nvarchar(20), o.${c.sequence}) AS sequence, o.${c.topic} AS topic, ${overrideOf(c, "o")} AS destination_override, o.${c.key} AS [key],
  o.${c.attempt} AS attempt, o.${c.updatedAt} AS updated_at, LEFT(o.${c.lastError}, 200) AS last_error
FROM ${table} o ${TO_READ}
WHERE ${isParked} AND o.${c.sequence} > @from
  AND (@ids IS NULL OR EXISTS (SELECT 1 FROM @named n WHERE n.id = o.${c.id}))
  AND (@key IS NULL OR (o.${c.key} IS NOT NULL AND CONCAT(@key, N'.') = CONCAT(o.${c.key}, N'.') COLLATE Latin1_General_100_BIN2))
ORDER BY o.${c.sequence};`,

    retry: statement(`parked.retry(ids list${isNoting ? ", by longText" : ""})`)(
      change(`${c.attempt} = 0, ${c.scheduledAt} = @now`, noteAction(names, "retried", "NULL")),
    ),

    hasten: statement(`parked.hasten(ids list${isNoting ? ", by longText" : ""})`)(
      change(
        `${c.scheduledAt} = @now`,
        noteAction(names, "retried", "NULL"),
        `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} > @now AND o.${c.scheduledAt} <> ${PARKED_AT}`,
      ),
    ),

    discard: discard("parked.discard", isParked),
    discardPending: discard("parked.discard pending", `o.${c.state} = N'pending'`),
  };
}
