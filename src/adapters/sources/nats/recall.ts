import { errorText } from "../../../model/errors.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";
import type { Delivery } from "./hand.ts";
import { streamPlace } from "./place.ts";

/** How far a durable consumer has come when a session with it begins. */
export interface ConsumerProgress {
  /** Everything up to this sequence of the stream is acknowledged. */
  readonly acknowledgedTo: number;
  /** The last sequence of the stream that was delivered to anybody. */
  readonly deliveredTo: number;
  /** Number of the last delivery. */
  readonly deliveries: number;
  /** Messages that were delivered and not acknowledged. */
  readonly unacknowledged: number;
  /** Requests for messages that are open: of other replicas, while no request of ours is. */
  readonly openRequests: number;
}

/** More than any consumer of ours may have unacknowledged, unless most of a long stretch is acknowledged: then the wait is left to end. */
const MAX_RECALLED = 20_000;
const ANSWER_TIMEOUT_MS = 5000;
const NOT_TAKEN = "-NAK";

/**
 * Has the server deliver at once, and in their order, what it thinks is on its way to somebody who is gone: messages that a broken connection
 * or a killed process has swallowed. Otherwise they come when their acknowledgement wait ends, behind all that follows them, and the order of
 * arrival is lost. To be called before the first request of a session.
 *
 * Where other replicas read at the moment nothing is recalled: what is on its way may be theirs, and there is no order between replicas.
 *
 * @param held what is at hand, or taken and still to be acknowledged
 * @returns how many were recalled
 * @throws Error when the server does not answer
 */
export async function recall(
  { connection }: NatsLink,
  { stream, durable }: { readonly stream: string; readonly durable: string },
  progress: ConsumerProgress,
  held: readonly Delivery[],
): Promise<number> {
  const { acknowledgedTo, deliveredTo, deliveries, unacknowledged, openRequests } = progress;
  if (unacknowledged === 0 || openRequests > 0 || deliveredTo - acknowledgedTo > MAX_RECALLED) return 0;
  const ours = new Set(held.map(({ acknowledgeTo }) => Number(streamPlace(acknowledgeTo).sequence)));
  const lost: number[] = [];
  for (let sequence = acknowledgedTo + 1; sequence <= deliveredTo; sequence += 1) {
    if (!ours.has(sequence)) lost.push(sequence);
  }
  if (lost.length === 0) return 0;
  // The subject on which such a message is answered (NATS ADR-15); the server passes over what is acknowledged by now.
  const answerTo = (sequence: number) => `$JS.ACK.${stream}.${durable}.1.${sequence}.${deliveries}.0.0`;
  const last = lost.length - 1;
  for (const sequence of lost.slice(0, last)) connection.publish(answerTo(sequence), NOT_TAKEN);
  try {
    // Answers are worked off in their order: when this one is, the messages are in line before all that is new.
    await connection.request(answerTo(lost[last] ?? deliveredTo), NOT_TAKEN, { timeout: ANSWER_TIMEOUT_MS });
  } catch (error) {
    throw new Error(`the consumer ${durable} of the stream ${stream} does not answer: ${errorText(error)}`);
  }
  return lost.length;
}
