import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { RateLimiter } from "../../src/core/rateLimiter.ts";
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
}

/** Replicas that always have rows, in virtual time. @returns when each delivery began, and how many statements there were */
async function run(fleet: Fleet, seconds: number): Promise<{ begun: number[]; statements: number }> {
  const time = manualTime(0);
  const random = seeded(fleet.seed);
  const shared = new MemoryDestinations(time.clock.monotonic);
  const begun: number[] = [];
  let statements = 0;
  const way = () => new Promise<void>((resolve) => time.timer(random() * fleet.latencyMs, resolve));
  const limiters = Array.from({ length: fleet.replicas }, () => {
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
          await way();
          return ms;
        },
      },
      onTokens: () => pump(),
      onError: () => {},
      ...time,
    });
    const pump = (): void => {
      while (limiter.available() > 0) {
        limiter.use();
        begun.push(time.clock.monotonic());
      }
      limiter.want(1000);
    };
    pump();
    return limiter;
  });
  for (let n = 0; n < seconds * 20; n += 1) await time.advance(50);
  for (const limiter of limiters) limiter.stop();
  return { begun, statements };
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

const fleets = fc.record({
  seed: fc.integer(),
  replicas: fc.integer({ min: 1, max: 5 }),
  perSecond: fc.constantFrom(1, 3, 50, 200),
  spare: fc.constantFrom(0, 7, 100),
  latencyMs: fc.constantFrom(1, 20),
  failing: fc.constant(0),
});

describe("a rate that replicas share", () => {
  test("is used up, and never exceeded by more than a slice in any second", async () => {
    await fc.assert(
      fc.asyncProperty(fleets, async (fleet) => {
        const seconds = 10;
        const { begun, statements } = await run(fleet, seconds);
        const { perSecond, spare } = fleet;
        const slice = Math.max(1, Math.round(perSecond / 5));
        expect(begun.length).toBeLessThanOrEqual(perSecond * seconds + spare + slice);
        // The first slices come late, and the last ones are not due yet.
        expect(begun.length).toBeGreaterThanOrEqual(0.9 * perSecond * (seconds - 1) - 2 * slice * fleet.replicas);
        // A slice that is due may be used a little later than another one that was taken after it.
        const late = Math.ceil((perSecond * fleet.latencyMs) / 1000);
        expect(mostInASecond(begun)).toBeLessThanOrEqual(perSecond + spare + slice + late);
        expect(statements).toBeLessThanOrEqual((perSecond * seconds + spare) / slice + 3 * fleet.replicas);
      }),
      settings(30),
    );
  }, 60_000);

  test("is used up again when the database answers again", async () => {
    await fc.assert(
      fc.asyncProperty(fleets, async (fleet) => {
        const { begun } = await run({ ...fleet, perSecond: 50, failing: 0.3 }, 10);
        expect(begun.length).toBeGreaterThan(250);
      }),
      settings(20),
    );
  }, 60_000);
});
