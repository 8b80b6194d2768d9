import type { Headers } from "../model/rows.ts";
import type { Service } from "./runtime.ts";

/** One message as a broker handed it over. */
export interface BrokerMessage {
  /** The body's bytes; null for a message that has none (Kafka's tombstone). */
  readonly body: Buffer | null;
  /** Header values as text, names in the letter case in which they came. */
  readonly headers: Headers;
  /**
   * Where the broker had the message and what it says of it, as headers by name in lower case. They replace headers of
   * these names in any letter case; null where there is nothing to say, so that no sender can say it instead.
   */
  readonly origin?: Readonly<Record<string, string | null>> | undefined;
  /** Why a part of the message cannot be read: it becomes a dead row. `origin` says where the unread bytes are. */
  readonly undecodable?: string | undefined;
  /** The AMQP `messageId` property. */
  readonly messageId?: string | undefined;
  /** The AMQP `correlationId` property. */
  readonly correlationId?: string | undefined;
  /** The record key of a Kafka message. */
  readonly recordKey?: string | undefined;
  /** The place in a stream that identifies a message without any other key, where the source is to take it for one. */
  readonly streamPlace?: string | undefined;
}

/** Takes what a broker source has read. */
export interface Intake {
  /**
   * Takes messages in the order of their arrival; resolves after the commit, when each of them is stored, known
   * already, stored as a dead row, or filtered out, and may be acknowledged, but for those that it returns. While the
   * database does not take them it waits and tries again: whoever awaits this reads nothing more meanwhile. No message
   * makes it fail. Call it for one batch of a queue or partition after the other, so that their order is kept.
   *
   * @param signal ends the waiting; an insert under way still ends
   * @returns the messages, among those given, that the inbox table refuses in every form, also as a dead row: they must
   *   not be acknowledged, and are to be given again after a while, without holding up others
   * @throws the signal's reason when it aborted before everything was stored: none of the messages may be acknowledged
   */
  take(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly BrokerMessage[]>;
}

/**
 * Consumes from one broker and hands everything to its `Intake`; acknowledges a message only after `take` has resolved for it.
 *
 * `start` does not wait for the broker: one that is away, refuses the credentials or lacks the queue or stream is tried again with
 * backoff and jitter until it serves, and is a fault of `check` meanwhile. `stop` reads no more, aborts the signal of a running `take` and lets it
 * end, acknowledges what it took, and disconnects; when `cutoff` aborts it disconnects at once. What was not acknowledged comes again.
 */
export interface Source extends Service {
  /**
   * Resolves while the source consumes.
   *
   * @throws Error that says what is wrong and what to do, without any credential
   */
  check(): Promise<void>;
}
