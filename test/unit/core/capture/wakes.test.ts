import { describe, expect, test } from "@jest/globals";
import { CaptureWakes } from "../../../../src/core/capture/capture.ts";
import type { Timer } from "../../../../src/time/clock.ts";
import { manualTime } from "../../../support/manualTime.ts";

/** @param delay what the timers make of a delay */
function setUp(delay = (ms: number) => ms) {
  const time = manualTime(0);
  const at: number[] = [];
  const timer: Timer = (ms, callback) => time.timer(delay(ms), callback);
  const wakes = new CaptureWakes(() => at.push(time.clock.now()), time.clock, timer);
  return { time, at, wakes };
}

describe("wakes of a capture", () => {
  test("come at once, and 20 and 250 ms after an event", async () => {
    const { time, at, wakes } = setUp();
    wakes.event();
    await time.advance(1000);
    expect(at).toEqual([0, 20, 250]);
    expect(time.pending()).toEqual([]);
  });

  test("are one for all events of a turn of the event loop", async () => {
    const { time, at, wakes } = setUp();
    for (let count = 0; count < 1000; count += 1) wakes.event();
    await Promise.resolve();
    wakes.event();
    expect(at).toEqual([]);
    expect(time.pending()).toEqual([20, 250]);
    await time.advance(0);
    expect(at).toEqual([0]);
    await time.advance(1000);
    expect(at).toEqual([0, 20, 250]);
  });

  test("echo during a steady stream too, with one pair of timers", async () => {
    const { time, at, wakes } = setUp();
    for (let ms = 0; ms < 1000; ms += 5) {
      wakes.event();
      await time.advance(5);
      expect(time.pending().length).toBeLessThanOrEqual(2);
    }
    // An event each 5 ms is a wake; what comes besides are the short echoes.
    const echoes = at.length - 200;
    expect(echoes).toBeGreaterThanOrEqual(40);
    expect(echoes).toBeLessThanOrEqual(67);
    at.length = 0;
    await time.advance(1000);
    expect(at.at(-2)).toBe(995 + 20);
    expect(at.at(-1)).toBe(995 + 250);
  });

  test("end with the close, those under way too", async () => {
    const { time, at, wakes } = setUp();
    wakes.event();
    wakes.close();
    expect(time.pending()).toEqual([]);
    await time.advance(1000);
    expect(at).toEqual([]);
  });
});
