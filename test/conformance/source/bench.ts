import { afterEach, beforeEach, expect } from "@jest/globals";
import { StoppingError } from "../../../src/model/errors.ts";
import type { BrokerMessage, Source } from "../../../src/ports/source.ts";
import { START_TIMEOUT_MS } from "../../support/brokers/ready.ts";
import { eventually } from "../../support/eventually.ts";
import { RecordingIntake } from "../../support/recordingIntake.ts";
import { within } from "../../support/within.ts";
import type { ProducedMessage, SourceFixture, SourceHarness, SourceOptions } from "../source.ts";

/** Longest time that a call may take which does not depend on a broker, in ms. */
export const PROMPT_MS = 5000;

/** A signal that never aborts: as much time for a graceful stop as it takes. */
export const noCutoff = (): AbortSignal => new AbortController().signal;

/** A source with the intake it fills. */
export interface Reader {
  readonly source: Source;
  readonly intake: RecordingIntake;
}

/** What a test of sources works with. */
export interface SourceBench {
  readonly fixture: SourceFixture;
  /** How long to wait for messages: also for messages that a broken source had, in ms. */
  readonly patienceMs: number;
  create(options?: SourceOptions): Reader;
  /** A source that consumes already. */
  started(options?: SourceOptions): Promise<Reader>;
  stopBroker(): Promise<void>;
  startBroker(): Promise<void>;
}

/** How long a test may last, in ms: some wait for several reconnections, and for a broker that takes its time to start. */
export function testMs({ reconnectMs }: SourceHarness): number {
  return 60_000 + 4 * reconnectMs;
}

/**
 * Gives each test of the `describe` block a fixture of its own, and clears it away afterwards: no intake that is held and no broker that is
 * stopped stays behind.
 */
export function sourceBench(harness: SourceHarness): SourceBench {
  let fixture: SourceFixture;
  let readers: Reader[] = [];
  let brokerStopped = false;

  beforeEach(async () => {
    readers = [];
    brokerStopped = false;
    fixture = await harness.start();
  }, START_TIMEOUT_MS);
  afterEach(async () => {
    for (const { intake } of readers) intake.release();
    if (brokerStopped) await fixture.startBroker();
    await fixture[Symbol.asyncDispose]();
  }, START_TIMEOUT_MS);

  const create = (options: SourceOptions = {}): Reader => {
    const intake = new RecordingIntake();
    const reader = { intake, source: fixture.create(intake, options) };
    readers.push(reader);
    return reader;
  };
  const patienceMs = 5000 + harness.reconnectMs;
  return {
    get fixture() {
      return fixture;
    },
    patienceMs,
    create,
    async started(options) {
      const reader = create(options);
      await reader.source.start();
      await eventually(() => reader.source.check(), { timeoutMs: patienceMs, label: "the source's check" });
      return reader;
    },
    async stopBroker() {
      brokerStopped = true;
      await fixture.stopBroker();
    },
    async startBroker() {
      await fixture.startBroker();
      brokerStopped = false;
    },
  };
}

/** Messages whose bodies are the numbers from `from` to `to`, both included. */
export function numbered(from: number, to: number): ProducedMessage[] {
  return Array.from({ length: to - from + 1 }, (_, index) => ({ body: String(from + index) }));
}

/** The numbers from `from` to `to`, both included. */
export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

/** The bodies of numbered messages. */
export function numbers(messages: readonly BrokerMessage[]): number[] {
  return messages.map(({ body }) => Number(body));
}

/**
 * Waits until each message was taken by one of the intakes, be it twice.
 *
 * @param to the number of the last message
 * @param from the number of the first message
 */
export async function takenBy(
  intakes: readonly RecordingIntake[],
  to: number,
  timeoutMs: number,
  from = 1,
): Promise<void> {
  await eventually(
    () => {
      const taken = new Set(intakes.flatMap((intake) => numbers(intake.taken)));
      const missing = range(from, to).filter((number) => !taken.has(number));
      if (missing.length > 0) throw new Error(`not taken: ${missing.length}, the first is ${missing[0]}`);
    },
    { timeoutMs, label: `taking the messages ${from} to ${to}` },
  );
}

/** Stops a reader with no time left for a graceful stop. */
export async function cutOff({ source }: Reader): Promise<void> {
  const cutoff = new AbortController();
  const stopped = source.stop(cutoff.signal);
  cutoff.abort(new StoppingError());
  await within(PROMPT_MS, "a stop that is cut off", stopped);
}

/** Waits until a `take` of the intake runs. */
export async function taking(intake: RecordingIntake, timeoutMs: number): Promise<void> {
  await eventually(() => intake.running > 0, { timeoutMs, label: "the source's call of take" });
}

/** Waits until the broker says that it has no message left that is not acknowledged; returns at once if it cannot count them. */
export async function allAcknowledged(fixture: SourceFixture, timeoutMs: number): Promise<void> {
  await eventually(async () => expect((await fixture.unacknowledged?.()) ?? 0).toBe(0), { timeoutMs });
}
