import { CONDITION } from "../../../model/rows.ts";
import {
  COUNT_TIMEOUT_MS,
  copied,
  type FinishedRows,
  finishedRows,
  type ParkedStatements,
  type ReplayStatements,
  type RetentionStatements,
} from "../sql/finishedRows.ts";
import type { TableNames } from "../sql/names.ts";
import {
  BATCH,
  BEGIN,
  BY_ID,
  COLLATED,
  COMMIT,
  listOf,
  NAMED_IDS,
  NOW,
  ONE_BY_ONE,
  PARKED_AT,
  routedColumns,
  TO_READ,
  timeOf,
  timeText,
} from "./fragments.ts";
import { noteAction } from "./historySql.ts";
import { type Statement, statement } from "./statement.ts";

/** @param isNoting whether changes add to the history */
export function replayStatements(names: TableNames, isNoting: boolean): ReplayStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  const i = names.inbox;
  const finished = `o.${c.state} IN (N'sent', N'dead')`;
  const columns = `o.${c.id} AS id, CONVERT(nvarchar(20), o.${c.sequence}) AS sequence, o.${c.topic} AS topic, ${routedColumns(c, "o")}, o.${c.key} AS [key],
  o.${c.state} AS state, o.${c.attempt} AS attempt, o.${c.createdAt} AS created_at, LEFT(o.${c.lastError}, 200) AS last_error`;

  const filterParameters =
    "finishedUntil text, topics list, createdAfter text, createdBefore text, state text, add text";

  const filter = `DECLARE @until datetimeoffset(7) = ${timeOf("@finishedUntil")};
DECLARE @after datetimeoffset(7) = ${timeOf("@createdAfter")};
DECLARE @before datetimeoffset(7) = ${timeOf("@createdBefore")};
DECLARE @wanted TABLE (topic nvarchar(max) ${COLLATED});
INSERT INTO @wanted (topic) SELECT t.topic FROM OPENJSON(@topics) WITH (topic nvarchar(max) ${COLLATED} '$') t;`;

  const list = listOf(c, "o");
  /** Of a message row: it has not been expanded to a destination. */
  const lacks = (destination: string): string => `${list} IS NOT NULL AND NOT EXISTS (
    SELECT * FROM OPENJSON(${list}) WITH (name nvarchar(400) ${COLLATED} '$') l WHERE l.name = ${destination})`;

  /** Topics are compared letter for letter, whatever the collation; the dot keeps spaces at the end. */
  const matches = `(@add IS NOT NULL AND ${lacks("@add")} OR @add IS NULL AND ${list} IS NULL AND o.${c.updatedAt} <= @until)
  AND (@topics IS NULL OR EXISTS (
    SELECT * FROM @wanted w WHERE CONCAT(w.topic, N'.') = CONCAT(o.${c.topic}, N'.') ${COLLATED}))
  AND (@after IS NULL OR o.${c.createdAt} > @after)
  AND (@before IS NULL OR o.${c.createdAt} < @before)
  AND (@state IS NULL OR o.${c.state} = @state)`;

  const noted = isNoting ? ", by longText, note longText" : "";
  // An operator wants it delivered although it has expired.
  const openCondition =
    c.messageSequence === null
      ? "NULL"
      : `CASE WHEN o.${c.messageSequence} IS NOT NULL AND o.${c.lastError} LIKE N'${CONDITION}%' THEN o.${c.lastError} END`;
  const renewed = c.expiresAt === null ? "" : `, ${c.expiresAt} = NULL`;
  const rerouted =
    c.destination === null || c.routes === null
      ? ""
      : `, ${c.destination} = COALESCE(@to, CASE WHEN o.${c.routes} IS NULL THEN o.${c.destination} END), ${c.routes} = NULL`;

  return {
    begin: statement("replay.begin")`${NOW}
SELECT ${timeText("@now")} AS finished_until, CONVERT(nvarchar(20), COALESCE(MAX(o.${c.sequence}), 0)) AS last_sequence
FROM ${table} o WHERE ${finished};`,

    /**
     * Rows after `@from` up to `@last`. The limit bounds the rows read, not the matches. Answers with their number and
     * the last sequence, and with the matches.
     */
    page: statement(`replay.page(${filterParameters}, from bigint, last bigint, limit int)`)`${BATCH}
${filter}
DECLARE @page TABLE (sequence bigint, id uniqueidentifier, PRIMARY KEY (sequence, id));
INSERT INTO @page (sequence, id)
SELECT TOP (@limit) o.${c.sequence}, o.${c.id}
FROM ${table} o
WHERE ${finished} AND o.${c.sequence} > @from AND o.${c.sequence} <= @last
ORDER BY o.${c.sequence};
SELECT COUNT(*) AS looked_at, CONVERT(nvarchar(20), MAX(sequence)) AS last FROM @page;
SELECT ${columns}
FROM @page n JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE ${finished} AND ${matches}
ORDER BY n.sequence, n.id
${ONE_BY_ONE};`,

    find: statement(`replay.find(${filterParameters}, ids list)`)`${BATCH}
${filter}
${NAMED_IDS}
SELECT ${columns}
FROM @named n JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE ${finished} AND ${matches}
ORDER BY o.${c.sequence}
${ONE_BY_ONE};`,

    /**
     * Claims skip the rows of a batch until its commit. If the commit falls into a claim's scan, which then finds only
     * the later rows, the claim reads the earlier ones as stops.
     */
    move: statement(`replay.move(finishedUntil text, ids list${noted}${c.destination === null ? "" : ", to text"})`)(
      changeOf(names, isNoting)(
        `${c.state} = N'pending', ${c.attempt} = 0, ${c.scheduledAt} = @now, ${c.lastError} = ${openCondition}${rerouted}${renewed}`,
        noteAction(names, "replayed", "@note"),
        `${finished} AND o.${c.updatedAt} <= ${timeOf("@finishedUntil")} AND ${list} IS NULL`,
      ),
    ),

    lists: statement("replay.lists of messages(ids list)")`${BATCH}
${NAMED_IDS}
SELECT o.${c.id} AS id, ${list} AS expanded_to
FROM @named n JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE ${list} IS NOT NULL
${ONE_BY_ONE};`,

    /** See PostgreSQL's. */
    add:
      c.messageSequence === null || c.expandedTo === null || c.destination === null
        ? undefined
        : statement("replay.add(pairs longText, to text)")`${BATCH}
${NOW}
DECLARE @named TABLE (id uniqueidentifier NOT NULL PRIMARY KEY, delivery uniqueidentifier NOT NULL);
INSERT INTO @named (id, delivery)
SELECT n.id, n.delivery FROM OPENJSON(@pairs) WITH (id uniqueidentifier '$.id', delivery uniqueidentifier '$.delivery') n;
DECLARE @changed TABLE (id uniqueidentifier NOT NULL);
${BEGIN}
UPDATE o
SET ${c.expandedTo} = JSON_MODIFY(${list}, N'append $', @to), ${c.updatedAt} = @now
OUTPUT inserted.${c.id} INTO @changed (id)
FROM @named n JOIN ${table} o ${BY_ID.change} ON o.${c.id} = n.id
WHERE ${finished} AND ${lacks("@to")}
${ONE_BY_ONE};
INSERT INTO ${table} (${c.id}, ${c.messageSequence}, ${c.destination}, ${copied(c)}, ${c.payload}, ${c.headers}, ${c.scheduledAt}, ${c.createdAt})
SELECT n.delivery, o.${c.sequence}, @to, ${copied(c, "o.")}, NULL, NULL, @now, o.${c.createdAt}
FROM @changed r JOIN @named n ON n.id = r.id JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE NOT EXISTS (SELECT * FROM ${table} d ${BY_ID.read} WHERE d.${c.id} = n.delivery)
ORDER BY o.${c.sequence}
${ONE_BY_ONE};
DECLARE @made int = @@ROWCOUNT;
${COMMIT}
SELECT @made AS changed;`,

    untried: statement("replay.untried(ids list)")`${BATCH}
${NAMED_IDS}
SELECT COUNT(*) AS untried
FROM @named n JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE o.${c.state} = N'pending' AND o.${c.attempt} = 0
${ONE_BY_ONE};`,

    receiveAgain: statement(
      "replay.receive again(id uuid, state text, consumption text, eventType longText, aggregateId longText, payload longText, headers longText, lastError longText)",
    )`${BATCH}
DECLARE @written TABLE (id uniqueidentifier NOT NULL);
UPDATE i
SET ${i.state} = @state, ${i.consumption} = @consumption, ${i.eventType} = @eventType, ${i.aggregateId} = @aggregateId,
  ${i.payload} = @payload, ${i.headers} = @headers, ${i.lastError} = @lastError,
  ${i.processedAt} = CASE WHEN @state = N'dead' THEN i.${i.processedAt} END, ${i.scheduledAt} = SYSUTCDATETIME(), ${i.attempt} = 0${i.expiresAt === null ? "" : `, ${i.expiresAt} = NULL`}
OUTPUT inserted.${i.id} INTO @written (id)
FROM ${names.inboxTable} i ${BY_ID.change}
WHERE i.${i.id} = @id AND i.${i.state} = N'dead';
SELECT COUNT(*) AS changed FROM @written;`,

    dialect: {
      pageOf: ([counts = [], rows = []]) => ({ rows, rowsRead: counts[0]?.looked_at, last: counts[0]?.last }),
    },
  };
}

