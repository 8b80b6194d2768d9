/**
 * Encodes a `uuid[]` parameter in PostgreSQL's binary array format (`array_recv`), a third of its size as a text, which the driver would
 * have to make and the server to take apart.
 *
 * @param values at least one UUID, as text with hyphens
 */
export function uuidArray(values: readonly string[]): Buffer {
  const buffer = Buffer.allocUnsafe(HEADER_BYTES + values.length * (4 + UUID_BYTES));
  buffer.writeInt32BE(1, 0); // dimensions
  buffer.writeInt32BE(0, 4); // no nulls
  buffer.writeInt32BE(UUID_OID, 8);
  buffer.writeInt32BE(values.length, 12);
  buffer.writeInt32BE(1, 16); // lower bound
  let at = HEADER_BYTES;
  for (const value of values) {
    buffer.writeInt32BE(UUID_BYTES, at);
    if (buffer.write(value.replaceAll("-", ""), at + 4, "hex") !== UUID_BYTES) {
      throw new TypeError(`${JSON.stringify(value)} is no UUID`);
    }
    at += 4 + UUID_BYTES;
  }
  return buffer;
}

const HEADER_BYTES = 20;
const UUID_BYTES = 16;
const UUID_OID = 2950;
