import { expect, test } from "@jest/globals";
import { Marks } from "../../../../src/adapters/stores/sql/marks.ts";
import { ManualClock } from "../../../support/recorders.ts";

/** @param reads `later` is `end` where it is not given: no transaction had begun behind the newest one that had ended */
function marksAfter(
  ...reads: readonly (readonly [mark: string | undefined, running: readonly bigint[], end: bigint, later?: bigint])[]
) {
  const marks = new Marks(new ManualClock());
  for (const [mark, running, end, later = end] of reads) marks.setMark(mark, { running, end, later });
  return { newest: marks.mark, settled: marks.settledMark, guarded: marks.guardedMark };
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
  const marks = new Marks(clock);
  expect(marks.fullMarkIsDue()).toBe(true);
  marks.fullMarkTook(100);
  clock.advance(4999);
  expect(marks.fullMarkIsDue()).toBe(false);
  clock.advance(1);
  expect(marks.fullMarkIsDue()).toBe(true);
});

test("where nothing is unfinished the last mark stays", () => {
  expect(marksAfter(["10", [], 100n], [undefined, [], 105n], [undefined, [], 110n])).toEqual({
    newest: "10",
    settled: "10",
    guarded: { mark: "10", running: [] },
  });
});

test("what may have run behind the newest transaction that had ended is waited for, and guards a mark", () => {
  const first = ["10", [90n], 100n, 103n] as const;
  expect(marksAfter(first, ["20", [], 101n, 104n])).toMatchObject({
    settled: "0",
    guarded: { mark: "10", running: [101n, 102n] },
  });
  expect(marksAfter(first, ["20", [101n], 104n])).toMatchObject({ settled: "0", guarded: { running: [101n] } });
  expect(marksAfter(first, ["20", [], 103n])).toMatchObject({ settled: "10", guarded: { mark: "10", running: [] } });
});

test("a mark that is the last one again needs no new transaction, and settles", () => {
  const marks = new Marks(new ManualClock());
  marks.setMark("10", { running: [90n], end: 100n, later: 100n });
  expect(marks.lastRead).toBe("10");
  marks.setMark("10", { running: [90n], end: 101n, later: undefined });
  expect([marks.settledMark, marks.guardedMark]).toEqual(["0", { mark: "10", running: [90n] }]);
  marks.setMark("10", { running: [], end: 101n, later: undefined });
  expect([marks.settledMark, marks.guardedMark]).toEqual(["10", { mark: "10", running: [] }]);
});

test("the position behind the highest one met stands for a mark", () => {
  const marks = new Marks(new ManualClock());
  expect(marks.behindMet).toBeUndefined();
  for (const position of ["9", "10", "2"]) marks.meet(position);
  expect(marks.behindMet).toBe("11");
});
