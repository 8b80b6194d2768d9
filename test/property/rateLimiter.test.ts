import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { RateLimiter } from "../../src/core/destinations/rateLimiter.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { manualTime } from "../support/manualTime.ts";
import { MemoryDestinations } from "../support/memoryDestinations.ts";
import { seeded } from "../support/random.ts";
import { settings } from "./settings.ts";

failOnLeaks();

interface Fleet {
  readonly seed: number;
  readonly replicas: number;
  readonly perSecond: number;
  readonly spare: number;
  /** Longest way to the database, and back. */
  readonly latencyMs: number;
  /** Share of the statements that fail. */
  readonly failing: number;
  /** Deliveries of one replica at a time: 1 for rows of a single key, which are ready one at a time. */
  readonly atOnce: number;
  /** Longest delivery. */
  readonly deliveryMs: number;
  /** A replica does nothing for so long now and then. */
  readonly stallMs: number;
}

const ENDLESS = { failing: 0, atOnce: 1000, deliveryMs: 0, stallMs: 0 };

/** Replicas that always have rows, in virtual time. @returns when each delivery began, and how many statements and tokens there were */
async function run(fleet: Fleet, seconds: number): Promise<{ begun: number[]; statements: number; tokens: number }> {
  const time = manualTime(0);
  const random = seeded(fleet.seed);
  const shared = new MemoryDestinations(time.clock.monotonic);
  const begun: number[] = [];
  let statements = 0;
  let tokens = 0;
  const way = () => new Promise<void>((resolve) => time.timer(random() * fleet.latencyMs, resolve));
  const limiters = Array.from({ length: fleet.replicas }, () => {
    let free = fleet.atOnce;
    let stalledUntil = 0;
    const limiter: RateLimiter = new RateLimiter({
      name: "billing",
      perSecond: fleet.perSecond,
      burst: Math.ceil(fleet.perSecond) + fleet.spare,
      store: {
        async takeFromRate(name, request) {
          statements += 1;
          await way();
          if (random() < fleet.failing) throw new Error("the connection broke");
          const ms = await shared.takeFromRate(name, request);
          tokens += request.tokens;
          await way();
          return ms;
        },
      },
      onTokens: () => pump(),
      onError: () => {},
      random,
      ...time,
    });
    const pump = (): void => {
      if (time.clock.monotonic() < stalledUntil) return;
      while (free > 0 && limiter.available() > 0) {
        limiter.use();
        begun.push(time.clock.monotonic());
        if (fleet.deliveryMs === 0) continue;
        free -= 1;
        time.timer(random() * fleet.deliveryMs, () => {
          free += 1;
          pump();
        });
      }
      if (free > 0) limiter.want(free);
    };
    const stall = (): void => {
      stalledUntil = time.clock.monotonic() + fleet.stallMs;
      time.timer(fleet.stallMs, pump);
      time.timer(500 + random() * 2000, stall);
    };
    if (fleet.stallMs > 0) stall();
    pump();
    return limiter;
  });
  for (let n = 0; n < seconds * 20; n += 1) await time.advance(50);
  for (const limiter of limiters) limiter.stop();
  return { begun, statements, tokens };
}

/** The most deliveries in any second. */
function mostInASecond(begun: readonly number[]): number {
  let from = 0;
  let most = 0;
  for (const [n, at] of begun.entries()) {
    while ((begun[from] ?? at) <= at - 1000) from += 1;
    most = Math.max(most, n - from + 1);
  }
  return most;
}

const shared = {
  seed: fc.integer(),
  replicas: fc.integer({ min: 1, max: 5 }),
  perSecond: fc.constantFrom(1, 3, 50, 200),
  spare: fc.constantFrom(0, 7, 100),
  latencyMs: fc.constantFrom(1, 20),
};
const fleets = fc.record(shared).map((fleet): Fleet => ({ ...ENDLESS, ...fleet }));
const strained = fc.record({
  ...shared,
  failing: fc.constantFrom(0, 0.1),
  atOnce: fc.constantFrom(1, 8, 1000),
  deliveryMs: fc.constantFrom(4, 100, 1000),
  stallMs: fc.constantFrom(0, 150, 400),
});
const slice = (perSecond: number) => Math.max(1, Math.round(perSecond / 5));

