import { describe, expect, test } from "@jest/globals";
import { StoppingError } from "../../../src/model/errors.ts";
import type { Destination } from "../../../src/ports/destination.ts";
import { eventually } from "../../support/eventually.ts";
import { within } from "../../support/within.ts";
import type { DestinationHarness } from "../destination.ts";
import { type DestinationBench, haveArrived, message, Outcomes, testMs } from "./bench.ts";

const LANES = ["a", "b", "c", "d"] as const;

/** Many publishes at a time: their order, and what a fault or an end makes of them. */
export function exerciseTraffic(harness: DestinationHarness, bench: DestinationBench): void {
  describe("in traffic", () => {
    test("keeps the order of publishes made one after another, while others run beside them", async () => {
      const destination = bench.fixture.create();
      const sent = LANES.map((lane) => Array.from({ length: 25 }, (_, n) => JSON.stringify({ lane, n })));
      await Promise.all(
        sent.map(async (bodies, index) => {
          const key = LANES[index] ?? null;
          for (const body of bodies) await bench.publish(destination, message({ key, routingKey: key, body }));
        }),
      );
      const arrived = (await bench.fixture.arrived(100)).map(({ body }) => body.toString());
      for (const bodies of sent) expect(arrived.filter((body) => bodies.includes(body))).toEqual(bodies);
    });

    test(
      "while the receiver restarts, delivers what resolved, fails the rest as a publish that failed, and publishes again",
      async () => {
        const destination = bench.fixture.create();
        const outcomes = new Outcomes();
        const traffic = new AbortController();
        const lanes = LANES.map((lane) => keepPublishing(bench, destination, lane, outcomes, traffic.signal));
        const delivered = (count: number) =>
          eventually(() => outcomes.delivered.length >= count, {
            timeoutMs: 5000 + harness.reconnectMs,
            label: `resolving ${count} publishes`,
          });
        try {
          await delivered(20);
          await bench.fixture.stopReceiver();
          await bench.fixture.startReceiver();
          await delivered(outcomes.delivered.length + 20);
        } finally {
          traffic.abort();
          await Promise.all(lanes);
        }
        expect(outcomes.strays).toEqual([]);
        if (harness.isUnacknowledged !== true) await haveArrived(bench.fixture, outcomes.delivered);
      },
      testMs(harness),
    );

    test("an abort of some publishes ends these alone", async () => {
      const destination = bench.fixture.create();
      await bench.publish(destination, message({ body: '{"n":-1}' }));
      const controller = new AbortController();
      const reason = new StoppingError();
      const aborted = new Outcomes();
      const kept = new Outcomes();
      const published = Array.from({ length: 100 }, (_, n) => {
        const body = JSON.stringify({ n });
        return n % 2 === 0
          ? kept.note(body, bench.publish(destination, message({ body })))
          : aborted.note(body, bench.publish(destination, message({ body }), controller.signal));
      });
      const settled = Promise.allSettled(published);
      await Promise.any(published);
      controller.abort(reason);
      await settled;
      expect(aborted.failures.filter((error) => error !== reason)).toEqual([]);
      expect(kept.failures).toEqual([]);
      await haveArrived(bench.fixture, [...kept.delivered, ...aborted.delivered]);
    });

    test("close settles every publish that is under way, and the resolved ones have arrived", async () => {
      const destination = bench.fixture.create();
      await bench.publish(destination, message({ body: '{"n":-1}' }));
      const outcomes = new Outcomes();
      const bodies = Array.from({ length: 200 }, (_, n) => JSON.stringify({ n }));
      const published = bodies.map((body) => outcomes.note(body, bench.publish(destination, message({ body }))));
      const settled = Promise.allSettled(published);
      await Promise.any(published);
      await destination.close();
      await within(5000, "settling the publishes of a closed destination", settled);
      expect(outcomes.delivered.length + outcomes.failures.length).toBe(bodies.length);
      expect(outcomes.strays).toEqual([]);
      await haveArrived(bench.fixture, outcomes.delivered);
    });
  });
}

/** Publishes one message after the other, each with a body of its own, failed or not, until the signal aborts. */
async function keepPublishing(
  bench: DestinationBench,
  destination: Destination,
  lane: string,
  outcomes: Outcomes,
  signal: AbortSignal,
): Promise<void> {
  let attempt = 0;
  while (!signal.aborted) {
    // `eventually` spaces the tries at a receiver that is away.
    await eventually(
      () => {
        if (signal.aborted) return undefined;
        const body = JSON.stringify({ lane, attempt: ++attempt });
        return outcomes.note(body, bench.publish(destination, message({ key: lane, routingKey: lane, body })));
      },
      { timeoutMs: 60_000 },
    );
  }
}
