import type { Headers } from "../model/rows.ts";
import type { Service } from "./runtime.ts";

/** One message as a broker handed it over. */
export interface BrokerMessage {
  /** The body's bytes; null for a message that has none (a log broker's tombstone). */
  readonly body: Buffer | null;
  /** Header values as text, names in the letter case in which they came. */
  readonly headers: Headers;
  /** The AMQP `messageId` property. */
  readonly messageId?: string | undefined;
  /** The AMQP `correlationId` property. */
  readonly correlationId?: string | undefined;
  /** The record key of a log-broker message. */
  readonly recordKey?: string | undefined;
}

/** Takes what a broker source has read. */
export interface Intake {
  /**
   * Takes messages in the order of their arrival; resolves after the commit, when each of them is stored, known already, stored as a dead
   * row, or filtered out: all of them may then be acknowledged. While the database does not take them it waits and tries again: whoever awaits this
   * reads nothing more meanwhile. No message makes it fail. Call it for one batch of a queue or partition after the other, so that their order is kept.
   *
   * @param signal ends the waiting; an insert under way still ends
   * @throws the signal's reason when it aborted before everything was stored: none of the messages may be acknowledged
   */
  take(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<void>;
}

/**
 * Consumes from one broker and hands everything to its `Intake`; acknowledges a message only after `take` has resolved for it.
 *
 * `start` does not wait for the broker: one that is away, refuses the credentials or lacks the queue or stream is tried again with
 * backoff and jitter until it serves, and is a fault of `check` meanwhile. `stop` reads no more, aborts the signal of a running `take` and lets it
 * end, acknowledges what it took, and disconnects; when `cutoff` aborts it disconnects at once. What was not acknowledged comes again.
 */
export interface Source extends Service {
  readonly kind: "rabbitmq" | "kafka" | "nats";
  /**
   * Resolves while the source consumes.
   *
   * @throws Error that says what is wrong and what to do, without any credential
   */
  check(): Promise<void>;
}