/**
 * All changes lock named rows in the order of their ids, so that two do not deadlock; the second finds the rows
 * changed, and leaves them.
 *
 * @param isNoting whether `noted` adds to the history
 */
function changeOf(names: TableNames, isNoting: boolean) {
  const c = names.outbox;
  return (set: string, noted: string, condition: string): string => `${BATCH}
${NOW}
${NAMED_IDS}
DECLARE @changed TABLE (id uniqueidentifier NOT NULL);
${isNoting ? BEGIN : ""}
UPDATE o
SET ${c.updatedAt} = @now, ${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL, ${set}
OUTPUT inserted.${c.id} INTO @changed (id)
FROM @named n JOIN ${names.outboxTable} o ${BY_ID.change} ON o.${c.id} = n.id
WHERE ${condition}
${ONE_BY_ONE};
${isNoting ? `${noted}\n${COMMIT}` : ""}
SELECT COUNT(*) AS changed FROM @changed;`;
}

/** Every statement on parked rows. @param isNoting whether changes add to the history */
export function parkedStatements(names: TableNames, isNoting: boolean): ParkedStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  const isParked = `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;

  const change = changeOf(names, isNoting);

  return {
    /** `@ids`: JSON array; null means any. Keys are compared letter for letter, whatever the collation. */
    list: statement("parked.list(from bigint, limit int, ids list, key longText)")`${BATCH}
