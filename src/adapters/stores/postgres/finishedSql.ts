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
import type { ColumnTypes } from "./columns.ts";
import {
  allLocked,
  allWritten,
  CHANGE_WAIT,
  clockBehind,
  listOf,
  msOf,
  PARKED_AT,
  routedColumns,
} from "./fragments.ts";
import { noteAction } from "./historySql.ts";
import { byIndex, type Statement } from "./statement.ts";

const FILTER = "finishedUntil, topics, createdAfter, createdBefore, state, add";

/** @param isNoting whether changes add to the history */
export function replayStatements(
  names: TableNames,
  types: ColumnTypes,
  isNoting: boolean,
): ReplayStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  const i = names.inbox;
  const finished = `o.${c.state} IN ('sent', 'dead')`;
  /** Compared as an expression, so that rows are found by id and not by an index of everything finished. */
  const finishedById = `(o.${c.state} || '') IN ('sent', 'dead')`;
  const columns = `o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, ${routedColumns(c, "o")}, o.${c.key}::text AS key, o.${c.state}::text AS state,
    o.${c.attempt} AS attempt, left(o.${c.lastError}, 200) AS last_error`;

  /**
   * $1 end of the scope, $2 topics, $3 created after, $4 created before, $5 state; null means any. $6 the destination
   * to add: with it message rows without that destination, whenever they were expanded; else all but message rows.
   */
  const matches = (topic: string, createdAt: string, updatedAt: string, state: string, list: string): string => `
  CASE WHEN $6::text IS NULL THEN ${list} IS NULL AND ${updatedAt} <= $1::timestamptz ELSE NOT ${list}::jsonb ? $6::text END
  AND ($2::text[] IS NULL OR ${topic} = ANY ($2::text[]))
  AND ($3::timestamptz IS NULL OR ${createdAt} > $3::timestamptz)
  AND ($4::timestamptz IS NULL OR ${createdAt} < $4::timestamptz)
  AND ($5::text IS NULL OR ${state} = $5::text)`;

  const noted = isNoting ? ["by", "note"] : [];
  const parameters = ["ids", "finishedUntil", ...noted, ...(c.destination === null ? [] : ["to"])];
  // An operator wants it delivered although it has expired.
  const renewed = c.expiresAt === null ? "" : `, ${c.expiresAt} = NULL`;
  const to = isNoting ? "$5" : "$3";
  const rerouted =
    c.destination === null || c.routes === null
      ? ""
      : `, ${c.destination} = coalesce(${to}::text, CASE WHEN o.${c.routes} IS NULL THEN o.${c.destination} END), ${c.routes} = NULL`;
  const openCondition =
    c.messageSequence === null
      ? "NULL"
      : `CASE WHEN o.${c.messageSequence} IS NOT NULL AND starts_with(o.${c.lastError}, '${CONDITION}') THEN o.${c.lastError} END`;
  /**
   * `scheduled_at` must be later than the moment of any claim with an older snapshot: such a claim may lock the row,
   * and must leave it as not due. It must also differ from `created_at`, by which claims find rows below their mark;
   * NULL, which an owner's table may allow, differs from nothing.
   */
  const move = changeOf(names, isNoting)(
    `replay.move(${parameters.join(", ")})`,
    `${c.state} = 'pending', ${c.attempt} = 0, ${c.scheduledAt} = p.now, ${c.lastError} = ${openCondition},
      ${c.createdAt} = coalesce(o.${c.createdAt}, '-infinity')${rerouted}${renewed}`,
    "state = 'pending'",
    noteAction(names, "replayed", "changed", "$3", "$4"),
    `${finishedById} AND o.${c.updatedAt} <= $2::timestamptz AND ${listOf(c, "o")} IS NULL`,
  );

  /**
   * The new rows have the place of their message, and are found below a mark as the rows of `move` are. They do not
   * expire. The second of two additions waits for the lock of the message row, and then finds the destination in its
   * list. If a trigger of the owner keeps the old list, the row is refused: retention, which reads the list, would miss
   * it.
   */
  const add =
    c.messageSequence === null || c.expandedTo === null || c.destination === null
      ? undefined
      : byIndex("replay.add(pairs, to)", CHANGE_WAIT)`
WITH named AS MATERIALIZED (SELECT * FROM jsonb_to_recordset($1::jsonb) AS n(id uuid, delivery uuid)),
expanded AS MATERIALIZED (
  SELECT o.${c.id} AS id, now() AS now
  FROM ${table} o
  WHERE o.${c.id} = ANY (ARRAY(SELECT id FROM named)) AND ${finishedById} AND NOT ${listOf(c, "o")}::jsonb ? $2::text
  ORDER BY o.${c.sequence}
  FOR NO KEY UPDATE OF o
),
written AS (
  UPDATE ${table} o
  SET ${c.expandedTo} = (${listOf(c, "o")}::jsonb || to_jsonb($2::text))::text, ${c.updatedAt} = e.now
  FROM expanded e, ${allLocked("expanded")}
  WHERE o.${c.id} = e.id
  RETURNING ${listOf(c, "o")}::jsonb ? $2::text AS is_named
),
made AS (
  INSERT INTO ${table} (${c.id}, ${c.messageSequence}, ${c.destination}, ${copied(c)}, ${c.payload}, ${c.headers}, ${c.scheduledAt}, ${c.createdAt})
  SELECT n.delivery, o.${c.sequence}, $2::text, ${copied(c, "o.")}, NULL, NULL, e.now, coalesce(o.${c.createdAt}, '-infinity')
  FROM expanded e JOIN named n ON n.id = e.id JOIN ${table} o ON o.${c.id} = e.id
  ORDER BY o.${c.sequence}
  ON CONFLICT DO NOTHING
  RETURNING 1
)
SELECT (SELECT count(*) FROM made)::int AS changed,
  ${allWritten("(SELECT count(*) FROM expanded)", "(SELECT count(*) FROM written WHERE is_named)")} AS all_written`;

  return {
    begin: byIndex("replay.begin")`
SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS finished_until,
  coalesce((SELECT max(o.${c.sequence})::bigint FROM ${table} o WHERE ${finished}), 0) AS last_sequence`,

    /**
     * Rows after `from` up to `last`; the limit bounds the rows read. Without a match one row has `looked_at` and
     * `last`.
     */
    page: byIndex(`replay.page(${FILTER}, from, last, limit)`)`
WITH page AS MATERIALIZED (
  SELECT ${columns}, o.${c.createdAt} AS created, o.${c.updatedAt} AS updated, ${listOf(c, "o")} AS expanded_to
  FROM ${table} o
  WHERE ${finished} AND o.${c.sequence} > $7::bigint AND o.${c.sequence} <= $8::bigint
  ORDER BY o.${c.sequence}
  LIMIT $9::int
)
SELECT n.looked_at, n.last, w.*, ${msOf("w.created")} AS created_at
FROM (SELECT count(*)::int AS looked_at, max(sequence) AS last FROM page) n
LEFT JOIN page w ON ${matches("w.topic", "w.created", "w.updated", "w.state", "w.expanded_to")}
ORDER BY w.sequence`,

    find: byIndex(`replay.find(${FILTER}, ids)`)`
SELECT ${columns}, ${msOf(`o.${c.createdAt}`)} AS created_at
FROM ${table} o
WHERE o.${c.id} = ANY ($7::uuid[]) AND ${finishedById}
  AND ${matches(`o.${c.topic}::text`, `o.${c.createdAt}`, `o.${c.updatedAt}`, `o.${c.state}::text`, listOf(c, "o"))}
ORDER BY o.${c.sequence}`,

    lists: byIndex("replay.lists of messages(ids)")`
SELECT o.${c.id} AS id, ${listOf(c, "o")} AS expanded_to FROM ${table} o WHERE o.${c.id} = ANY ($1::uuid[]) AND ${listOf(c, "o")} IS NOT NULL`,

    untried: byIndex("replay.untried(ids)")`
SELECT count(*)::int AS untried FROM ${table} o
WHERE o.${c.id} = ANY ($1::uuid[]) AND (o.${c.state} || '') = 'pending' AND o.${c.attempt} = 0`,

    /** Its time is read under the lock: no row of its key that is written later goes before it. */
    receiveAgain: byIndex(
      "replay.receive again(id, state, consumption, eventType, aggregateId, payload, headers, lastError)",
      CHANGE_WAIT,
    )`
WITH dead AS MATERIALIZED (
  SELECT i.${i.id} AS id FROM ${names.inboxTable} i WHERE i.${i.id} = $1::uuid AND i.${i.state} = 'dead' FOR NO KEY UPDATE OF i
),
t AS MATERIALIZED (${clockBehind("dead")}),
written AS (
  UPDATE ${names.inboxTable} i
  SET ${i.state} = $2::text, ${i.consumption} = $3::text, ${i.eventType} = $4::text, ${i.aggregateId} = $5::text,
    ${i.payload} = $6::text::${types.inboxPayload}, ${i.headers} = $7::text::${types.inboxHeaders}, ${i.lastError} = $8::text,
    ${i.processedAt} = CASE WHEN $2::text = 'dead' THEN i.${i.processedAt} END, ${i.scheduledAt} = t.now, ${i.attempt} = 0${i.expiresAt === null ? "" : `, ${i.expiresAt} = NULL`}
  FROM dead d, t
  WHERE i.${i.id} = d.id
  RETURNING i.${i.state} AS state
)
SELECT count(*)::int AS changed FROM written WHERE state = $2::text`,

    move,
    add,

    dialect: {
      pageOf([rows = []]) {
        const [first] = rows;
        return {
          rows: first === undefined || first.id === null ? [] : rows,
          rowsRead: first?.looked_at,
          last: first?.last,
        };
      },
    },
  };
}

