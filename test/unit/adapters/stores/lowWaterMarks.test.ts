import { expect, test } from "@jest/globals";
import { LowWaterMarks } from "../../../../src/adapters/stores/sql/lowWaterMarks.ts";
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
  const marks = new LowWaterMarks(new ManualClock());
  for (const [mark, running, end, writers = [], later = end] of reads)
    marks.setNewest(mark, { running, end, later, writers });
  return { newest: marks.newest, stable: marks.stable, conditional: marks.conditional };
}

test("a mark counts for order only when it has been read again", () => {
  expect(marksAfter(["10", [], 100n])).toEqual({ newest: "10", stable: "0", conditional: { mark: "0", running: [] } });
});

test("a mark is stable when all that ran while it was read have ended", () => {
  expect(marksAfter(["10", [90n, 95n], 100n], ["20", [95n], 105n]).stable).toBe("0");
  expect(marksAfter(["10", [90n, 95n], 100n], ["20", [95n], 105n], ["30", [103n], 110n]).stable).toBe("10");
  expect(marksAfter(["10", [], 100n], ["20", [100n], 105n]).stable).toBe("10");
});

test("under a transaction that stays open the conditional mark follows, and names it", () => {
  const open = [90n];
  const { stable, conditional } = marksAfter(["10", open, 100n], ["20", [...open, 104n], 105n], ["30", open, 110n]);
  expect(stable).toBe("0");
  expect(conditional).toEqual({ mark: "20", running: open });
});

test("what began after a mark was read is no condition of it", () => {
  expect(marksAfter(["10", [], 100n], ["20", [101n], 105n]).conditional).toEqual({ mark: "10", running: [] });
});

test("a lower mark lowers both: a row that had not been seen before came below them", () => {
  const { stable, conditional } = marksAfter(["10", [], 100n], ["20", [], 105n], ["5", [], 110n]);
  expect(stable).toBe("5");
  expect(conditional.mark).toBe("5");
});

test("reading a mark without a bound takes no more than a fiftieth of the time", () => {
  const clock = new ManualClock();
  const marks = new LowWaterMarks(clock);
  expect(marks.fullReadIsDue()).toBe(true);
  marks.fullReadTook(100);
  clock.advance(4999);
  expect(marks.fullReadIsDue()).toBe(false);
  clock.advance(1);
  expect(marks.fullReadIsDue()).toBe(true);
});

test("a read without a bound that waited ten seconds for a lock puts the next one off by a minute at most", () => {
  const clock = new ManualClock();
  const marks = new LowWaterMarks(clock);
  marks.fullReadTook(10_000);
  clock.advance(59_999);
  expect(marks.fullReadIsDue()).toBe(false);
  clock.advance(1);
  expect(marks.fullReadIsDue()).toBe(true);
});

test("where nothing is unfinished the last mark stays", () => {
  expect(marksAfter(["10", [], 100n], [undefined, [], 105n], [undefined, [], 110n])).toEqual({
    newest: "10",
    stable: "10",
    conditional: { mark: "10", running: [] },
  });
});

test("what may have run behind the newest transaction that had ended is waited for, and guards a mark", () => {
  const first = ["10", [90n], 100n, [], 103n] as const;
  expect(marksAfter(first, ["20", [101n, 102n], 104n])).toMatchObject({
    stable: "0",
    conditional: { mark: "10", running: [101n, 102n] },
  });
  expect(marksAfter(first, ["20", [103n], 104n])).toMatchObject({
    stable: "10",
    conditional: { mark: "10", running: [] },
  });
});

test("a mark does not count before writers without a number are seen to have ended, by a read before the one that takes it", () => {
  const first = ["10", [], 100n, ["3/7"]] as const;
  const nothing = { stable: "0", conditional: { mark: "0", running: [] } };
  expect(marksAfter(first, ["20", [], 105n, ["3/7"]])).toMatchObject(nothing);
  // It may have ended behind this snapshot.
  expect(marksAfter(first, ["20", [], 105n, []])).toMatchObject(nothing);
  expect(marksAfter(first, ["20", [], 105n, []], ["5", [], 110n])).toMatchObject({
    newest: "5",
    stable: "5",
    conditional: { mark: "5" },
  });
});

test("a mark that is conditional stays while newer ones wait for writers", () => {
  const reads: readonly Read[] = [
    ["10", [90n], 100n],
    ["20", [90n], 105n, ["3/7"]],
    ["30", [90n], 110n, ["3/7"]],
    ["40", [90n], 115n, ["3/7"]],
  ];
  expect(marksAfter(...reads)).toMatchObject({ stable: "0", conditional: { mark: "10", running: [90n] } });
});

test("where somebody always writes marks still count, each after the writers of its own read", () => {
  const reads: readonly Read[] = [
    ["10", [], 100n, ["1/1"]],
    ["20", [], 105n, ["1/2"]],
    ["30", [], 110n, ["1/3"]],
    ["40", [], 115n, ["1/4"]],
    ["50", [], 120n, ["1/5"]],
  ];
  expect(marksAfter(...reads.slice(0, 3))).toMatchObject({ stable: "10", conditional: { mark: "10" } });
  expect(marksAfter(...reads)).toMatchObject({ stable: "30", conditional: { mark: "30" } });
});

test("transactions that lie further back than one that has ended are another database: nothing of the last one counts", () => {
  let forgotten = 0;
  const marks = new LowWaterMarks(new ManualClock());
  marks.onForget(() => {
    forgotten += 1;
  });
  const far = 3_000_000_000n;
  for (const end of [far, far + 10n, far + 20n]) {
    marks.setNewest("500", { running: [far - 1n], end, later: end, writers: ["1/1"] });
  }
  marks.saw("600");
  marks.setNewest("7", { running: [], end: 1000n, later: 1001n, writers: [] });
  expect(forgotten).toBe(1);
  expect([marks.newest, marks.stable, marks.conditional.mark, marks.afterHighest]).toEqual(["7", "0", "0", undefined]);
  expect(marks.awaited).toEqual([]);
});

test("a mark that is the last one again needs no new transaction, and becomes stable", () => {
  const marks = new LowWaterMarks(new ManualClock());
  marks.setNewest("10", { running: [90n], end: 100n, later: 100n, writers: [] });
  expect(marks.lastRead).toBe("10");
  marks.setNewest("10", { running: [90n], end: 101n, later: undefined, writers: undefined });
  expect([marks.stable, marks.conditional]).toEqual(["0", { mark: "10", running: [90n] }]);
  marks.setNewest("10", { running: [], end: 101n, later: undefined, writers: undefined });
  expect([marks.stable, marks.conditional]).toEqual(["10", { mark: "10", running: [] }]);
});

test("the position behind the highest one seen takes the place of a mark", () => {
  const marks = new LowWaterMarks(new ManualClock());
  expect(marks.afterHighest).toBeUndefined();
  for (const position of ["9", "10", "2"]) marks.saw(position);
  expect(marks.afterHighest).toBe("11");
});
