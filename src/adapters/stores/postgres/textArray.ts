/**
 * Encodes a `text[]` parameter in PostgreSQL's binary array format (`array_recv`: dimensions, null flag, element type, then length and
 * bytes of each element). The driver would write the array as one escaped text, which the server then takes apart character by
 * character: measured with batches of 20 rows of 1 kB, that was a third of the cost of an insert.
 *
 * @param values at least one element
 */
export function textArray(values: readonly (string | null)[]): Buffer {
  let total = HEADER_BYTES;
  // Plain loops: this runs for every column of every row that comes in.
  for (const value of values) total += 4 + (value === null ? 0 : Buffer.byteLength(value));
  const buffer = Buffer.allocUnsafe(total);
  buffer.writeInt32BE(1, 0); // dimensions
  buffer.writeInt32BE(1, 4); // there may be nulls
  buffer.writeInt32BE(TEXT_OID, 8);
  buffer.writeInt32BE(values.length, 12);
  buffer.writeInt32BE(1, 16); // lower bound
  let at = HEADER_BYTES;
  for (const value of values) {
    const length = value === null ? -1 : buffer.write(value, at + 4, "utf8");
    buffer.writeInt32BE(length, at);
    at += 4 + Math.max(0, length);
  }
  return buffer;
}

const HEADER_BYTES = 20;
const TEXT_OID = 25;
