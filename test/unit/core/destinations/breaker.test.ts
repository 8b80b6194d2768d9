import { describe, expect, test } from "@jest/globals";
import type { ReceiverReport } from "../../../../src/core/destinations/breaker.ts";
import { CircuitBreaker } from "../../../../src/core/destinations/breaker.ts";
import { ManualClock } from "../../../support/recorders.ts";

const LIMITS = { failureRatio: 0.5, minimumAttempts: 10, windowMs: 30_000, openMs: 5000, maxOpenMs: 60_000 };
const HEALTHY: ReceiverReport = { receiver: "healthy" };
const FAILED: ReceiverReport = { receiver: "failed", reason: "status 500" };

function setup() {
  const clock = new ManualClock(0);
  const breaker = new CircuitBreaker(LIMITS, clock);
  let rows = 0;
  /** @param row the delivered row; default: another one each time */
  const add = (report: ReceiverReport, times = 1, tookMs = 0, row?: string) => {
    for (let n = 0; n < times; n += 1) {
      rows += 1;
      breaker.add(report, clock.monotonic() - tookMs, row ?? `row-${rows}`);
    }
  };
  return { clock, breaker, add };
}

describe("a circuit breaker's counts", () => {
  test("open at the ratio, once there were enough attempts", () => {
    const { breaker, add } = setup();
    add(HEALTHY, 4);
    add(FAILED, 5);
    expect(breaker.shouldOpen()).toBeUndefined();
    add(FAILED);
    expect(breaker.shouldOpen()).toEqual({
      reason: "6 of 10 deliveries failed within 30000 ms",
      atLeastMs: 0,
    });
  });

  test("count nothing that is older than the window", () => {
    const { clock, breaker, add } = setup();
    add(FAILED, 9);
    clock.ms += 30_001;
    add(HEALTHY, 1);
    add(FAILED, 9);
    expect(breaker.shouldOpen()).toMatchObject({ reason: "9 of 10 deliveries failed within 30000 ms" });
    clock.ms += 30_001;
    expect(breaker.shouldOpen()).toBeUndefined();
  });

  test("open for a receiver that hangs, which is tried too seldom for the ratio", () => {
    const { clock, breaker, add } = setup();
    clock.ms = 10_000;
    add(FAILED, 1, 10_000);
    clock.ms = 20_000;
    add(FAILED, 1, 10_000);
    clock.ms = 29_999;
    add(FAILED, 1, 9999);
    expect(breaker.shouldOpen()).toBeUndefined();
    clock.ms = 40_000;
    add(FAILED, 1, 10_000);
    expect(breaker.shouldOpen()).toEqual({ reason: "all 4 deliveries within 40000 ms failed", atLeastMs: 0 });
  });

  test("open within a second of an outage, whatever went well before", () => {
    const { clock, breaker, add } = setup();
    add(HEALTHY, 10_000);
    add(FAILED, 50);
    clock.ms += 999;
    add(FAILED);
    expect(breaker.shouldOpen()).toBeUndefined();
    clock.ms += 1;
    add(FAILED);
    expect(breaker.shouldOpen()).toEqual({ reason: "all 52 deliveries within 1000 ms failed", atLeastMs: 0 });
  });

  test("stay closed for a streak that a success breaks", () => {
    const { clock, breaker, add } = setup();
    add(HEALTHY, 10_000);
    for (let n = 0; n < 20; n += 1) {
      clock.ms += 100;
      add(FAILED, 9);
      add(HEALTHY);
    }
    expect(breaker.shouldOpen()).toBeUndefined();
  });

  test("stay closed for two failures, however far apart, and begin anew with a success", () => {
    const { clock, breaker, add } = setup();
    add(FAILED);
    clock.ms += 3_600_000;
    add(FAILED);
    expect(breaker.shouldOpen()).toBeUndefined();
    add(HEALTHY);
    clock.ms += 3_600_000;
    add(FAILED, 3);
    expect(breaker.shouldOpen()).toBeUndefined();
  });

  test("open once three answers ask to wait, for as long as the longest of them, but not for longer than a breaker is open", () => {
    const { clock, breaker, add } = setup();
    add({ ...FAILED, retryAfterMs: 20_000 });
    add({ ...FAILED, retryAfterMs: 1000 });
    expect(breaker.shouldOpen()).toBeUndefined();
    clock.ms += 5000;
    add({ ...FAILED, retryAfterMs: 1000 });
    expect(breaker.shouldOpen()).toEqual({ reason: "3 answers asked to wait (Retry-After)", atLeastMs: 15_000 });
    add({ ...FAILED, retryAfterMs: 3_600_000 });
    expect(breaker.shouldOpen()).toMatchObject({ atLeastMs: 60_000 });
  });

  test("forget everything at a reset, and do not count what began before it", () => {
    const { clock, breaker, add } = setup();
    add({ ...FAILED, retryAfterMs: 5000 }, 20);
    clock.ms += 100;
    breaker.reset();
    add(FAILED, 20, 50);
    expect(breaker.shouldOpen()).toBeUndefined();
  });

  test("leave out deliveries that tell nothing of the receiver", () => {
    const { breaker, add } = setup();
    add({ receiver: "unknown" }, 100);
    add({ receiver: "unasked" }, 100);
    add(FAILED, 9);
    expect(breaker.shouldOpen()).toBeUndefined();
  });
});
