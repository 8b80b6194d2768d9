import { PARKED_UNTIL } from "../../../model/rows.ts";

/**
 * How values travel. A session's settings (`DateStyle`, `TimeZone`, `extra_float_digits`) change how the server writes
 * them. Array parameters are binary (`array_recv`): dimensions, null flag, element type, then length and bytes of each
 * element.
 */

/**
 * A time as whole ms since 1970 (`bigint`): the driver reads times as text in one date style only, and a database or a
 * user may set another. NULL for NULL and `infinity`. In floating point, a third of the cost of `numeric`; half a
 * microsecond compensates its rounding.
 *
 * @param time an expression of a time type
 */
export function msOf(time: string): string {
  return `CASE WHEN isfinite(${time}) THEN floor(date_part('epoch', (${time})::timestamptz) * 1000 + 0.0005)::bigint END`;
}

/** `scheduled_at` of a parked row. A column without a time zone holds it in the session's. */
export const PARKED_AT = `timestamptz '${PARKED_UNTIL}'`;

/** Values of array parameters, each of one property of some rows. @param properties by the name of the parameter */
export function arraysOf<T, Name extends string>(rows: readonly T[], properties: Readonly<Record<Name, keyof T>>) {
  const arrays = Object.entries<keyof T>(properties).map(([name, property]) => [
    name,
    rows.map((row) => row[property]),
  ]);
  return Object.fromEntries(arrays) as Record<Name, T[keyof T][]>;
}

/**
 * Encodes a `text[]` parameter. The driver would write one escaped text, which the server parses character by
 * character: with batches of 20 rows of 1 kB, a third of the cost of an insert.
 *
 * @param values at least one element
 */
export function textArray(values: readonly (string | null)[]): Buffer {
  let total = HEADER_BYTES;
  // Plain loops: this runs for every column of every row that comes in.
  for (const value of values) total += LENGTH_BYTES + (value === null ? 0 : Buffer.byteLength(value));
  const buffer = arrayOf(TEXT_OID, values.length, total);
  let at = HEADER_BYTES;
  for (const value of values) {
    const length = value === null ? -1 : buffer.write(value, at + LENGTH_BYTES, "utf8");
    buffer.writeInt32BE(length, at);
    at += LENGTH_BYTES + Math.max(0, length);
  }
  return buffer;
}

/** Encodes a `uuid[]` parameter: half of its size as text, and nothing to parse. @throws TypeError for other text */
export function uuidArray(values: readonly string[]): Buffer {
  const buffer = arrayOf(UUID_OID, values.length, HEADER_BYTES + values.length * (LENGTH_BYTES + UUID_BYTES));
  let at = HEADER_BYTES;
  for (const value of values) {
    buffer.writeInt32BE(UUID_BYTES, at);
    const digits = value.replaceAll("-", "");
    if (digits.length !== 2 * UUID_BYTES || buffer.write(digits, at + LENGTH_BYTES, "hex") !== UUID_BYTES) {
      throw new TypeError(`${JSON.stringify(value)} is not a UUID`);
    }
    at += LENGTH_BYTES + UUID_BYTES;
  }
  return buffer;
}

/** A buffer that begins as an array of one dimension does. */
function arrayOf(elementType: number, length: number, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(bytes);
  buffer.writeInt32BE(1, 0); // dimensions
  buffer.writeInt32BE(1, 4); // there may be nulls
  buffer.writeInt32BE(elementType, 8);
  buffer.writeInt32BE(length, 12);
  buffer.writeInt32BE(1, 16); // lower bound
  return buffer;
}

const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
const UUID_BYTES = 16;
const TEXT_OID = 25;
const UUID_OID = 2950;
