/**
 * Encodes a `text[]` parameter in PostgreSQL's binary array format (`array_recv`: dimensions, null flag, element type, then length and
 * bytes of each element). The driver would write the array as one escaped text, which the server then takes apart character by
 * character: measured with batches of 20 rows of 1 kB, that was a third of the cost of an insert.
 *
 * @param values at least one element
 */
export function textArray(values: readonly (string | null)[]): Buffer {
  const lengths = values.map((value) => (value === null ? 0 : Buffer.byteLength(value)));
  const total = lengths.reduce((sum, length) => sum + length, HEADER_BYTES + 4 * values.length);
  const buffer = Buffer.allocUnsafe(total);
  let at = 0;
  const int32 = (value: number): void => {
    at = buffer.writeInt32BE(value, at);
  };
  int32(1); // dimensions
  int32(1); // there may be nulls
  int32(TEXT_OID);
  int32(values.length);
  int32(1); // lower bound
  values.forEach((value, n) => {
    if (value === null) {
      int32(-1);
      return;
    }
    int32(lengths[n] ?? 0);
    at += buffer.write(value, at, "utf8");
  });
  return buffer;
}

const HEADER_BYTES = 20;
const TEXT_OID = 25;
