import { describe, expect, test } from "@jest/globals";
import { RateLimit } from "../../../src/http/inbox.ts";
import { ManualClock } from "../../support/recorders.ts";

function setup(requestsPerMinute: number) {
  const clock = new ManualClock(0);
  const limit = new RateLimit(requestsPerMinute, clock);
  const takeUntilRefused = () => {
    let taken = 0;
    while (limit.take() === 0) taken++;
    return taken;
  };
  return { clock, limit, takeUntilRefused };
}

describe("the rate limit", () => {
  test("lets a full minute's requests pass at once, then one per share of a minute", () => {
    const { clock, takeUntilRefused } = setup(60);
    expect(takeUntilRefused()).toBe(60);
    clock.advance(999);
    expect(takeUntilRefused()).toBe(0);
    clock.advance(1);
    expect(takeUntilRefused()).toBe(1);
    clock.advance(10_000);
    expect(takeUntilRefused()).toBe(10);
  });

  test("saves up no more than a minute's requests", () => {
    const { clock, takeUntilRefused } = setup(60);
    clock.advance(3_600_000);
    expect(takeUntilRefused()).toBe(60);
  });

  test.each([1, 3, 7, 11, 60, 7919])(
    "names a wait after which the next request passes, at %i a minute",
    (perMinute) => {
      const { clock, limit, takeUntilRefused } = setup(perMinute);
      takeUntilRefused();
      const seconds = limit.take();
      expect(Number.isInteger(seconds)).toBe(true);
      expect(seconds).toBeGreaterThanOrEqual(1);
      clock.advance(seconds * 1000);
      expect(limit.take()).toBe(0);
    },
  );
});
