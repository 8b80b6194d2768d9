import { PARKED_UNTIL } from "../../../model/rows.ts";

/** Pieces of T-SQL that several statements of this store share. */

/**
 * Opens a batch of several statements: no row counts between the results, and an error or a cancelled run ends the batch and rolls its
 * transaction back.
 */
export const BATCH = `SET NOCOUNT ON;
SET XACT_ABORT ON;`;

/** One moment for the whole batch, in UTC. */
export const NOW = "DECLARE @now datetimeoffset(7) = SYSUTCDATETIME();";

/**
 * Whether a time has come; an owner's table may let NULL in, which counts as due.
 *
 * @param time a column
 * @param clock the variable that holds the time of the read
 */
export const hasCome = (time: string, clock = "@now"): string => `(${time} IS NULL OR ${time} <= ${clock})`;

/** The ids of the parameter `@ids`, a JSON array. In a table with a key they are looked up, and locked, in one order by everybody. */
export const NAMED_IDS = `DECLARE @named TABLE (id uniqueidentifier NOT NULL PRIMARY KEY);
INSERT INTO @named (id) SELECT DISTINCT n.id FROM OPENJSON(@ids) WITH (id uniqueidentifier '$') n;`;

/**
 * Hints for a table whose rows are found by their ids (Microsoft Learn, "Table hints"). A small table, or one that was small when the plan
 * was made, would be scanned without `FORCESEEK`, and a scan that locks waits for everybody's rows instead of its own. The id must
 * have an index of its own.
 *
 * - take: locks the rows until the end of the transaction; those that another one has locked are passed over.
 * - hold: the same, but waits for them.
 * - change: for the target of an update whose rows are locked already, or may be waited for.
 * - read: locks nothing.
 */
export const BY_ID = {
  take: "WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)",
  hold: "WITH (UPDLOCK, ROWLOCK, FORCESEEK)",
  change: "WITH (ROWLOCK, FORCESEEK)",
  read: "WITH (FORCESEEK)",
} as const;

/**
 * How statements read rows that others may be changing at the same moment (Microsoft Learn, "Table hints"). Neither way waits for anybody:
 * a row whose lock another transaction holds is passed over, so that an application's open transaction holds up no loop.
 */

/** Chooses rows to change: they are locked until the end of the transaction. */
export const TO_CHANGE = "WITH (UPDLOCK, READPAST, ROWLOCK)";

/**
 * Reads only. Where READ_COMMITTED_SNAPSHOT is on, passing over locked rows asks for a read that locks; such a read may not name a
 * granularity as well.
 */
export const TO_LOOK = "WITH (READPAST, READCOMMITTEDLOCK)";

/** The few ids of a table variable, which comes first, are looked up one by one, whatever the statistics of the table are. */
export const ONE_BY_ONE = "OPTION (FORCE ORDER, LOOP JOIN)";

/** A time as text and back, with its seven digits, which a JavaScript `Date` would lose. */
export const timeText = (time: string): string => `CONVERT(nvarchar(40), ${time}, 127)`;
export const timeOf = (text: string): string => `CONVERT(datetimeoffset(7), ${text}, 127)`;

/** `scheduled_at` of a parked row: also `datetime`, of the narrowest range, holds it. */
export const PARKED_AT = timeOf(`N'${PARKED_UNTIL}'`);

/**
 * Texts of many rows in one binary parameter, `@texts`, one after the other in UTF-16, with a JSON array of the rows that tells where each of them is.
 *
 * A text in the JSON would be escaped by the service and parsed again by the server: for a JSON body that is every quote of it. A text that is converted from
 * bytes also has no collation of its own (Microsoft Learn, "Collation precedence", coercible-default): it takes that of the column it is compared
 * with, so that the column's index serves, whatever an owner has chosen.
 */

/** Values of the parameters `@rows` and `@texts`. */
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

/** The columns that hold the place of a text, as `OPENJSON(@rows) WITH (...)` reads them. */
export function placeFrom(column: string): string {
  return PLACE.map((part, n) => `${column}_${part} int '$.${column}[${n}]'`).join(", ");
}

/** The same as a table variable declares them. */
export function placeTypes(column: string): string {
  return PLACE.map((part) => `${column}_${part} int NULL`).join(", ");
}

/** The same as a list of names. */
export function placeNames(column: string): string {
  return PLACE.map((part) => `${column}_${part}`).join(", ");
}

/**
 * The text of a row `r`.
 *
 * @param type bounded where the text is compared: a column is not looked up by a `max` type in its index
 */
export function textOf(column: string, type: "nvarchar(max)" | "nvarchar(4000)" = "nvarchar(max)"): string {
  return `CONVERT(${type}, SUBSTRING(@texts, r.${column}_at, r.${column}_bytes))`;
}
