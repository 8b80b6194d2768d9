import { expect, test } from "@jest/globals";
import { Marks } from "../../../../src/adapters/stores/sql/marks.ts";
import { ManualClock } from "../../../support/recorders.ts";

/** One read: the transaction that is begun for it is `end` where it is not given. */
type Read = readonly [
  mark: string | undefined,
  running: readonly bigint[],
  end: bigint,
  writers?: readonly string[],
  later?: bigint,
];

function marksAfter(...reads: readonly Read[]) {
  const marks = new Marks(new ManualClock());
  for (const [mark, running, end, writers = [], later = end] of reads)
    marks.setMark(mark, { running, end, later, writers });
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

test("a read without a bound that waited ten seconds for a lock puts the next one off by a minute at most", () => {
  const clock = new ManualClock();
  const marks = new Marks(clock);
  marks.fullMarkTook(10_000);
  clock.advance(59_999);
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
  const first = ["10", [90n], 100n, [], 103n] as const;
  expect(marksAfter(first, ["20", [101n, 102n], 104n])).toMatchObject({
    settled: "0",
    guarded: { mark: "10", running: [101n, 102n] },
  });
  expect(marksAfter(first, ["20", [103n], 104n])).toMatchObject({
    settled: "10",
    guarded: { mark: "10", running: [] },
  });
});

test("a mark does not count before writers without a number are seen to have ended, by a read before the one that takes it", () => {
  const first = ["10", [], 100n, ["3/7"]] as const;
  const nothing = { settled: "0", guarded: { mark: "0", running: [] } };
  expect(marksAfter(first, ["20", [], 105n, ["3/7"]])).toMatchObject(nothing);
  // It may have ended behind this snapshot.
  expect(marksAfter(first, ["20", [], 105n, []])).toMatchObject(nothing);
  expect(marksAfter(first, ["20", [], 105n, []], ["5", [], 110n])).toMatchObject({
    newest: "5",
    settled: "5",
    guarded: { mark: "5" },
  });
});

test("a mark that is guarded stays while newer ones wait for writers", () => {
  const reads: readonly Read[] = [
    ["10", [90n], 100n],
    ["20", [90n], 105n, ["3/7"]],
    ["30", [90n], 110n, ["3/7"]],
    ["40", [90n], 115n, ["3/7"]],
  ];
  expect(marksAfter(...reads)).toMatchObject({ settled: "0", guarded: { mark: "10", running: [90n] } });
});

test("where somebody always writes marks still count, each after the writers of its own read", () => {
  const reads: readonly Read[] = [
    ["10", [], 100n, ["1/1"]],
    ["20", [], 105n, ["1/2"]],
    ["30", [], 110n, ["1/3"]],
    ["40", [], 115n, ["1/4"]],
    ["50", [], 120n, ["1/5"]],
  ];
  expect(marksAfter(...reads.slice(0, 3))).toMatchObject({ settled: "10", guarded: { mark: "10" } });
  expect(marksAfter(...reads)).toMatchObject({ settled: "30", guarded: { mark: "30" } });
});

test("transactions that lie further back than one that has ended are another database: nothing of the last one counts", () => {
  let forgotten = 0;
  const marks = new Marks(new ManualClock(), () => {
    forgotten += 1;
  });
  const far = 3_000_000_000n;
  for (const end of [far, far + 10n, far + 20n]) {
    marks.setMark("500", { running: [far - 1n], end, later: end, writers: ["1/1"] });
  }
  marks.meet("600");
  marks.setMark("7", { running: [], end: 1000n, later: 1001n, writers: [] });
  expect(forgotten).toBe(1);
  expect([marks.mark, marks.settledMark, marks.guardedMark.mark, marks.behindMet]).toEqual(["7", "0", "0", undefined]);
  expect(marks.awaited).toEqual([]);
});

test("a mark that is the last one again needs no new transaction, and settles", () => {
  const marks = new Marks(new ManualClock());
  marks.setMark("10", { running: [90n], end: 100n, later: 100n, writers: [] });
  expect(marks.lastRead).toBe("10");
  marks.setMark("10", { running: [90n], end: 101n, later: undefined, writers: undefined });
  expect([marks.settledMark, marks.guardedMark]).toEqual(["0", { mark: "10", running: [90n] }]);
  marks.setMark("10", { running: [], end: 101n, later: undefined, writers: undefined });
  expect([marks.settledMark, marks.guardedMark]).toEqual(["10", { mark: "10", running: [] }]);
});

test("the position behind the highest one met stands for a mark", () => {
  const marks = new Marks(new ManualClock());
  expect(marks.behindMet).toBeUndefined();
  for (const position of ["9", "10", "2"]) marks.meet(position);
  expect(marks.behindMet).toBe("11");
});
