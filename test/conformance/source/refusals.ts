import { describe, expect, test } from "@jest/globals";
import { eventually } from "../../support/eventually.ts";
import type { SourceHarness } from "../source.ts";
import { allAcknowledged, noCutoff, numbered, numbers, range, sourceBench, takenBy, testMs } from "./bench.ts";

/** Messages that the inbox table refuses in every form. */
export function exerciseRefusals(harness: SourceHarness): void {
  describe("messages that the inbox table refuses", () => {
    const bench = sourceBench(harness);
    const LAST = 60;
    /** Fewer than a batch: RabbitMQ sends no more than its prefetch. */
    const isRefused = (number: number) => number % 20 === 5;

    test(
      "stay unacknowledged, hold up no others unless the broker keeps an order, and are taken when the table takes them",
      async () => {
        const { intake } = await bench.started({ batchSize: 5 });
        intake.refuses = ({ body }) => isRefused(Number(body));
        await bench.fixture.send(numbered(1, LAST));
        const others = harness.oneReaderAtATime ? range(1, 4) : range(1, LAST).filter((number) => !isRefused(number));
        await eventually(() => expect(numbers(intake.taken)).toEqual(expect.arrayContaining(others)), {
          timeoutMs: bench.patienceMs,
        });
        // Offered again, and still there.
        await eventually(
          () => expect(numbers(intake.seen).filter((number) => number === 5).length).toBeGreaterThan(2),
          {
            timeoutMs: bench.patienceMs,
          },
        );
        expect(numbers(intake.taken).some(isRefused)).toBe(false);
        if (bench.fixture.unacknowledged !== undefined)
          expect(await bench.fixture.unacknowledged()).toBeGreaterThanOrEqual(LAST / 20);
        intake.refuses = () => false;
        await takenBy([intake], LAST, bench.patienceMs);
        await allAcknowledged(bench.fixture, bench.patienceMs);
      },
      testMs(harness),
    );

    test(
      "go back to the broker with a stop",
      async () => {
        const first = await bench.started({ batchSize: 5 });
        first.intake.refuses = ({ body }) => isRefused(Number(body));
        await bench.fixture.send(numbered(1, 10));
        await eventually(() => expect(numbers(first.intake.taken)).toEqual(expect.arrayContaining([1, 2, 3, 4])), {
          timeoutMs: bench.patienceMs,
        });
        await eventually(() => expect(numbers(first.intake.seen)).toContain(5), { timeoutMs: bench.patienceMs });
        await first.source.stop(noCutoff());
        const next = await bench.started({ batchSize: 5 });
        await takenBy([first.intake, next.intake], 10, bench.patienceMs);
      },
      testMs(harness),
    );
  });
}
