import { isUtf8 } from "node:buffer";
import type { Headers } from "../model/rows.ts";

/**
 * The received headers as one text a name.
 *
 * @param raw names and values in turn, as `IncomingMessage.rawHeaders` holds them
 * @param omits tells by a name in lower case whether to leave it out
 * @returns names in the letter case in which they came first; the values of a repeated name joined with `, ` (RFC 9110,
 *   section 5.3). Without a prototype, so that `__proto__` is a name like any other.
 */
export function receivedHeaders(raw: readonly string[], omits: (name: string) => boolean): Headers {
  const headers: Record<string, string> = Object.create(null);
  const firstNames = new Map<string, string>();
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] ?? "";
    const value = headerText(raw[i + 1] ?? "");
    const lowerCaseName = name.toLowerCase();
    if (omits(lowerCaseName)) continue;
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

const ASCII = /^[\t\x20-\x7e]*$/;
const WIDE = /[\u0100-\uffff]/;

/**
 * The text of a header value. Node.js gives each byte as a character; most senders mean UTF-8, and whatever is none is Latin-1.
 *
 * @param value as Node.js gives it
 */
export function headerText(value: string): string {
  if (ASCII.test(value) || WIDE.test(value)) return value;
  const bytes = Buffer.from(value, "latin1");
  return isUtf8(bytes) ? bytes.toString("utf8") : value;
}
