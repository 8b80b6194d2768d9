import { describe, expect, test } from "@jest/globals";
import { createRetryPolicy, hasAttemptsLeft } from "../../../../src/core/delivery/failure.ts";
import { maxAttemptsInEffect } from "../../../../src/model/rows.ts";

const lowest = () => 0;
const highest = () => 0.9999;
const delay = (attempt: number, baseMs = 1000, random = lowest, retryAfterMs?: number) =>
  createRetryPolicy(undefined, baseMs)({ attempt, retryAfterMs }, random);

describe("the retry delay", () => {
  test.each([
    [0, 1000, 1249],
    [1, 2000, 2499],
    [2, 4000, 4999],
    [3, 8000, 9999],
    [4, 16_000, 19_999],
    [5, 32_000, 39_999],
    [6, 60_000, 60_000],
    [1000, 60_000, 60_000],
  ])("after a failure at attempt %d lies between %d and %d ms", (attempt, from, to) => {
    expect(delay(attempt)).toBe(from);
    expect(delay(attempt, 1000, highest)).toBe(to);
  });

  test("is never above 60 seconds, jitter included", () => {
    expect(delay(0, 59_000, highest)).toBe(60_000);
    expect(delay(0, 600_000)).toBe(60_000);
  });

  test("is zero with a base of zero, however often the delivery failed", () => {
    expect(delay(5000, 0, highest)).toBe(0);
  });

  test("is lengthened by what the receiver asks for, up to 60 seconds, and never shortened", () => {
    expect(delay(0, 1000, lowest, 30_000)).toBe(30_000);
    expect(delay(0, 1000, lowest, 3_600_000)).toBe(60_000);
    expect(delay(3, 1000, lowest, 10)).toBe(8000);
  });

  test("is a whole number of ms", () => {
    expect(delay(0, 333, () => 0.1234)).toBe(343);
  });
});

describe("a failed delivery", () => {
  test.each([
    [0, 5, true],
    [3, 5, true],
    [4, 5, false],
    [9, 5, false],
    [0, 1, false],
    [0, 0, false],
  ])("at attempt %d of %d leaves attempts: %s", (attempt, maxAttempts, left) => {
    expect(hasAttemptsLeft({ attempt, maxAttempts })).toBe(left);
  });
});

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
