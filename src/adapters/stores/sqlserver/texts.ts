/**
 * Texts of many rows in one parameter, `@texts`, one behind the other, beside the JSON array of the rows that says where each of them is.
 *
 * A text in the JSON would be escaped by the service and parsed again by the server: for a JSON body that is every quote of it, and not every
 * server that speaks T-SQL takes all escapes back. What is cut out of a parameter also has no collation of its own (Microsoft Learn,
 * "Collation precedence", coercible-default): it takes that of the column it is compared with, so that the column's index serves, whatever an owner
 * has chosen.
 */

/** Values of the parameters `@rows` and `@texts`. */
export type TextBatch = Readonly<Record<"rows" | "texts", string>>;

/**
 * @param rows what the statement reads from `@rows`, in order
 * @param columns the properties that are texts, or null
 */
export function textBatch<T extends object>(rows: readonly T[], columns: readonly (keyof T)[]): TextBatch {
  const texts: string[] = [];
  let length = 0;
  let pairs = 0;
  const placed = (text: string | null): readonly (number | null)[] => {
    if (text === null) return NO_TEXT;
    const place = [length + 1, text.length, pairs, pairsIn(text)] as const;
    texts.push(text);
    length += text.length;
    pairs += place[3];
    return place;
  };
  const placedRows = rows.map((row) => ({
    ...row,
    ...Object.fromEntries(columns.map((column) => [column, placed(row[column] as string | null)])),
  }));
  return { rows: JSON.stringify(placedRows), texts: texts.join("") };
}

/** Each path is there in each row, also without a text: some servers read a column of the rows that have its path, one behind the other. */
const NO_TEXT = [null, null, null, null] as const;

/** Declares what {@link textOf} needs: 1 where the server counts a surrogate pair as one character, as it does under some collations. */
export const PAIRED = "DECLARE @paired int = 2 - LEN(N'\u{1F600}');";

const PLACE = ["at", "length", "pairs_before", "pairs"] as const;

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
  return (
    `CONVERT(${type}, SUBSTRING(@texts, r.${column}_at - @paired * r.${column}_pairs_before, ` +
    `r.${column}_length - @paired * r.${column}_pairs))`
  );
}

function pairsIn(text: string): number {
  return text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0;
}