${NAMED_IDS}
SELECT TOP (@limit) o.${c.id} AS id, CONVERT(nvarchar(20), o.${c.sequence}) AS sequence, o.${c.topic} AS topic, ${routedColumns(c, "o")}, o.${c.key} AS [key],
  o.${c.attempt} AS attempt, o.${c.updatedAt} AS updated_at, LEFT(o.${c.lastError}, 200) AS last_error
FROM ${table} o ${TO_READ}
WHERE ${isParked} AND o.${c.sequence} > @from
  AND (@ids IS NULL OR EXISTS (SELECT 1 FROM @named n WHERE n.id = o.${c.id}))
  AND (@key IS NULL OR (o.${c.key} IS NOT NULL AND CONCAT(@key, N'.') = CONCAT(o.${c.key}, N'.') ${COLLATED}))
ORDER BY o.${c.sequence};`,

    retry: statement(`parked.retry(ids list${isNoting ? ", by longText" : ""})`)(
      change(
        `${c.scheduledAt} = @now, ${c.attempt} = CASE WHEN o.${c.scheduledAt} = ${PARKED_AT} THEN 0 ELSE o.${c.attempt} END`,
        noteAction(names, "retried", "NULL"),
        `o.${c.state} = N'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} > @now`,
      ),
    ),
    discard: statement(`parked.discard(ids list, before longText${isNoting ? ", by longText, note longText" : ""})`)(
      change(
        `${c.state} = N'dead', ${c.lastError} = CONCAT(@before, N': ' + o.${c.lastError})`,
        noteAction(names, "discarded", "@note"),
        `o.${c.state} = N'pending'`,
      ),
    ),
  };
}

