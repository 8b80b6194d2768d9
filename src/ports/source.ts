import type { Headers } from "../model/rows.ts";
import type { TraceContext } from "../model/traceContext.ts";
import type { Service } from "./runtime.ts";

export interface BrokerMessage {
  /** The body's bytes; null for a message that has none (Kafka's tombstone). */
  readonly body: Buffer | null;
  /** Header values as text, names in the letter case in which they came. */
  readonly headers: Headers;
  /**
   * Headers that the broker adds, by lower-case name. They replace the message's own in any letter case; null removes
   * them, so that no sender can forge one.
   */
  readonly origin?: Readonly<Record<string, string | null>> | undefined;
  /** Why a part of the message cannot be read: it becomes a dead row. `origin` locates the unread bytes. */
  readonly undecodable?: string | undefined;
  /** The span of its receipt. */
  readonly trace?: TraceContext | undefined;
  readonly messageId?: string | undefined;
  readonly correlationId?: string | undefined;
  readonly recordKey?: string | undefined;
  /** The position in a stream, which identifies a message that has no other key. */
  readonly streamPlace?: string | undefined;
  /** When it was published, as the broker says, in ms since 1970. A number that is not such a time counts as none. */
  readonly publishedAt?: number | undefined;
}

export interface Intake {
  /**
   * Takes messages in the order of their arrival; resolves after the commit, when each of them is stored, a duplicate,
   * stored as a dead row or filtered out, and may be acknowledged, except the returned ones. While the database is
   * unavailable it waits and retries: read no more meanwhile. No message makes it fail. Call it for one batch of a
   * queue or partition at a time, to keep their order.
   *
   * @param signal ends the wait; a running insert still completes
   * @returns the messages that the inbox table refuses even as dead rows: do not acknowledge them, offer them again
   *   later, and let others pass
   * @throws the signal's reason when it aborted before all were stored: acknowledge none of the messages
   */
  take(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly BrokerMessage[]>;
}

/**
 * Consumes from one broker and passes everything to its `Intake`; acknowledges a message only after `take` resolved.
 *
 * `start` does not wait for the broker: if the broker is away, refuses the credentials or lacks the queue or stream,
 * the source retries with backoff and jitter, and `check` fails meanwhile. `stop` ends reading, aborts a running
 * `take`, waits for it, acknowledges what it took, and disconnects; when `cutoff` aborts it disconnects at once. The
 * broker delivers unacknowledged messages again.
 */
export interface Source extends Service {
  /** Resolves while the source consumes. @throws Error with the problem and what to do, without credentials */
  check(): Promise<void>;
}