/**
 * Changes named rows (`ids`, the first parameter). Rows are locked in the order of their sequence, so that two changes
 * do not deadlock; the second finds the rows changed, and leaves them.
 *
 * @param isNoting whether `noted` adds to the history
 */
function changeOf(names: TableNames, isNoting: boolean) {
  const table = names.outboxTable;
  const c = names.outbox;
  /** @param isChanged over a row as written: a trigger of the owner may have undone the change */
  return (declaration: string, set: string, isChanged: string, noted: string, condition: string): Statement =>
    byIndex(declaration, CHANGE_WAIT)`
WITH chosen AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.scheduledAt} AS scheduled_at, now() AS now
  FROM ${table} o
  WHERE o.${c.id} = ANY ($1::uuid[]) AND ${condition}
  ORDER BY o.${c.sequence}
  FOR NO KEY UPDATE OF o
),
written AS (
  UPDATE ${table} o
  SET ${c.updatedAt} = p.now, ${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL, ${set}
  FROM chosen p, ${allLocked("chosen")}
  WHERE o.${c.id} = p.id
  RETURNING o.${c.id} AS id, o.${c.state} AS state, o.${c.scheduledAt} AS scheduled_at, p.scheduled_at AS was_scheduled_at
),
changed AS (SELECT id FROM written WHERE ${isChanged})${isNoting ? noted : ""}
SELECT count(*)::int AS changed FROM changed`;
}