export function retentionStatements(names: TableNames): RetentionStatements<Statement> {
  const { sent, dead, inbox } = finishedRows(names, {
    text: (literal) => `N'${literal}'`,
    uuidType: "uniqueidentifier",
  });

  return {
    outboxByAge: statement("retention.outbox by age(bound bigint)")`${AGE_BOUND}
${newestTooOld("N'sent'", sent)}
UNION ALL
${newestTooOld("N'dead'", dead)};`,

    outboxByCount: statement("retention.outbox by count(bound bigint)", {
      timeoutMs: COUNT_TIMEOUT_MS,
    })`${newestPastKept("N'sent'", sent)}
UNION ALL
${newestPastKept("N'dead'", dead)};`,

    inboxByAge: statement("retention.inbox by age(bound bigint)")`${AGE_BOUND}
${newestTooOld("NULL", inbox)};`,

    batches: { sent: batches("sent", sent), dead: batches("dead", dead), inbox: batches("inbox", inbox) },
    existing: statement("retention.existing deliveries(ids list)")`${BATCH}
${NAMED_IDS}
SELECT n.id FROM @named n JOIN ${sent.table} r ${BY_ID.read} ON r.${sent.id} = n.id
${ONE_BY_ONE};`,

    dialect: {
      firstTime: "0001-01-01T00:00:00Z",
      // A statement that locks 5,000 rows of an index may lock the whole table instead, and everybody out of it.
      maxRows: 4000,
    },
  };
}

function batches(of: string, rows: FinishedRows) {
  const { tieType } = rows;
  return {
    page: statement(
      `retention.page of ${of} rows(fromTime text, fromTie text, untilTime text, untilTie text, limit int)`,
    )`DECLARE @after datetimeoffset(7) = ${timeOf("@fromTime")}, @after_tie ${tieType} = CONVERT(${tieType}, @fromTie);
DECLARE @last datetimeoffset(7) = ${timeOf("@untilTime")}, @last_tie ${tieType} = CONVERT(${tieType}, @untilTie);
SELECT TOP (@limit) r.${rows.id} AS id, ${timeText(`r.${rows.time}`)} AS time, CONVERT(nvarchar(36), r.${rows.tie}) AS tie, ${listOf(rows, "r")} AS expanded_to
FROM ${rows.table} r ${TO_READ}
WHERE r.${rows.state} IN ${rows.states}
  AND r.${rows.time} >= @after AND (r.${rows.time} > @after OR r.${rows.tie} > @after_tie)
  AND r.${rows.time} <= @last AND (r.${rows.time} < @last OR r.${rows.tie} <= @last_tie)
ORDER BY r.${rows.time}, r.${rows.tie};`,

    /** See PostgreSQL's. */
    remove: statement(`retention.delete ${of} rows(ids list, untilTime text, list longText)`)`${BATCH}
DECLARE @last datetimeoffset(7) = ${timeOf("@untilTime")};
${NAMED_IDS}
DECLARE @gone TABLE (id uniqueidentifier NOT NULL);
DELETE r
OUTPUT deleted.${rows.id} INTO @gone (id)
FROM @named n JOIN ${rows.table} r ${BY_ID.take} ON r.${rows.id} = n.id
WHERE r.${rows.state} IN ${rows.states} AND r.${rows.time} <= @last
  AND COALESCE(${listOf(rows, "r")}, N'') = COALESCE(@list, N'') ${COLLATED}
${ONE_BY_ONE};
SELECT id FROM @gone;`,
  };
}

/** In days and the rest of a day: DATEADD takes a number of 32 bits, which is 24 days in milliseconds. */
const AGE_BOUND = `${NOW}
DECLARE @oldest datetimeoffset(7) = DATEADD(day, -(@bound / 86400000), DATEADD(millisecond, -(@bound % 86400000), @now));`;

function newestTooOld(state: string, rows: FinishedRows): string {
  return newest(state, rows, ` AND r.${rows.time} < @oldest`, "0");
}

function newestPastKept(state: string, rows: FinishedRows): string {
  return newest(state, rows, "", "@bound");
}

/** The position of the newest row that a condition leaves, after so many. */
function newest(state: string, rows: FinishedRows, condition: string, offset: string): string {
  return `SELECT newest.state, newest.time, newest.tie FROM (
  SELECT ${state} AS state, ${timeText(`r.${rows.time}`)} AS time, CONVERT(nvarchar(36), r.${rows.tie}) AS tie
  FROM ${rows.table} r
  WHERE r.${rows.state} IN ${rows.states}${condition}
  ORDER BY r.${rows.time} DESC, r.${rows.tie} DESC
  OFFSET ${offset} ROWS FETCH NEXT 1 ROWS ONLY
) newest`;
}
