import { isUtf8 } from "node:buffer";

/**
 * A header's value as text.
 *
 * @param value what the broker's client made of it: text, bytes, number, truth value, date, table or list
 * @returns the text; bytes that are no UTF-8 in base64; a table or list as JSON; null when there is no value
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

/** What JSON has no form for stands as text within a table, too; `Buffer` has a `toJSON` of its own, which came first. */
function plain(this: unknown, name: string, value: unknown): unknown {
  const original = (this as Record<string, unknown>)[name];
  return typeof original === "bigint" || original instanceof Uint8Array ? headerText(original) : value;
}