/** Every statement on parked rows. @param isNoting whether changes add to the history */
export function parkedStatements(names: TableNames, isNoting: boolean): ParkedStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  const isParked = `o.${c.state} = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;
  const isPending = `(o.${c.state} || '') = 'pending'`;
  const change = changeOf(names, isNoting);

  return {
    list: byIndex("parked.list(from, limit, ids, key)")`
WITH parked AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.sequence} AS sequence
  FROM ${table} o
  WHERE ${isParked} AND o.${c.sequence} > $1::bigint
    AND ($3::uuid[] IS NULL OR o.${c.id} = ANY ($3::uuid[])) AND ($4::text IS NULL OR o.${c.key}::text = $4::text)
),
first AS MATERIALIZED (SELECT id FROM parked ORDER BY sequence LIMIT $2::int)
SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, ${routedColumns(c, "o")}, o.${c.key}::text AS key, o.${c.attempt} AS attempt,
  ${msOf(`o.${c.updatedAt}`)} AS updated_at, left(o.${c.lastError}, 200) AS last_error
FROM first f JOIN ${table} o ON o.${c.id} = f.id
ORDER BY o.${c.sequence}`,

    /** See `replay.move` for why it sets each of these columns. */
    retry: change(
      `parked.retry(ids${isNoting ? ", by" : ""})`,
      `${c.scheduledAt} = p.now, ${c.attempt} = CASE WHEN o.${c.scheduledAt} = ${PARKED_AT} THEN 0 ELSE o.${c.attempt} END,
      ${c.createdAt} = coalesce(o.${c.createdAt}, '-infinity')`,
      "scheduled_at <> was_scheduled_at",
      noteAction(names, "retried", "changed", "$2", "NULL"),
      `${isPending} AND o.${c.attempt} > 0 AND o.${c.scheduledAt} > now()`,
    ),
    discard: change(
      `parked.discard(ids, before${isNoting ? ", by, note" : ""})`,
      `${c.state} = 'dead', ${c.lastError} = $2::text || coalesce(': ' || o.${c.lastError}, '')`,
      "state = 'dead'",
      noteAction(names, "discarded", "changed", "$3", "$4"),
      isPending,
    ),
  };
}

export function retentionStatements(names: TableNames): RetentionStatements<Statement> {
  const { sent, dead, inbox } = finishedRows(names, { text: (literal) => `'${literal}'`, uuidType: "uuid" });

  return {
    outboxByAge: byIndex("retention.outbox by age(bound)")(
      `${newest("'sent'", sent, olderThan(sent), "")} UNION ALL ${newest("'dead'", dead, olderThan(dead), "")}`,
    ),
    outboxByCount: byIndex("retention.outbox by count(bound)", { timeoutMs: COUNT_TIMEOUT_MS })(
      `${newest("'sent'", sent, "", KEPT)} UNION ALL ${newest("'dead'", dead, "", KEPT)}`,
    ),
    inboxByAge: byIndex("retention.inbox by age(bound)")(newest("NULL", inbox, olderThan(inbox), "")),

    batches: { sent: batches("sent", sent), dead: batches("dead", dead), inbox: batches("inbox", inbox) },
    existing: byIndex("retention.existing deliveries(ids)")(
      `SELECT r.${sent.id} AS id FROM ${sent.table} r WHERE r.${sent.id} = ANY ($1::uuid[])`,
    ),

    dialect: {
      firstTime: "-infinity",
      maxRows: Number.POSITIVE_INFINITY,
    },
  };
}

function batches(of: string, rows: FinishedRows) {
  const position = `(r.${rows.time}, r.${rows.tie})`;
  return {
    page: byIndex(`retention.page of ${of} rows(fromTime, fromTie, untilTime, untilTie, limit)`)`
