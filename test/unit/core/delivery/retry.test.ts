import { describe, expect, test } from "@jest/globals";
import { createRetryPolicy } from "../../../../src/core/delivery/failure.ts";
import { maxAttemptsInEffect } from "../../../../src/model/rows.ts";

const lowest = () => 0;
const highest = () => 0.9999;

describe("a retry policy of a destination", () => {
  test("a schedule gives every wait, its last entry repeats, and jitter comes on top", () => {
    const policy = createRetryPolicy({ schedule: [5000, 60_000, 600_000], jitter: 0.5 }, 1);
    const waits = (random: () => number) =>
      [0, 1, 2, 3, 2 ** 31].map((attempt) => policy({ attempt, retryAfterMs: undefined }, random));
    expect(waits(lowest)).toEqual([5000, 60_000, 600_000, 600_000, 600_000]);
    expect(waits(() => 0.5)).toEqual([6250, 75_000, 750_000, 750_000, 750_000]);
  });

  test.each([
    [{ schedule: [5000, 600_000], jitter: 0 }, 600_000],
    [{ schedule: [5000], jitter: 0 }, 60_000],
    [{ maxDelayMs: 120_000, jitter: 0 }, 120_000],
    [{ maxDelayMs: 1000, jitter: 0 }, 60_000],
  ])("%j lets Retry-After ask for %d ms", (settings, most) => {
    const asked = (retryAfterMs: number) => createRetryPolicy(settings, 1)({ attempt: 0, retryAfterMs }, lowest);
    expect(asked(30_000)).toBe(30_000);
    expect(asked(Number.POSITIVE_INFINITY)).toBe(most);
  });

  test("a backoff of its own grows by its factor up to its ceiling, jitter included", () => {
    const policy = createRetryPolicy({ baseDelayMs: 100, factor: 3, maxDelayMs: 2500, jitter: 1 }, 1000);
    const wait = (attempt: number, random: () => number) => policy({ attempt, retryAfterMs: undefined }, random);
    expect([0, 1, 2, 3, 2 ** 31].map((attempt) => wait(attempt, lowest))).toEqual([100, 300, 900, 2500, 2500]);
    expect(wait(2, () => 0.5)).toBe(1350);
    expect(wait(2 ** 31, highest)).toBe(2500);
  });

  test("falls back to the base of the outbox, also to none", () => {
    const of = (base: number) =>
      createRetryPolicy({ jitter: 0 }, base)({ attempt: 2 ** 31, retryAfterMs: undefined }, lowest);
    expect([of(1000), of(0)]).toEqual([60_000, 0]);
  });
});

test.each([
  [5, undefined, 5],
  [5, 12, 12],
  [5, 2, 2],
  [4, 12, 4],
  [20, 12, 20],
])("a row of %d attempts at a destination of %s has %d", (ofRow, ofDestination, inEffect) => {
  expect(maxAttemptsInEffect(ofRow, ofDestination)).toBe(inEffect);
});
