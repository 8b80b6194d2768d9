import { MAX_TEXT_BYTES } from "../../../model/rows.ts";

interface PayloadParts {
  /** `payload` and `headers` as text, NULL if larger than {@link MAX_TEXT_BYTES}; see `tooLargeOf`. */
  readonly columns: readonly (readonly [name: string, value: string])[];
  /** The bytes of a candidate, an expression; 0 for a row that is left out. */
  readonly bytes: string;
  /** The column `bytes_before` of the free ones among the candidates `c`. @param order of the claim, by columns of both */
  free(order: readonly string[]): string;
}

/**
 * Payloads count by their size as text, which is how they are sent. Other types are converted for it, which takes 0.1 s
 * for a `jsonb` of 16 MiB; after a slow claim the next ones take fewer rows. Large headers count too: those of 100 rows
 * of 5 MB would end the process as well.
 *
 * @param row its name in the statement
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
  return {
    columns,
    bytes: `CASE WHEN ${isLeftOut} THEN 0 ELSE ${bytesOf(column)} + greatest(${bytesOf(headers)} - ${LARGE}, 0) END`,
    free: (order) =>
      `sum(c.bytes) OVER (ORDER BY ${order.map((name) => `c.${name}`).join(", ")}) - c.bytes AS bytes_before`,
  };
}

/** NULL if the text is larger than {@link MAX_TEXT_BYTES}: a few compressed bytes can be a hundred million digits. */
function sendable(column: string, type?: string): string {
  if (type === "text") return `CASE WHEN octet_length(${column}) <= ${MAX_TEXT_BYTES} THEN ${column} END`;
  // The OFFSET keeps the planner from writing the text twice.
  return `(SELECT CASE WHEN octet_length(t.text) <= ${MAX_TEXT_BYTES} THEN t.text END FROM (SELECT ${column}::text AS text OFFSET 0) t)`;
}

const LARGE = 2000;
