import { randomUUID } from "node:crypto";
import { digest } from "./attributes.ts";

/** Has a column of its own, and so is not stored among the headers. */
export const CORRELATION_HEADER = "X-Correlation-Id";

const MAX_CORRELATION_ID_LENGTH = 255;
/** What can stand in a response header as it is: no control characters. Bytes above 0x7f are latin1 text. */
const CORRELATION_ID = /^[\x20-\x7e\x80-\xff]+$/;

/**
 * The correlation id of a message.
 *
 * @param received what its sender gave: the header `X-Correlation-Id`, or a broker's own property
 * @returns the received id; `sha256:` and the digest of its UTF-8 text for one that no column or header should hold (longer than 255 characters,
 *   control characters, characters beyond latin1), so that who knows the id finds the message; a new UUID when there is none
 */
export function correlationId(received: string | readonly string[] | undefined): string {
  if (typeof received !== "string" || received === "") return randomUUID();
  if (received.length <= MAX_CORRELATION_ID_LENGTH && CORRELATION_ID.test(received)) return received;
  return digest(Buffer.from(received));
}
