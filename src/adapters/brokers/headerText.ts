import { isUtf8 } from "node:buffer";

/**
 * A header's value as text.
 *
 * @param value as read by the broker's client: text, bytes, number, boolean, date, table or list
 * @returns the text; bytes that are not UTF-8 as base64; a table or list as JSON; null without a value
 */
export function headerText(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "string") return value;
  if (value instanceof Uint8Array) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return bytes.toString(isUtf8(bytes) ? "utf8" : "base64");
  }
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  return typeof value === "object" ? JSON.stringify(value, plain) : String(value);
}

/** Values without a JSON form become text, within a table too. `Buffer` has a `toJSON` of its own, which came first. */
function plain(this: unknown, name: string, value: unknown): unknown {
  const original = (this as Record<string, unknown>)[name];
  return typeof original === "bigint" || original instanceof Uint8Array ? headerText(original) : value;
}
