import { PARKED_UNTIL } from "../../../model/rows.ts";
import { listParts } from "../sql/lists.ts";
import type { SetBack, TableNames } from "../sql/names.ts";

export const BINARY = "Latin1_General_100_BIN2";

/**
 * The collation of the bundled tables: texts are the same when their characters are. It follows the type of each text
 * column that a statement declares, which would have the database's: comparison with a table's column is an error then
 * (468). It also follows a text that is compared with an owner's column, of any collation.
 */
export const COLLATED = `COLLATE ${BINARY}`;

/** Opens a batch: no row counts between results, and an error or cancellation ends it and rolls back. */
export const BATCH = `SET NOCOUNT ON;
SET XACT_ABORT ON;`;

export const BEGIN = "BEGIN TRANSACTION;";
export const COMMIT = "COMMIT TRANSACTION;";

/** One moment for the whole batch, in UTC. */
export const NOW = "DECLARE @now datetimeoffset(7) = SYSUTCDATETIME();";

/**
 * @param time a column; an owner's table may let NULL in, which counts as due
 * @param clock the variable that holds the time of the read
 */
export const hasCome = (time: string, clock = "@now"): string => `(${time} IS NULL OR ${time} <= ${clock})`;

/** A condition as a value that the driver reads as a boolean. */
export const asBit = (condition: string): string => `CONVERT(bit, CASE WHEN ${condition} THEN 1 ELSE 0 END)`;

/** The ids of `@ids`, a JSON array. The table's key makes all statements lock the rows in one order. */
export const NAMED_IDS = `DECLARE @named TABLE (id uniqueidentifier NOT NULL PRIMARY KEY);
INSERT INTO @named (id) SELECT DISTINCT n.id FROM OPENJSON(@ids) WITH (id uniqueidentifier '$') n;`;

/**
 * Hints for a table whose rows are found by id, which must have an index (Microsoft Learn, "Table hints"). Without
 * `FORCESEEK` the server scans a table that is, or was, small, and a locking scan waits for all locked rows.
 *
 * - take: locks the rows until the end of the transaction; skips locked ones.
 * - hold: the same, but waits for them.
 * - change: for the target of an update whose rows are locked already, or may be waited for.
 * - read: locks nothing.
 * - look: the same, and skips locked rows.
 */
export const BY_ID = {
  take: "WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)",
  hold: "WITH (UPDLOCK, ROWLOCK, FORCESEEK)",
  change: "WITH (ROWLOCK, FORCESEEK)",
  read: "WITH (FORCESEEK)",
  look: "WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK)",
} as const;

/**
 * How statements read rows that others may be changing (Microsoft Learn, "Table hints"). Neither waits: both skip rows
 * that another transaction has locked, so that an application's open transaction blocks no role.
 */

/** Chooses rows to change: they are locked until the end of the transaction. */
export const TO_CHANGE = "WITH (UPDLOCK, READPAST, ROWLOCK)";

export const setBack: SetBack = (table, c, which, newestFirst, more = "") => `${BATCH}
DECLARE @last TABLE (id uniqueidentifier NOT NULL);
INSERT INTO @last (id) SELECT TOP (1) f.${c.id} FROM ${table} f ${TO_CHANGE} WHERE ${which} ORDER BY ${newestFirst};
UPDATE f SET ${c.state} = N'pending'${more} FROM @last l JOIN ${table} f ${BY_ID.change} ON f.${c.id} = l.id;
SELECT l.id FROM @last l;`;

/** Reads only. With READ_COMMITTED_SNAPSHOT, READPAST requires a locking read, which may not name a granularity. */
export const TO_READ = "WITH (READPAST, READCOMMITTEDLOCK)";

/** The few ids of a table variable come first, and are looked up one by one, whatever the statistics. */
export const ONE_BY_ONE = "OPTION (FORCE ORDER, LOOP JOIN)";

/** The place before the first page: the same range of an index serves every page. */
export const MAX_BIGINT = "CONVERT(bigint, 9223372036854775807)";

/** A time as text and back, with its seven digits, which a JavaScript `Date` would lose. */
export const timeText = (time: string): string => `CONVERT(nvarchar(40), ${time}, 127)`;
export const timeOf = (text: string): string => `CONVERT(datetimeoffset(7), ${text}, 127)`;

