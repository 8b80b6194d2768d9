import { describe, expect, test } from "@jest/globals";
import { ClaimHints } from "../../../../src/adapters/stores/sql/hints.ts";
import { ManualClock } from "../../../support/recorders.ts";

/** Hints of a process that knows a blocked front, which it has just swept in `tookMs`. */
function behindFront(tookMs = 1) {
  const clock = new ManualClock();
  const hints = new ClaimHints(clock);
  hints.frontIsBlocked("500", tookMs);
  return { clock, hints };
}

/** The times in ms from now at which a claim looks from the mark, each of which takes `tookMs`. */
function sweeps({ clock, hints }: ReturnType<typeof behindFront>, forMs: number, tookMs = 1): readonly number[] {
  const startedAt = clock.monotonic();
  const times: number[] = [];
  for (let ms = 0; ms < forMs; ms = clock.monotonic() - startedAt) {
    if (hints.startsAtMark()) {
      times.push(ms);
      clock.advance(tookMs);
      hints.frontIsBlocked("500", tookMs);
    } else clock.advance(1);
  }
  return times;
}

describe("where a claim starts", () => {
  test("is the mark while no blocked front is known", () => {
    const hints = new ClaimHints(new ManualClock());

    expect(hints.startsAtMark()).toBe(true);
    hints.frontIsBlocked("500", 1);
    expect([hints.startsAtMark(), hints.cursor]).toEqual([false, "500"]);
    hints.frontIsFree();
    expect(hints.startsAtMark()).toBe(true);
  });

  test("is the mark again after a second, and later where sweeps take long", () => {
    expect(sweeps(behindFront(), 2500)).toEqual([1000, 2001]);
    expect(sweeps(behindFront(100), 5000, 100)).toEqual([2000, 4100]);
  });

  test("is the mark whenever a key becomes free, however many do", () => {
    const front = behindFront();
    for (const delayMs of [300, 40, 100, 310, 40]) front.hints.sweepWithin(delayMs);

    const times = sweeps(front, 900);

    expect(times).toHaveLength(4);
    for (const [n, dueMs] of [40, 100, 300, 310].entries()) {
      expect(times[n]).toBeGreaterThanOrEqual(dueMs);
      expect(times[n]).toBeLessThan(dueMs + 25);
    }
  });

  test("is not the mark all the time, where a long front is swept and keys become free all the time", () => {
    const front = behindFront(100);
    for (let delayMs = 0; delayMs < 5000; delayMs += 10) front.hints.sweepWithin(delayMs);

    expect(sweeps(front, 5000, 100)).toEqual([400, 900, 1400, 1900, 2400, 2900, 3400, 3900, 4400, 4900]);
  });

  test("is not the mark for keys that a claim from there has met already", () => {
    const front = behindFront();
    front.hints.sweepWithin(100);
    front.hints.sweepWithin(200);
    front.clock.advance(250);

    front.hints.frontIsFree();
    front.hints.frontIsBlocked("600", 1);

    expect(sweeps(front, 900)).toEqual([]);
  });
});