describe("a rate that replicas share", () => {
  test("is used up, and never exceeded by more than a slice in any second", async () => {
    await fc.assert(
      fc.asyncProperty(fleets, async (fleet) => {
        const seconds = 10;
        const { begun, statements } = await run(fleet, seconds);
        const { perSecond, spare, replicas } = fleet;
        expect(begun.length).toBeLessThanOrEqual(perSecond * seconds + spare + 1);
        // The first tokens come late, and the last ones are not due yet.
        expect(begun.length).toBeGreaterThanOrEqual(0.95 * perSecond * (seconds - 1) - 2 * slice(perSecond) * replicas);
        expect(mostInASecond(begun)).toBeLessThanOrEqual(perSecond + spare + slice(perSecond));
        const slowStart = 3 + Math.ceil(Math.log2(slice(perSecond)));
        expect(statements).toBeLessThanOrEqual((perSecond * seconds + spare) / slice(perSecond) + slowStart * replicas);
      }),
      settings(15),
    );
  }, 60_000);

  test("is not exceeded by more than a slice in any second by slow receivers, replicas that stall and a database that fails", async () => {
    await fc.assert(
      fc.asyncProperty(strained, async (fleet) => {
        const { begun } = await run(fleet, 10);
        const { perSecond, spare } = fleet;
        expect(mostInASecond(begun)).toBeLessThanOrEqual(perSecond + spare + slice(perSecond));
      }),
      {
        ...settings(20),
        // With grants of different sizes, each due as a whole at its end, there were 63.
        examples: [
          [
            {
              ...{ seed: 7, replicas: 5, perSecond: 50, spare: 0, latencyMs: 1 },
              ...{ failing: 0, atOnce: 8, deliveryMs: 1000, stallMs: 400 },
            },
          ],
        ],
      },
    );
  }, 60_000);

  test("is used up by a single key, with few statements and few tokens that go unused", async () => {
    await fc.assert(
      fc.asyncProperty(fc.record({ seed: fc.integer(), perSecond: fc.constantFrom(10, 50, 100) }), async (some) => {
        const fleet = { ...ENDLESS, replicas: 1, spare: 0, latencyMs: 2, atOnce: 1, deliveryMs: 8, ...some };
        const { begun, statements, tokens } = await run(fleet, 20);
        expect(begun.length).toBeGreaterThanOrEqual(0.95 * fleet.perSecond * 20);
        expect(statements).toBeLessThanOrEqual((1.2 * begun.length) / slice(fleet.perSecond) + 12);
        expect(tokens).toBeLessThanOrEqual(1.02 * begun.length + 2 * slice(fleet.perSecond));
      }),
      settings(10),
    );
  }, 60_000);

  test("loses few tokens to a receiver that is slower", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record({ seed: fc.integer(), atOnce: fc.constantFrom(1, 4), deliveryMs: fc.constantFrom(200, 1000) }),
        async (some) => {
          const fleet = { ...ENDLESS, replicas: 1, perSecond: 100, spare: 0, latencyMs: 2, ...some };
          const { begun, tokens } = await run(fleet, 20);
          // One a second, if the receiver takes next to nothing, and the tokens of the last grants.
          expect(tokens).toBeLessThanOrEqual(1.1 * begun.length + 30);
        },
      ),
      settings(10),
    );
  }, 60_000);

  test("is used up again when the database answers again", async () => {
    await fc.assert(
      fc.asyncProperty(fleets, async (fleet) => {
        const { begun } = await run({ ...fleet, perSecond: 50, failing: 0.3 }, 10);
        expect(begun.length).toBeGreaterThan(250);
      }),
      settings(10),
    );
  }, 60_000);
});
