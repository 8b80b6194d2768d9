import { errorText } from "../../../model/errors.ts";
import type { BrokerMessage } from "../../../ports/source.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";

/** A message of the stream, and the subject on which it is acknowledged. */
export interface Delivery {
  readonly acknowledgeTo: string;
  readonly message: BrokerMessage;
}

/** The messages fetched and not acknowledged: those that are being taken, and behind them those that wait. */
export class FetchBuffer {
  readonly #batchSize: number;
  #taking: readonly Delivery[] = [];
  #waiting: Delivery[] = [];
  #wake: () => void = () => {};
  #closed = false;

  constructor(batchSize: number) {
    this.#batchSize = batchSize;
  }

  /** No more than one batch is in the buffer: another one fits. */
  get hasRoom(): boolean {
    return this.#taking.length + this.#waiting.length <= this.#batchSize;
  }

  get all(): readonly Delivery[] {
    return [...this.#taking, ...this.#waiting];
  }

  add(delivery: Delivery): void {
    this.#waiting.push(delivery);
    this.#wake();
  }

  /** Waits for messages and returns the next batch, in the order of arrival; empty after `close`. The batch counts as being taken until `done`. */
  async next(): Promise<readonly Delivery[]> {
    if (this.#waiting.length === 0 && !this.#closed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#closed) return [];
    this.#taking = this.#waiting.splice(0, this.#batchSize);
    return this.#taking;
  }

  /** The batch that `next` returned is taken. */
  done(): void {
    this.#taking = [];
  }

  /** The batch that `next` returned was not taken: it waits again, in front. */
  putBack(): void {
    this.#waiting = [...this.#taking, ...this.#waiting];
    this.#taking = [];
  }

  /** `next` returns no batch any more. */
  close(): void {
    this.#closed = true;
    this.#wake();
  }

  /** Lets go of the messages that wait, and returns them. */
  release(): readonly Delivery[] {
    return this.#waiting.splice(0);
  }
}

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
 * @param held what is in the buffer, or taken and still to be acknowledged
 * @returns how many were recalled
 * @throws Error when the server does not answer
 */
export async function redeliverLost(
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

/** Where a message lies in its stream. */
export interface StreamPlace {
  readonly stream: string;
  readonly sequence: string;
  /** When the stream stored it, in ns since the Unix epoch. */
  readonly storedAtNs: string;
}

/**
 * Reads the subject on which a delivery is acknowledged (NATS ADR-15):
 * `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>`, or with domain and account
 * in front of the stream.
 */
export function streamPlace(acknowledgeTo: string): StreamPlace {
  const tokens = acknowledgeTo.split(".");
  const first = tokens.length >= 11 ? 4 : 2;
  return {
    stream: tokens[first] ?? "",
    sequence: tokens[first + 3] ?? "",
    storedAtNs: tokens[first + 5] ?? "",
  };
}
