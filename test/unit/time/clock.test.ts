import { afterEach, beforeEach, describe, expect, jest, test } from "@jest/globals";
import { systemClock, systemTimer } from "../../../src/time/clock.ts";

describe("the system clock", () => {
  test("gives the time of day in ms and a time that never goes back", () => {
    expect(Math.abs(systemClock.now() - Date.now())).toBeLessThan(1000);
    const before = systemClock.monotonic();
    expect(systemClock.monotonic()).toBeGreaterThanOrEqual(before);
  });
});

describe("the system timer", () => {
  beforeEach(() => {
    jest.useFakeTimers();
  });
  afterEach(() => {
    jest.useRealTimers();
  });

  test("calls back once, after its delay", () => {
    const callback = jest.fn();
    systemTimer(100, callback);
    jest.advanceTimersByTime(99);
    expect(callback).not.toHaveBeenCalled();
    jest.advanceTimersByTime(10_000);
    expect(callback).toHaveBeenCalledTimes(1);
  });

  test("does not call back once it is cancelled", () => {
    const callback = jest.fn();
    systemTimer(100, callback)();
    jest.advanceTimersByTime(1000);
    expect(callback).not.toHaveBeenCalled();
    expect(jest.getTimerCount()).toBe(0);
  });

  test("takes delays longer than setTimeout can hold, and can be cancelled in the middle of one", () => {
    const day = 24 * 60 * 60 * 1000;
    const callback = jest.fn();
    const cancelled = jest.fn();
    systemTimer(60 * day, callback);
    const cancel = systemTimer(60 * day, cancelled);
    jest.advanceTimersByTime(59 * day);
    expect(callback).not.toHaveBeenCalled();
    cancel();
    jest.advanceTimersByTime(day);
    expect(callback).toHaveBeenCalledTimes(1);
    expect(cancelled).not.toHaveBeenCalled();
  });
});
