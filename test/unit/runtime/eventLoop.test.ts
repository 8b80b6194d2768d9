import { expect, test } from "@jest/globals";
import { eventLoopWatch, WATCH_INTERVAL_MS } from "../../../src/runtime/metrics.ts";
import { manualTime } from "../../support/manualTime.ts";

test("blocks of over a second are reported, each with its length, and shorter ones are not", async () => {
  const time = manualTime();
  const blocks: number[] = [];
  const tick = eventLoopWatch(time.clock, (seconds) => blocks.push(seconds));
  for (const lateMs of [0, 1000, 1001, 0, 12_000, 999]) {
    await time.advance(WATCH_INTERVAL_MS + lateMs);
    tick();
  }
  expect(blocks).toEqual([1.001, 12]);
});
