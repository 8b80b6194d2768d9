import { inspect } from "node:util";
import { describe, expect, test } from "@jest/globals";
import { PublishError } from "../../../src/model/errors.ts";
import type { DestinationHarness } from "../destination.ts";
import { type DestinationBench, message, testMs } from "./bench.ts";

/** Receivers that do not take the message, and headers beyond ASCII. */
export function exerciseRefusals(harness: DestinationHarness, bench: DestinationBench): void {
  describe("refused", () => {
    test(
      "fails where nobody listens, soon after its timeout at the latest",
      async () => {
        const destination = bench.fixture.createUnreachable?.(harness.shortestTimeoutMs);
        if (destination === undefined) throw new Error("the fixture has no createUnreachable: add it");
        const started = performance.now();
        await expect(bench.publish(destination, message())).rejects.toBeInstanceOf(PublishError);
        expect(performance.now() - started).toBeLessThan(harness.shortestTimeoutMs + 5000);
      },
      testMs(harness),
    );

    const { wrongPassword, oversizedBody } = harness;
    if (wrongPassword !== undefined) {
      test(
        "fails with wrong credentials, and its error does not show them",
        async () => {
          const destination = bench.fixture.createWithWrongCredentials?.();
          if (destination === undefined) throw new Error("the fixture has no createWithWrongCredentials: add it");
          const error: unknown = await bench.publish(destination, message()).catch((reason: unknown) => reason);
          expect(error).toBeInstanceOf(PublishError);
          const shown = inspect(error, { depth: 10, showHidden: true, maxStringLength: null });
          // Not `not.toContain`: its failure would print everything.
          expect(shown.includes(wrongPassword)).toBe(false);
        },
        testMs(harness),
      );
    }

    if (oversizedBody !== undefined) {
      test(
        "fails for a message that is too large, which harms neither those beside it nor the next",
        async () => {
          const destination = bench.fixture.create();
          await bench.publish(destination, message());
          const beside = (from: number) =>
            Array.from({ length: 10 }, (_, n) =>
              bench.publish(destination, message({ body: JSON.stringify({ n: from + n }) })),
            );
          const before = beside(0);
          const tooLarge = bench.publish(destination, message({ body: oversizedBody }));
          const after = beside(10);
          const [refused, ...others] = await Promise.allSettled([tooLarge, ...before, ...after]);
          expect(refused).toMatchObject({ status: "rejected", reason: expect.any(PublishError) });
          expect(others.filter(({ status }) => status === "rejected")).toEqual([]);
          await bench.publish(destination, message({ body: '{"n":20}' }));
          const arrived = (await bench.fixture.arrived(22)).map(({ body }) => body.length);
          expect(Math.max(...arrived)).toBeLessThan(100);
        },
        testMs(harness),
      );
    }

    if (harness.nonAsciiHeaders === true) {
      test("delivers header values of every script", async () => {
        const headers = { "x-city": "Zürich, 東京", "x-face": "👩‍👩‍👧" };
        await bench.publish(bench.fixture.create(), message({ headers }));
        const [arrived] = await bench.fixture.arrived(1);
        expect(arrived?.headers).toMatchObject(headers);
      });
    }
  });
}