/** `scheduled_at` of a parked row: also `datetime`, of the narrowest range, holds it. */
export const PARKED_AT = timeOf(`N'${PARKED_UNTIL}'`);

/**
 * Texts of many rows in one binary parameter, `@texts`, concatenated in UTF-16, with a JSON array of the rows that has
 * the position of each text. JSON would be escaped and parsed again: every quote of a JSON body. A text converted from
 * bytes has no collation of its own (Microsoft Learn, "Collation precedence", coercible-default): the index of the
 * column that it is compared with applies.
 */

export interface TextBatch {
  readonly rows: string;
  readonly texts: Buffer;
}

/**
 * @param rows what the statement reads from `@rows`, in order
 * @param columns the properties that are texts, or null
 */
export function textBatch<T extends object>(rows: readonly T[], columns: readonly (keyof T)[]): TextBatch {
  const texts: string[] = [];
  let length = 0;
  const placed = (text: string | null): readonly [at: number, bytes: number] | null => {
    if (text === null) return null;
    const place = [length * 2 + 1, text.length * 2] as const;
    texts.push(text);
    length += text.length;
    return place;
  };
  const placedRows = rows.map((row) => ({
    ...row,
    ...Object.fromEntries(columns.map((column) => [column, placed(row[column] as string | null)])),
  }));
  return { rows: JSON.stringify(placedRows), texts: Buffer.from(texts.join(""), "utf16le") };
}

const PLACE = ["at", "bytes"] as const;

/** The columns that hold the position of a text, as `OPENJSON(@rows) WITH (...)` reads them. */
export function placeFrom(column: string): string {
  return PLACE.map((part, n) => `${column}_${part} int '$.${column}[${n}]'`).join(", ");
}

/** The same as a table variable declares them. */
export function placeTypes(column: string): string {
  return PLACE.map((part) => `${column}_${part} int NULL`).join(", ");
}

export function placeNames(column: string): string {
  return PLACE.map((part) => `${column}_${part}`).join(", ");
}

/** The text of a row `r`. @param type bounded for comparisons: a `max` type prevents an index seek */
export function textOf(column: string, type: "nvarchar(max)" | "nvarchar(4000)" = "nvarchar(max)"): string {
  return `CONVERT(${type}, SUBSTRING(@texts, r.${column}_at, r.${column}_bytes))`;
}

/** An expression for the destination that a row has: an empty one counts as none. */
export function labelOf({ destination }: TableNames["outbox"], row: string): string {
  return destination === null ? "CONVERT(nvarchar(400), NULL)" : `NULLIF(${row}.${destination}, N'')`;
}

export function hashOf({ routes }: TableNames["outbox"], row: string): string {
  return routes === null ? "CONVERT(nvarchar(16), NULL)" : `${row}.${routes}`;
}

/** Both, by the names that `routedRow` reads. */
export const routedColumns = (c: TableNames["outbox"], row: string): string =>
  `${labelOf(c, row)} AS destination, ${hashOf(c, row)} AS routes`;

/** An expression for the destinations of a message row; NULL for any other row. */
export function listOf({ expandedTo }: Pick<TableNames["outbox"], "expandedTo">, row: string): string {
  return expandedTo === null ? "CONVERT(nvarchar(max), NULL)" : `${row}.${expandedTo}`;
}

export const listsOf = (names: TableNames) =>
  listParts(names, {
    word: (text) => `N'${text}'`,
    hasNoDestination: `${labelOf(names.outbox, "o")} IS NULL`,
    goesTo: (destination) => `o.${names.outbox.destination} = ${destination} ${COLLATED}`,
    one: (column, where) => `(SELECT TOP (1) ${column} FROM ${names.outboxTable} m ${TO_READ} WHERE ${where})`,
  });

/** A condition: the row has expired. @param expiresAt the column; null if the table has none */
export const isExpired = (expiresAt: string | null, row: string): string =>
  expiresAt === null ? "1 = 0" : `${row}.${expiresAt} <= @now`;

/** An expression: how long it may still be delivered, 0 for no longer, NULL for ever. @param expiresAt as above */
export const expiresInMs = (expiresAt: string | null, row: string): string =>
  expiresAt === null
    ? "CONVERT(bigint, NULL)"
    : `CASE WHEN ${isExpired(expiresAt, row)} THEN 0 ELSE DATEDIFF_BIG(millisecond, @now, ${row}.${expiresAt}) END`;