SELECT r.${rows.id} AS id, to_jsonb(r.${rows.time}) #>> '{}' AS time, r.${rows.tie}::text AS tie, ${listOf(rows, "r")} AS expanded_to
FROM ${rows.table} r
WHERE r.${rows.state} IN ${rows.states}
  AND ${position} > ($1::timestamptz, $2::${rows.tieType}) AND ${position} <= ($3::timestamptz, $4::${rows.tieType})
ORDER BY r.${rows.time}, r.${rows.tie}
LIMIT $5::bigint`,

    /** Skips locked rows, replayed rows (a later time) and message rows with another delivery since (another list). */
    remove: byIndex(`retention.delete ${of} rows(ids, untilTime, list)`)`
WITH chosen AS MATERIALIZED (
  SELECT r.${rows.id} AS id FROM ${rows.table} r
  WHERE r.${rows.id} = ANY ($1::uuid[]) AND (r.${rows.state} || '') IN ${rows.states} AND r.${rows.time} <= $2::timestamptz
    AND ${listOf(rows, "r")} IS NOT DISTINCT FROM $3::text
  FOR UPDATE SKIP LOCKED
),
deleted AS (
  DELETE FROM ${rows.table} r WHERE r.${rows.id} = ANY (ARRAY(SELECT id FROM chosen)) RETURNING r.${rows.id} AS id
)
SELECT id FROM deleted`,
  };
}

const KEPT = " OFFSET $1::bigint";

function olderThan(rows: FinishedRows): string {
  return ` AND r.${rows.time} < now() - $1::bigint * interval '1 millisecond'`;
}

/** The position of the newest row that a condition leaves. As JSON a time keeps its microseconds. */
function newest(state: string, rows: FinishedRows, condition: string, offset: string): string {
  return `
(SELECT ${state} AS state, to_jsonb(r.${rows.time}) #>> '{}' AS time, r.${rows.tie}::text AS tie
 FROM ${rows.table} r
 WHERE r.${rows.state} IN ${rows.states}${condition}
 ORDER BY r.${rows.time} DESC, r.${rows.tie} DESC
 LIMIT 1${offset})`;
}
