import type { Msg } from "nats";
import type { BrokerMessage } from "../../../ports/source.ts";
import { messageHeaders } from "./headers.ts";
import { type StreamPlace, streamPlace } from "./place.ts";

/** What identifies a message that has no other key. */
export type IdempotencyFrom = "body" | "sequence";

/** Headers by which a stream marks that a subject's message was deleted (NATS ADR-8, ADR-43). */
const DELETION_HEADERS = ["KV-Operation", "Nats-Marker-Reason"] as const;

/**
 * A message of a stream as the intake takes it.
 *
 * The mark of a deletion has no body: like a log broker's tombstone it has none here either, and is known by its place,
 * since all of them look alike. The place has the time in it, as a stream that was deleted and made anew counts from 1
 * again.
 *
 * @param idempotencyFrom of the source
 */
export function brokerMessageOf(message: Msg, idempotencyFrom: IdempotencyFrom): BrokerMessage {
  const { data, subject, reply = "" } = message;
  const headers = messageHeaders(message);
  const place = streamPlace(reply);
  const { stream, sequence, storedAtNs } = place;
  const isDeletion = data.length === 0 && DELETION_HEADERS.some((name) => name in headers);
  return {
    body: isDeletion ? null : Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    headers,
    origin: {
      "x-nats-subject": subject,
      "x-nats-stream": stream,
      "x-nats-sequence": sequence,
      "x-nats-timestamp": timeOf(place),
    },
    streamPlace: isDeletion || idempotencyFrom === "sequence" ? `${stream}:${sequence}:${storedAtNs}` : undefined,
  };
}

function timeOf({ storedAtNs }: StreamPlace): string | null {
  const time = new Date(Number(storedAtNs) / 1_000_000);
  return Number.isNaN(time.getTime()) ? null : time.toISOString();
}
