import { describe } from "@jest/globals";
import type { Log } from "../../src/ports/runtime.ts";
import type { Intake, Source } from "../../src/ports/source.ts";
import { exerciseConsumption } from "./source/consumption.ts";
import { exerciseCredentials } from "./source/credentials.ts";
import { exerciseFaults } from "./source/faults.ts";
import { exerciseRefusals } from "./source/refusals.ts";
import { exerciseSharing } from "./source/sharing.ts";
import { exerciseStop } from "./source/stop.ts";

/** A message as its producer sends it. */
export interface ProducedMessage {
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface SourceOptions {
  /** Most messages read at a time (prefetch, poll or batch size). Default: the kind's own. */
  readonly batchSize?: number;
  /** `unanswered`: a server that accepts connections and never says anything; `unreachable`: a port where nobody listens. */
  readonly at?: "broker" | "unanswered" | "unreachable";
  readonly wrongCredentials?: boolean;
  /** The log of the source; default: none. A source writes a line at each failed try to reach its broker, at whatever level. */
  readonly log?: Log;
}

/** One kind of source with a broker, and one queue, partition or stream of its own there. */
export interface SourceFixture extends AsyncDisposable {
  /** A source that reads the fixture's queue, topic or stream. The fixture stops it in the end. Two of them share the messages. */
  create(intake: Intake, options?: SourceOptions): Source;
  /**
   * Sends messages in this order; resolves when the broker has them, also after a restart. While the broker is away it rejects, or waits until it is
   * back; a message whose sending rejected is sent again by the suite.
   */
  send(messages: readonly ProducedMessage[]): Promise<void>;
  stopBroker(): Promise<void>;
  /** Starts the broker again, at the same place with the same data. */
  startBroker(): Promise<void>;
  /** The password that a source with `wrongCredentials` shows; it must appear nowhere. Undefined if the fixture's broker asks for none. */
  readonly wrongPassword: string | undefined;
  /**
   * The number of messages in the broker that are not acknowledged, handed out or not, if it can count them (a group's lag, a durable consumer's pending and
   * unacknowledged messages, a queue's ready and unacknowledged ones).
   */
  unacknowledged?(): Promise<number>;
}

export interface SourceHarness {
  readonly name: string;
  /** A fixture for one test, with a running broker. */
  start(): Promise<SourceFixture>;
  /** Time that a source of this kind may take to consume again after a fault (a group's session included), in ms. */
  readonly reconnectMs: number;
  /** True if one source reads the fixture's partition and the others wait for it; false or left out if several read beside each other. */
  readonly oneReaderAtATime?: boolean;
  /**
   * True if the broker redelivers what was on its way to a broken connection only after a wait, and later messages meanwhile: order is then kept but for two
   * batches at each break. False or left out if it redelivers first.
   */
  readonly redeliversLater?: boolean;
}

/** The contract of `Source`, to be kept by every kind. */
export function exerciseSource(harness: SourceHarness): void {
  describe(`the source ${harness.name}`, () => {
    exerciseConsumption(harness);
    exerciseStop(harness);
    exerciseSharing(harness);
    exerciseFaults(harness);
    exerciseRefusals(harness);
    exerciseCredentials(harness);
  });
}
