import type { Headers, MessageId } from "../../../model/rows.ts";
import type { RelayRequest } from "../../../ports/store.ts";

/** What the headers of an outbox row are made of. */
export interface ReceivedRow {
  readonly id: MessageId;
  readonly source: string;
  readonly eventType: string | null;
  readonly idempotencyKey: string;
  readonly correlationId: string | null;
  readonly headers: Headers;
}

/**
 * The headers of a received message in the outbox: its own without the dropped ones and without a `content-type` other
 * than JSON, and those that identify it, which win over received ones of the same name.
 *
 * @param dropped names and prefixes in lower case; received names match in any letter case
 */
export function renderHeaders(row: ReceivedRow, dropped: RelayRequest["droppedHeaders"]): Headers {
  const kept = Object.entries(row.headers).filter(([name, value]) => travels(lowerCase(name), value, dropped));
  const added = [
    ["x-correlation-id", row.correlationId],
    ["x-inbox-id", row.id],
    ["x-source", row.source],
    ["x-idempotency-key", row.idempotencyKey],
  ].filter(([, value]) => value !== null);
  // From entries, and not by assignment: a header may be called `__proto__`.
  return Object.fromEntries([...kept, ...added]);
}

/** Of ASCII alone, as header names are compared (RFC 9110, section 5.1), and the same in every database. */
function lowerCase(name: string): string {
  return NOT_ASCII.test(name) ? name.replace(/[A-Z]+/g, (some) => some.toLowerCase()) : name.toLowerCase();
}

const NOT_ASCII = /[^\p{ASCII}]/u;

function travels(lowerCaseName: string, value: string, dropped: RelayRequest["droppedHeaders"]): boolean {
  if (lowerCaseName === "content-type" && !/[/+]json/i.test(value)) return false;
  return !dropped.names.includes(lowerCaseName) && !dropped.prefixes.some((prefix) => lowerCaseName.startsWith(prefix));
}
