import { beforeEach, describe, expect, test } from "@jest/globals";
import { clockJumps } from "../../../../src/core/delivery/claims.ts";
import { ManualClock } from "../../../support/recorders.ts";

let clock: ManualClock;
let jumps: ReturnType<typeof clockJumps>;
/** The database's clock less ours. */
let ahead: number;

beforeEach(() => {
  clock = new ManualClock();
  jumps = clockJumps(clock);
  ahead = 1_700_000_000_000;
});

/** Looks a time after the last look. @param toServerMs the way of the question @param backMs that of the answer */
async function look(afterMs: number, toServerMs = 1, backMs = 1): Promise<number> {
  clock.advance(afterMs);
  return await jumps(async () => {
    clock.advance(toServerMs);
    const now = clock.monotonic() + ahead;
    clock.advance(backMs);
    return now;
  });
}

describe("of the database's clock", () => {
  test("a step ahead is noticed at the next look, and how long ago it was after that", async () => {
    expect(await look(1000)).toBe(Number.POSITIVE_INFINITY);
    expect(await look(1000)).toBe(Number.POSITIVE_INFINITY);
    ahead += 60_000;
    expect(await look(1000)).toBe(0);
    expect(await look(1000)).toBe(1002);
    expect(await look(29_000)).toBe(30_004);
  });

  test("a step back is none, but the one ahead with which it is right again", async () => {
    await look(1000);
    ahead -= 60_000;
    expect(await look(1000)).toBe(Number.POSITIVE_INFINITY);
    ahead += 60_000;
    expect(await look(1000)).toBe(0);
  });

  test.each([
    ["slow answers", 1, 9000],
    ["slow questions", 9000, 1],
  ])("%s look like no step, before and after quick ones", async (_what, toServerMs, backMs) => {
    for (const isSlow of [false, true, true, false, false]) {
      const passed = isSlow ? await look(1000, toServerMs, backMs) : await look(1000);
      expect(passed).toBe(Number.POSITIVE_INFINITY);
    }
  });

  test("a drift since a look of long ago is no step", async () => {
    await look(1000);
    ahead += 3000;
    expect(await look(3_600_000)).toBe(Number.POSITIVE_INFINITY);
  });
});

test("a read that fails changes nothing", async () => {
  await look(1000);
  await expect(jumps(() => Promise.reject(new Error("gone")))).rejects.toThrow("gone");
  ahead += 60_000;
  expect(await look(1000)).toBe(0);
});
