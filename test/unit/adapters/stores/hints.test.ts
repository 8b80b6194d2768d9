import { expect, test } from "@jest/globals";
import { ClaimHints } from "../../../../src/adapters/stores/sql/hints.ts";
import { ManualClock } from "../../../support/recorders.ts";

function marksAfter(
  ...reads: readonly (readonly [mark: string | undefined, running: readonly bigint[], next: bigint])[]
) {
  const hints = new ClaimHints(new ManualClock());
  for (const [mark, running, next] of reads) hints.setMark(mark, { running, next });
  return { newest: hints.mark, settled: hints.settledMark, guarded: hints.guardedMark };
}

test("a mark counts for order only when it has been read again", () => {
  expect(marksAfter(["10", [], 100n])).toEqual({ newest: "10", settled: "0", guarded: { mark: "0", running: [] } });
});

test("a mark is settled when all that ran while it was read have ended", () => {
  expect(marksAfter(["10", [90n, 95n], 100n], ["20", [95n], 105n]).settled).toBe("0");
  expect(marksAfter(["10", [90n, 95n], 100n], ["20", [95n], 105n], ["30", [103n], 110n]).settled).toBe("10");
  expect(marksAfter(["10", [], 100n], ["20", [100n], 105n]).settled).toBe("10");
});

test("under a transaction that stays open the guarded mark follows, and names it", () => {
  const open = [90n];
  const { settled, guarded } = marksAfter(["10", open, 100n], ["20", [...open, 104n], 105n], ["30", open, 110n]);
  expect(settled).toBe("0");
  expect(guarded).toEqual({ mark: "20", running: open });
});

test("what began after a mark was read does not guard it", () => {
  expect(marksAfter(["10", [], 100n], ["20", [101n], 105n]).guarded).toEqual({ mark: "10", running: [] });
});

test("a lower mark lowers both: a row that had not been seen before came below them", () => {
  const { settled, guarded } = marksAfter(["10", [], 100n], ["20", [], 105n], ["5", [], 110n]);
  expect(settled).toBe("5");
  expect(guarded.mark).toBe("5");
});

test("reading a mark without a bound takes no more than a fiftieth of the time", () => {
  const clock = new ManualClock();
  const hints = new ClaimHints(clock);
  expect(hints.fullMarkIsDue()).toBe(true);
  hints.fullMarkTook(100);
  clock.advance(4999);
  expect(hints.fullMarkIsDue()).toBe(false);
  clock.advance(1);
  expect(hints.fullMarkIsDue()).toBe(true);
});

test("where nothing is unfinished the last mark stays", () => {
  expect(marksAfter(["10", [], 100n], [undefined, [], 105n], [undefined, [], 110n])).toEqual({
    newest: "10",
    settled: "10",
    guarded: { mark: "10", running: [] },
  });
});
