import type { Headers, MessageId } from "../../../model/rows.ts";
import type { RelayRequest } from "../../../ports/store.ts";

/** What the relay reads of an inbox row to make its outbox row; the payload goes from table to table. */
export interface ReceivedRow {
  readonly id: MessageId;
  readonly source: string;
  readonly eventType: string | null;
  readonly idempotencyKey: string;
  readonly correlationId: string | null;
  readonly headers: Headers;
}

/**
 * The topic of a received message.
 *
 * @param pieces the source's topic template around each `{{ eventType }}`
 * @param eventType null counts as an empty text
 * @returns the rendered template without white space around it; empty when nothing else is left
 */
export function renderTopic(pieces: readonly string[], eventType: string | null): string {
  return pieces.join(eventType ?? "").trim();
}

/**
 * The headers that a received message takes into the outbox: its own without the dropped ones and without a `content-type` that
 * does not name JSON, and those that identify it, which win over received ones of the same name.
 *
 * @param dropped names and prefixes in lower case; received names match in any letter case
 */
export function renderHeaders(row: ReceivedRow, dropped: RelayRequest["droppedHeaders"]): Headers {
  const kept = Object.entries(row.headers).filter(([name, value]) => travels(name.toLowerCase(), value, dropped));
  const added = [
    ["x-correlation-id", row.correlationId],
    ["x-inbox-id", row.id],
    ["x-source", row.source],
    ["x-idempotency-key", row.idempotencyKey],
  ].filter(([, value]) => value !== null);
  // From entries, and not by assignment: a header may be called `__proto__`.
  return Object.fromEntries([...kept, ...added]);
}

function travels(lowerCaseName: string, value: string, dropped: RelayRequest["droppedHeaders"]): boolean {
  if (lowerCaseName === "content-type" && !/[/+]json/i.test(value)) return false;
  return !dropped.names.includes(lowerCaseName) && !dropped.prefixes.some((prefix) => lowerCaseName.startsWith(prefix));
}
