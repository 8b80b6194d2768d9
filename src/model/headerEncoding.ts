// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a header cannot carry
const CONTROL = /[\u0000-\u0008\u000a-\u001f\u007f]/;
/** Receivers take blanks around a value off, and could take one text for the other. */
const BLANK_AROUND = /^[\t ]|[\t ]$/;
const ENCODED = "UTF-8''";
/** Headers that tell messages apart: two values must never become one. */
const IDENTIFYING: ReadonlySet<string> = new Set(["x-idempotency-key", "x-source"]);

/**
 * A header value as a line of text can carry it. One with a control character (a line break would begin another header)
 * goes as an extended value of RFC 8187: `UTF-8''` and the percent-encoded text. `x-idempotency-key` and `x-source` go
 * so, too, when blanks stand around them or when they begin like an encoded value: whoever compares the encoded texts
 * compares the values. Any other value stays as it is.
 *
 * @param lowerCaseName the header's name
 */
export function encodedHeaderValue(lowerCaseName: string, value: string): string {
  if (CONTROL.test(value)) return extended(value);
  if (!IDENTIFYING.has(lowerCaseName)) return value;
  return BLANK_AROUND.test(value) || value.startsWith(ENCODED) ? extended(value) : value;
}

/**
 * A header name as the wire can carry it: characters that it cannot are percent-encoded UTF-8.
 *
 * @param allowed matches one character that may stand in a name
 * @returns null for the empty name, which nothing can carry: that header is left out
 */
export function encodedHeaderName(name: string, allowed: RegExp): string | null {
  if (name === "") return null;
  return Array.from(name, (character) => (allowed.test(character) ? character : percentEncoded(character))).join("");
}

function extended(value: string): string {
  return (
    ENCODED +
    Array.from(value, (character) => (/[\w.~-]/.test(character) ? character : percentEncoded(character))).join("")
  );
}

function percentEncoded(text: string): string {
  return Array.from(Buffer.from(text), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
}
