import { MAX_TEXT_BYTES } from "../../../model/rows.ts";

/** The parts of a claim that read its payloads, and bound their bytes. */
interface PayloadParts {
  /** Columns of a claimed row: `payload` and `headers` as text, NULL where larger than {@link MAX_TEXT_BYTES}; see `tooLargeOf`. */
  readonly columns: readonly (readonly [name: string, value: string])[];
  /** Columns of the candidates. */
  readonly candidate: string;
  /** Columns of the free ones among the candidates `c`. @param order of the claim, by columns of both */
  free(order: readonly string[]): string;
  /**
   * A table of the free rows, with the bytes before each as `bytes_before`. Rows past the bound may be missing.
   *
   * @param max the parameter with the bound
   */
  bounded(free: string, order: readonly string[], max: string): string;
}

/**
 * The payloads of a claim are counted as they are sent, as text. A text tells its size without being read. Another type
 * has to be written as text for it, which takes 0.1 s for a `jsonb` of 16 MiB: of the large ones only those are that fit
 * by the sizes that they have in the table, compressed. All of 20 rows were written by each claim that took one.
 *
 * Headers count where they are large: those of 100 rows of 5 MB would end the process as well.
 *
 * @param row its name in the statement
 * @param c the columns
 * @param type of the payload's column
 * @param isLeftOut a condition on a row: it is not claimed
 */
export function payloadParts(
  row: string,
  c: { readonly payload: string; readonly headers: string },
  type: string,
  isLeftOut = "false",
): PayloadParts {
  const column = `${row}.${c.payload}`;
  const headers = `${row}.${c.headers}`;
  const columns = [
    ["payload", sendable(column, type)],
    ["has_payload", `${column} IS NOT NULL`],
    ["headers", sendable(headers)],
    ["has_headers", `${headers} IS NOT NULL`],
  ] as const;
  const bytesOf = (value: string): string => `coalesce(octet_length(${value}::text), 0)`;
  const ofHeaders = `greatest(${bytesOf(headers)} - ${LARGE}, 0)`;
  const before = (rows: string, bytes: string, order: readonly string[]): string =>
    `sum(${rows}.${bytes}) OVER (ORDER BY ${order.map((name) => `${rows}.${name}`).join(", ")}) - ${rows}.${bytes}`;
  if (type === "text") {
    return {
      columns,
      candidate: `CASE WHEN ${isLeftOut} THEN 0 ELSE ${bytesOf(column)} + ${ofHeaders} END AS bytes`,
      free: (order) => `${before("c", "bytes", order)} AS bytes_before`,
      bounded: (free) => free,
    };
  }
  const isLarge = `pg_column_size(${column}) >= ${LARGE}`;
  return {
    columns,
    candidate: `CASE WHEN ${isLeftOut} THEN 0 ELSE ${ofHeaders} + CASE WHEN ${isLarge} THEN pg_column_size(${column}) ELSE ${bytesOf(column)} END END AS bytes,
    CASE WHEN ${isLarge} AND NOT ${isLeftOut} THEN ${column} END AS large`,
    free: (order) => `${before("c", "bytes", order)} AS stored_before, c.bytes, c.large`,
    bounded: (free, order, max) => `(
  SELECT w.*, ${before("w", "text_bytes", order)} AS bytes_before
  FROM (
    SELECT f.*, f.bytes + coalesce(octet_length(f.large::text) - pg_column_size(f.large), 0) AS text_bytes FROM ${free} f
    WHERE f.stored_before < ${max}::bigint OFFSET 0
  ) w)`,
  };
}

/**
 * A value as text; NULL where that is larger than {@link MAX_TEXT_BYTES}. No size in the table tells: a few compressed
 * bytes can be numbers of a hundred million digits.
 */
function sendable(column: string, type?: string): string {
  if (type === "text") return `CASE WHEN octet_length(${column}) <= ${MAX_TEXT_BYTES} THEN ${column} END`;
  // Here and above the OFFSET keeps the planner from writing the text twice.
  return `(SELECT CASE WHEN octet_length(t.text) <= ${MAX_TEXT_BYTES} THEN t.text END FROM (SELECT ${column}::text AS text OFFSET 0) t)`;
}

/** Bytes in the table. Larger values are compressed, or kept apart from their rows. */
const LARGE = 2000;
