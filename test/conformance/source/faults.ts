import { describe, expect, test } from "@jest/globals";
import { eventually } from "../../support/eventually.ts";
import { within } from "../../support/within.ts";
import type { SourceHarness } from "../source.ts";
import {
  cutOff,
  numbered,
  numbers,
  PROMPT_MS,
  range,
  type SourceBench,
  sourceBench,
  takenBy,
  taking,
  testMs,
} from "./bench.ts";

const BATCH_SIZE = 5;

/** A broker that is away, goes away or does not answer. */
export function exerciseFaults(harness: SourceHarness): void {
  describe("at a broker that fails", () => {
    const bench = sourceBench(harness);

    test(
      "starts while it is away, says what is wrong, and consumes when it comes up",
      async () => {
        await bench.fixture.send(numbered(1, 10));
        await bench.stopBroker();
        const { source, intake } = bench.create();
        await within(PROMPT_MS, "start", source.start());
        await expect(within(PROMPT_MS, "check", source.check())).rejects.toThrow(/\S/);
        await bench.startBroker();
        await takenBy([intake], 10, bench.patienceMs);
        await source.check();
      },
      testMs(harness),
    );

    test(
      "loses nothing and keeps the order when it restarts in mid-traffic",
      async () => {
        const { source, intake } = await bench.started({ batchSize: BATCH_SIZE });
        await using traffic = new Traffic(bench);
        await takenBy([intake], 25, bench.patienceMs);
        await bench.stopBroker();
        await eventually(() => expect(source.check()).rejects.toThrow(/\S/), { timeoutMs: bench.patienceMs });
        await bench.startBroker();
        const sent = await traffic.end(20);
        await takenBy([intake], sent, bench.patienceMs);
        expectInOrder(numbers(intake.taken), sent, harness);
        expect(intake.mostRunning).toBe(1);
        await source.check();
      },
      testMs(harness),
    );

    test(
      "loses nothing and keeps the order when it restarts while a take waits",
      async () => {
        const { source, intake } = await bench.started({ batchSize: BATCH_SIZE });
        intake.hold();
        await bench.fixture.send(numbered(1, 20));
        await taking(intake, bench.patienceMs);
        await bench.stopBroker();
        await bench.startBroker();
        // Sent anew when it fails: what came twice is a repeat.
        await eventually(() => bench.fixture.send(numbered(21, 40)), { timeoutMs: bench.patienceMs });
        expect(intake.offered).toHaveLength(1);
        intake.release();
        await takenBy([intake], 40, bench.patienceMs);
        expectInOrder(numbers(intake.taken), 40, harness);
        expect(intake.mostRunning).toBe(1);
        await eventually(() => source.check(), { timeoutMs: bench.patienceMs });
      },
      testMs(harness),
    );

    test.each(["unanswered", "unreachable"] as const)(
      "starts and stops at an address that is %s, and check says so meanwhile",
      async (at) => {
        const { source, intake } = bench.create({ at });
        await within(PROMPT_MS, "start", source.start());
        await expect(within(PROMPT_MS, "check", source.check())).rejects.toThrow(/\S/);
        await cutOff({ source, intake });
        expect(intake.offered).toEqual([]);
      },
      testMs(harness),
    );
  });
}

/** Sends the numbers from 1 on, each by itself, until it is ended. */
class Traffic implements AsyncDisposable {
  readonly #bench: SourceBench;
  readonly #sending: Promise<void>;
  #sent = 0;
  #last = Number.POSITIVE_INFINITY;

  constructor(bench: SourceBench) {
    this.#bench = bench;
    this.#sending = this.#send();
  }

  /**
   * Sends some more and no others.
   *
   * @param more how many
   * @returns the last number that was sent
   */
  async end(more: number): Promise<number> {
    this.#last = this.#sent + more;
    await this.#sending;
    return this.#last;
  }

  /** Gives up what is not sent. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#last = 0;
    await this.#sending;
  }

  /** Sends each number again until the broker has it: it may be there twice, yet the next is sent only after it. */
  async #send(): Promise<void> {
    const { fixture, patienceMs } = this.#bench;
    while (this.#sent < this.#last) {
      const next = this.#sent + 1;
      // A broker that stops may take a message and never answer.
      const send = () => within(patienceMs, "an answer of the broker", fixture.send(numbered(next, next)));
      await eventually(() => (next > this.#last ? undefined : send()), {
        timeoutMs: 3 * patienceMs,
        label: `sending the message ${next}`,
      });
      this.#sent = next;
    }
  }
}

/** Every number came, and for the first time only after all smaller ones: except numbers that may be late. */
function expectInOrder(taken: readonly number[], to: number, { redeliversLater = false }: SourceHarness): void {
  const first = [...new Set(taken)];
  expect(first.toSorted((a, b) => a - b)).toEqual(range(1, to));
  let largest = 0;
  const late = first.filter((number) => {
    largest = Math.max(largest, number);
    return number < largest;
  });
  if (redeliversLater) expect(late.length).toBeLessThanOrEqual(2 * BATCH_SIZE);
  else expect(late).toEqual([]);
}
