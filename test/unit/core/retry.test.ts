import { describe, expect, test } from "@jest/globals";
import { hasAttemptsLeft, retryDelayMs } from "../../../src/core/retry.ts";

const lowest = () => 0;
const highest = () => 0.9999;
const delay = (attempt: number, baseMs = 1000, random = lowest, retryAfterMs?: number) =>
  retryDelayMs({ attempt, retryAfterMs }, baseMs, random);

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
