import { describe, expect, test } from "@jest/globals";
import { eventually } from "../../support/eventually.ts";
import { within } from "../../support/within.ts";
import type { SourceHarness } from "../source.ts";
import { allAcknowledged, numbered, numbers, PROMPT_MS, range, sourceBench, takenBy, taking, testMs } from "./bench.ts";

/** What a source hands over, and at which pace. */
export function exerciseConsumption(harness: SourceHarness): void {
  describe("consuming", () => {
    const bench = sourceBench(harness);

    test(
      "hands bodies over byte for byte, in the order sent",
      async () => {
        const bodies = [
          Buffer.from('{ "b":1.0,"a":12345678901234567890 }'),
          Buffer.from("Grüße, 日本語, 👩‍👩‍👧, \u0000"),
          // Every byte there is: no UTF-8.
          Buffer.from(Array.from({ length: 256 }, (_, index) => index)),
          Buffer.alloc(0),
          // Near a megabyte, and under the smallest limit that brokers come with.
          Buffer.alloc(900_000, Buffer.from(Array.from({ length: 251 }, (_, index) => 255 - index))),
          Buffer.from("the last one"),
        ];
        const { intake } = await bench.started();
        await bench.fixture.send(bodies.map((body) => ({ body })));
        await eventually(() => intake.taken.length >= bodies.length, { timeoutMs: bench.patienceMs });
        const hex = (body: Buffer | null | undefined) => body?.toString("hex");
        expect(intake.taken.map(({ body }) => hex(body))).toEqual(bodies.map(hex));
      },
      testMs(harness),
    );

    test(
      "hands each message's own headers over as text, with names in the letter case in which they were sent",
      async () => {
        const sent = [
          { body: "{}", headers: { "x-idempotency-key": "key-1", "X-Tenant-ID": "Blue", "x-city": "Zürich, 東京" } },
          { body: "{}" },
          { body: "{}", headers: { "x-idempotency-key": "key-3", "x-json": '{"a":[1,2]}' } },
        ];
        const { intake } = await bench.started();
        await bench.fixture.send(sent);
        await eventually(() => intake.taken.length >= sent.length, { timeoutMs: bench.patienceMs });
        const [first, second, third] = intake.taken;
        expect(first?.headers).toMatchObject(sent[0]?.headers ?? {});
        expect(Object.keys(second?.headers ?? {})).not.toContain("x-idempotency-key");
        expect(third?.headers).toMatchObject(sent[2]?.headers ?? {});
      },
      testMs(harness),
    );

    test(
      "takes what was waiting and what comes later in order, one batch after the other, none larger than the batch size, and acknowledges it",
      async () => {
        await bench.fixture.send(numbered(1, 100));
        const { intake, source } = await bench.started({ batchSize: 7 });
        await bench.fixture.send(numbered(101, 200));
        await takenBy([intake], 200, bench.patienceMs);
        expect(numbers(intake.taken)).toEqual(range(1, 200));
        expect(intake.mostRunning).toBe(1);
        const sizes = intake.offered.map((batch) => batch.length);
        expect(Math.min(...sizes)).toBeGreaterThan(0);
        expect(Math.max(...sizes)).toBeLessThanOrEqual(7);
        await allAcknowledged(bench.fixture, bench.patienceMs);
        await source.check();
      },
      testMs(harness),
    );

    test(
      "offers nothing more while a take waits, stays up meanwhile, and continues when it ends",
      async () => {
        const { intake, source } = await bench.started({ batchSize: 5 });
        intake.hold();
        await bench.fixture.send(numbered(1, 30));
        await taking(intake, bench.patienceMs);
        // Each of these goes to the broker and back: time enough for a source that does not wait.
        for (let from = 31; from <= 60; from += 5) await bench.fixture.send(numbered(from, from + 4));
        await source.check();
        expect(intake.offered).toHaveLength(1);
        expect(intake.taken).toEqual([]);
        intake.release();
        await takenBy([intake], 60, bench.patienceMs);
        expect(numbers(intake.taken)).toEqual(range(1, 60));
        expect(intake.mostRunning).toBe(1);
      },
      testMs(harness),
    );

    test(
      "check resolves while the source is idle, and rejects before its start and after its stop",
      async () => {
        const { source, intake } = bench.create();
        await expect(source.check()).rejects.toThrow(/\S/);
        await within(PROMPT_MS, "start", source.start());
        await eventually(() => source.check(), { timeoutMs: bench.patienceMs });
        await bench.fixture.send(numbered(1, 1));
        await takenBy([intake], 1, bench.patienceMs);
        await source.check();
        await source.stop(new AbortController().signal);
        await expect(source.check()).rejects.toThrow(/\S/);
      },
      testMs(harness),
    );
  });
}
