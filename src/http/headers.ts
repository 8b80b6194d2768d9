import { randomUUID } from "node:crypto";
import type { Headers } from "../model/rows.ts";

/** Has a column of its own, and so is not stored among the headers. */
export const CORRELATION_HEADER = "X-Correlation-Id";

const MAX_CORRELATION_ID_LENGTH = 255;
/** What can stand in a response header as it is: no control characters. Bytes above 0x7f are latin1 text. */
const CORRELATION_ID = /^[\x20-\x7e\x80-\xff]+$/;

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

/**
 * The correlation id of a message.
 *
 * @param received the request's `X-Correlation-Id`
 * @returns the received id, or a new UUID when there is none, or one that no column or response header should hold
 *   (empty, longer than 255 characters, control characters)
 */
export function correlationId(received: string | readonly string[] | undefined): string {
  return typeof received === "string" && received.length <= MAX_CORRELATION_ID_LENGTH && CORRELATION_ID.test(received)
    ? received
    : randomUUID();
}
