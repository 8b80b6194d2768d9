import type { Headers } from "../model/rows.ts";

/**
 * The received headers as one text a name.
 *
 * @param raw names and values in turn, as `IncomingMessage.rawHeaders` holds them
 * @param omitted lower-case names to leave out
 * @returns names in the letter case in which they came first; the values of a repeated name joined with `, ` (RFC 9110,
 *   section 5.3). Without a prototype, so that `__proto__` is a name like any other.
 */
export function receivedHeaders(raw: readonly string[], omitted: ReadonlySet<string>): Headers {
  const headers: Record<string, string> = Object.create(null);
  const firstNames = new Map<string, string>();
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] ?? "";
    const value = raw[i + 1] ?? "";
    const lowerCaseName = name.toLowerCase();
    if (omitted.has(lowerCaseName)) continue;
    const firstName = firstNames.get(lowerCaseName);
    if (firstName === undefined) {
      firstNames.set(lowerCaseName, name);
      headers[name] = value;
    } else {
      headers[firstName] += `, ${value}`;
    }
  }
  return headers;
}
