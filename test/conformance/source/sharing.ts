import { describe, expect, test } from "@jest/globals";
import { eventually } from "../../support/eventually.ts";
import type { SourceHarness } from "../source.ts";
import { cutOff, noCutoff, numbered, numbers, sourceBench, takenBy, taking, testMs } from "./bench.ts";

/** Two sources at one queue, topic or stream: two replicas. */
export function exerciseSharing(harness: SourceHarness): void {
  describe("two sources", () => {
    const bench = sourceBench(harness);

    test(
      "share the messages without losing one, and when one stops the other takes over",
      async () => {
        const first = await bench.started({ batchSize: 5 });
        const second = await bench.started({ batchSize: 5 });
        for (let from = 1; from <= 100; from += 10) await bench.fixture.send(numbered(from, from + 9));
        await takenBy([first.intake, second.intake], 100, bench.patienceMs);
        // The reading source leaves: if one reads at a time, the other has to take its place.
        const [leaving, staying] =
          first.intake.taken.length >= second.intake.taken.length ? [first, second] : [second, first];
        const before = leaving.intake.taken.length;
        await leaving.source.stop(noCutoff());
        await bench.fixture.send(numbered(101, 150));
        await takenBy([first.intake, second.intake], 150, bench.patienceMs);
        expect(leaving.intake.taken).toHaveLength(before);
        await staying.source.check();
      },
      testMs(harness),
    );

    if (harness.oneReaderAtATime !== true) {
      test(
        "read beside each other: a source whose take waits holds back at most two batches, which go to the other when it is cut off",
        async () => {
          const slow = await bench.started({ batchSize: 5 });
          slow.intake.hold();
          await bench.fixture.send(numbered(1, 50));
          await taking(slow.intake, bench.patienceMs);
          const other = await bench.started({ batchSize: 5 });
          await eventually(() => expect(new Set(numbers(other.intake.taken)).size).toBeGreaterThanOrEqual(40), {
            timeoutMs: bench.patienceMs,
          });
          await cutOff(slow);
          await takenBy([other.intake], 50, bench.patienceMs);
        },
        testMs(harness),
      );
    }
  });
}
