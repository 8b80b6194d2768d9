import { describe, expect, test } from "@jest/globals";
import { StoppingError } from "../../../src/model/errors.ts";
import { within } from "../../support/within.ts";
import type { SourceHarness } from "../source.ts";
import {
  allAcknowledged,
  cutOff,
  noCutoff,
  numbered,
  numbers,
  PROMPT_MS,
  range,
  sourceBench,
  takenBy,
  taking,
  testMs,
} from "./bench.ts";

/** What a source leaves behind. */
export function exerciseStop(harness: SourceHarness): void {
  describe("stopping", () => {
    const bench = sourceBench(harness);

    test(
      "does not leave to the next source what was taken",
      async () => {
        const first = await bench.started();
        await bench.fixture.send(numbered(1, 50));
        await takenBy([first.intake], 50, bench.patienceMs);
        await first.source.stop(noCutoff());
        await bench.fixture.send(numbered(51, 51));
        const next = await bench.started();
        await takenBy([first.intake, next.intake], 51, bench.patienceMs);
        await allAcknowledged(bench.fixture, bench.patienceMs);
        expect(numbers(next.intake.taken)).toEqual([51]);
      },
      testMs(harness),
    );

    test(
      "waits for the take that runs and acknowledges what it took, takes nothing more, and leaves the rest to the next source",
      async () => {
        const first = await bench.started({ batchSize: 5 });
        first.intake.hold();
        await bench.fixture.send(numbered(1, 20));
        await taking(first.intake, bench.patienceMs);
        let stopped = false;
        const stop = first.source.stop(noCutoff()).then(() => {
          stopped = true;
        });
        // Goes to the broker and back: time enough for a stop that does not wait.
        await bench.fixture.send(numbered(21, 21));
        expect(stopped).toBe(false);
        first.intake.release();
        await within(PROMPT_MS, "stop", stop);
        expect(first.intake.offered).toHaveLength(1);
        const taken = numbers(first.intake.taken);
        expect(taken).toEqual(range(1, taken.length));

        const next = await bench.started();
        await takenBy([first.intake, next.intake], 21, bench.patienceMs);
        await allAcknowledged(bench.fixture, bench.patienceMs);
        expect(numbers(next.intake.taken)).toEqual(range(taken.length + 1, 21));
      },
      testMs(harness),
    );

    test(
      "when cut off in a take, ends at once and leaves that take's messages and all after them to the next source",
      async () => {
        const first = await bench.started({ batchSize: 5 });
        await bench.fixture.send(numbered(1, 5));
        await takenBy([first.intake], 5, bench.patienceMs);
        await allAcknowledged(bench.fixture, bench.patienceMs);
        first.intake.hold();
        await bench.fixture.send(numbered(6, 20));
        await taking(first.intake, bench.patienceMs);
        await cutOff(first);
        expect(numbers(first.intake.taken)).toEqual(range(1, 5));
        const calls = first.intake.offered.length;

        const next = await bench.started();
        await takenBy([next.intake], 20, bench.patienceMs, 6);
        // The insert that was under way still ends: nobody waits for it any more.
        first.intake.release();
        await bench.fixture.send(numbered(21, 21));
        await takenBy([next.intake], 21, bench.patienceMs, 21);
        expect(first.intake.offered).toHaveLength(calls);
      },
      testMs(harness),
    );

    test(
      "does not wait for a database that is away, and leaves everything to the next source",
      async () => {
        const first = await bench.started({ batchSize: 5 });
        first.intake.goDown();
        await bench.fixture.send(numbered(1, 20));
        await taking(first.intake, bench.patienceMs);
        await within(PROMPT_MS, "stop", first.source.stop(noCutoff()));
        expect(first.intake.refused).toBe(1);
        expect(first.intake.offered).toHaveLength(1);
        const next = await bench.started();
        await takenBy([next.intake], 20, bench.patienceMs);
        expect(numbers(next.intake.taken)).toEqual(range(1, 20));
      },
      testMs(harness),
    );

    test(
      "acknowledges nothing when the intake gives up for its signal",
      async () => {
        const first = await bench.started();
        first.intake.goDown();
        await bench.fixture.send(numbered(1, 20));
        await taking(first.intake, bench.patienceMs);
        // Aborted before: a source that waits for the event only would not see it.
        await within(PROMPT_MS, "stop", first.source.stop(AbortSignal.abort(new StoppingError())));
        expect(first.intake.refused).toBe(1);
        expect(first.intake.offered).toHaveLength(1);
        const next = await bench.started();
        await takenBy([next.intake], 20, bench.patienceMs);
      },
      testMs(harness),
    );

    test(
      "before the start returns, and a start after it consumes nothing",
      async () => {
        const stopped = bench.create();
        await within(PROMPT_MS, "stop", stopped.source.stop(noCutoff()));
        await within(PROMPT_MS, "start", stopped.source.start());
        await bench.fixture.send(numbered(1, 10));
        const { intake } = await bench.started();
        await takenBy([intake], 10, bench.patienceMs);
        expect(stopped.intake.offered).toEqual([]);
        await within(PROMPT_MS, "the second stop", stopped.source.stop(noCutoff()));
      },
      testMs(harness),
    );

    test(
      "during the start ends it, and the next source gets everything",
      async () => {
        await bench.fixture.send(numbered(1, 10));
        const stopped = bench.create();
        const start = stopped.source.start();
        await within(bench.patienceMs, "stop", stopped.source.stop(noCutoff()));
        await within(PROMPT_MS, "start", start);
        const early = stopped.intake.offered.length;
        const { intake } = await bench.started();
        await takenBy([stopped.intake, intake], 10, bench.patienceMs);
        expect(stopped.intake.offered).toHaveLength(early);
      },
      testMs(harness),
    );

    test(
      "twice, at the same time and one after the other, returns each time only when the take that runs has ended",
      async () => {
        const { source, intake } = await bench.started();
        intake.hold();
        await bench.fixture.send(numbered(1, 3));
        await taking(intake, bench.patienceMs);
        let returned = 0;
        const stops = [source.stop(noCutoff()), source.stop(noCutoff())].map((stop) =>
          stop.then(() => {
            returned += 1;
          }),
        );
        await bench.fixture.send(numbered(4, 4));
        expect(returned).toBe(0);
        intake.release();
        await within(PROMPT_MS, "both stops", Promise.all(stops));
        await within(PROMPT_MS, "the third stop", source.stop(noCutoff()));
        expect(intake.running).toBe(0);
      },
      testMs(harness),
    );
  });
}
