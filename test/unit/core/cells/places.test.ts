import { describe, expect, test } from "@jest/globals";
import {
  abandoned,
  halfMoves,
  keptBy,
  lostBy,
  nextEpoch,
  orphaned,
  placeOf,
  superseded,
  twinsOf,
} from "../../../../src/core/cells/places.ts";
import type { ClaimToken } from "../../../../src/model/rows.ts";
import { type BucketRow, SUPERSEDED } from "../../../../src/ports/bucketStore.ts";

const row = (
  state: BucketRow["state"],
  epoch: number,
  otherCell: string | null = null,
  hasLeaseEnded = false,
  token: ClaimToken | null = null,
): BucketRow => ({
  bucket: 7,
  state,
  epoch,
  otherCell,
  token,
  hasLeaseEnded,
});
const [MOVE, OTHER_MOVE] = ["move", "other move"] as ClaimToken[] as [ClaimToken, ClaimToken];
const left = (epoch: number, otherCell: string, token: ClaimToken | null = MOVE) =>
  row("left", epoch, otherCell, false, token);
const arriving = (epoch: number, otherCell: string, token: ClaimToken = MOVE) =>
  row("arriving", epoch, otherCell, false, token);
/** What the cells know of the bucket 7; undefined for one that has not answered. */
const cells = (known: Readonly<Record<string, BucketRow | null | undefined>>) =>
  Object.entries(known).map(([name, its]) => ({
    name,
    rows: its === undefined ? undefined : new Map(its === null ? [] : [[7, its]]),
  }));

describe("a bucket is", () => {
  test.each([
    ["where it is open", { a: row("open", 1), b: null }, "a"],
    ["where it came last", { a: row("left", 2, "b"), b: row("left", 3, "c"), c: row("open", 3) }, "c"],
    ["back where it was", { a: row("open", 3), b: row("left", 3, "a") }, "a"],
    [
      "where it is open under the highest epoch, when an old state of a cell has come back",
      { a: row("open", 1), b: row("open", 2) },
      "b",
    ],
    ["in the first by name, where two have it under one epoch", { b: row("open", 1), a: row("open", 1) }, "a"],
    ["where it is open, whatever another cell has not answered", { a: row("open", 1), b: undefined }, "a"],
    ["where it is open, while it only arrives elsewhere", { a: row("open", 1), b: arriving(2, "a") }, "a"],
    [
      "where the cell that it really left says",
      { a: left(3, "c", SUPERSEDED), b: left(3, "d"), c: null, d: row("open", 3) },
      "d",
    ],
  ])("%s", (_, known, cell) => {
    expect(placeOf(7, cells(known))).toEqual({ cell });
  });

  test.each([
    [{ a: row("moving", 1, "b"), b: null }, "the bucket 7 is moving from the cell a to b"],
    [{ a: row("moving", 2, "b"), b: row("open", 1) }, "the bucket 7 is moving from the cell a to b"],
    [{ a: row("left", 2, "b"), b: null }, "the bucket 7 has left the cell a for b, where it is not open yet"],
    [{ a: row("left", 2, "b"), b: row("open", 1) }, "the bucket 7 has left the cell a for b, where it is not open yet"],
    [
      { a: left(2, "b"), b: null },
      "the bucket 7 has left the cell a for b, which knows nothing of it: if that is the right database, run svc cells move --bucket 7 --to a",
    ],
    [{ a: left(2, "b"), b: arriving(2, "a") }, "the bucket 7 has left the cell a for b, where it is not open yet"],
    [
      { a: left(3, "c", SUPERSEDED), b: arriving(4, "c"), c: null },
      "the bucket 7 was to arrive in the cell b from c, which knows nothing of it: if that is the right database, run svc cells move --bucket 7 --to b",
    ],
    [
      { a: left(3, "c", SUPERSEDED), b: arriving(4, "c"), c: row("moving", 3, "b") },
      "the bucket 7 is moving from the cell c to b",
    ],
    [{ a: null, b: undefined }, "where the bucket 7 is, is unknown: the cell b has not answered yet"],
    [
      { a: null, b: null },
      "where the bucket 7 is, is unknown: no cell has it: run svc cells move --bucket 7 --to the one that had it",
    ],
  ])("nowhere now: %j", (known, reason) => {
    expect(placeOf(7, cells(known))).toEqual({ reason });
  });
});

test("the server of a place is that of its cell", () => {
  const known = cells({ a: left(2, "b"), b: row("open", 2) }).map((cell) => ({
    ...cell,
    server: `server of ${cell.name}`,
  }));
  expect(placeOf(7, known)).toEqual({ cell: "b", server: "server of b" });
});

test("a move that ended between two cells is told by the last that was written of it", () => {
  const half = (known: Parameters<typeof cells>[0]) => halfMoves(cells(known));
  const move = { from: "a", to: "b", token: MOVE, buckets: [{ bucket: 7, epoch: 2 }] };
  expect(half({ a: left(2, "b"), b: null })).toEqual([move]);
  expect(half({ a: left(2, "b"), b: arriving(2, "a") })).toEqual([move]);
  expect(half({ a: left(2, "b", null), b: row("open", 1) })).toEqual([{ ...move, token: null }]);
  expect(half({ a: left(2, "b"), b: row("open", 2) })).toEqual([]);
  expect(half({ a: left(2, "b"), b: row("moving", 2, "a") })).toEqual([]);
  expect(half({ a: left(2, "b"), b: left(3, "c"), c: row("open", 3) })).toEqual([]);
  expect(half({ a: row("moving", 1, "b"), b: arriving(2, "a") })).toEqual([]);
});

test("a cell that knows nothing of what has left for it has lost it, unless it is empty", () => {
  const other = { ...row("open", 1), bucket: 8 };
  const lost = (its: BucketRow | undefined) => {
    const rows = new Map([other, ...(its === undefined ? [] : [its])].map((each) => [each.bucket, each]));
    return lostBy({ name: "b", rows }, { token: MOVE, buckets: [{ bucket: 7, epoch: 3 }] });
  };
  const [all, none] = [[{ bucket: 7, epoch: 3 }], []];
  expect([lost(undefined), lost(row("open", 1)), lost(left(2, "a")), lost(arriving(3, "a", OTHER_MOVE))]).toEqual([
    all,
    all,
    all,
    all,
  ]);
  const marked = { token: SUPERSEDED, buckets: all };
  expect(lostBy({ name: "b", rows: new Map([[7, arriving(3, "a")]]) }, marked)).toEqual(none);
  expect(lostBy({ name: "b", rows: new Map([[8, other]]) }, marked)).toEqual(all);
  expect([lost(arriving(3, "a")), lost(row("open", 3)), lost(left(4, "c"))]).toEqual([none, none, none]);
  const move = { token: MOVE, buckets: all };
  expect([lostBy({ name: "b", rows: new Map() }, move), lostBy({ name: "b", rows: undefined }, move)]).toEqual([
    none,
    none,
  ]);
});

test("what has left for a cell that knows nothing of it is kept by the cell that it left", () => {
  const kept = (known: Parameters<typeof cells>[0]) => keptBy(7, cells(known));
  expect([kept({ a: left(2, "b"), b: null }), kept({ a: left(2, "b"), b: row("open", 1) })]).toEqual(["a", "a"]);
  const others = [
    { a: left(2, "b", null), b: null },
    { a: left(2, "b"), b: arriving(2, "a") },
    { a: left(2, "b"), b: undefined },
    { a: left(2, "b"), b: row("open", 2) },
    { a: row("moving", 1, "b"), b: null },
  ];
  expect(others.map(kept)).toEqual(others.map(() => undefined));
});

describe("what only arrives in a cell, from one that has gone back to before it had it,", () => {
  const gone = "knows nothing of it: if that is the right database, run svc cells move --bucket 7 --to a";
  test.each([
    ["and no other cell has it", { a: arriving(3, "b"), b: null }],
    ["and another cell had it before", { a: arriving(5, "b"), b: null, c: left(3, "a") }],
    ["and which has marked it as left", { a: arriving(7, "b"), b: left(6, "a", SUPERSEDED) }],
    ["and which has an older state of it", { a: arriving(5, "b"), b: row("open", 2), c: left(3, "a") }],
  ])("is kept by that cell: %s", (_, known) => {
    const all = cells(known);
    expect(placeOf(7, all)).toEqual({ reason: `the bucket 7 was to arrive in the cell a from b, which ${gone}` });
    expect(keptBy(7, all)).toBe("a");
    // A table without any bucket may be that of a wrong database.
    const others = all.map((cell) => ({
      ...cell,
      rows: new Map([...(cell.rows ?? []), [8, row("open", 1)] as const]),
    }));
    expect(orphaned(others)).toEqual([
      { from: "b", to: "a", token: MOVE, buckets: [{ bucket: 7, epoch: known.a.epoch }] },
    ]);
    expect(orphaned(cells({ ...known, b: null }))).toEqual([]);
  });

  test.each([
    ["it still leaves", { a: arriving(3, "b"), b: row("moving", 2, "a") }],
    ["it has stayed where it was", { a: arriving(3, "b"), b: row("open", 2) }],
    ["it has gone elsewhere", { a: arriving(3, "b"), b: left(3, "c"), c: row("open", 3) }],
    ["the other cell has not answered", { a: arriving(3, "b"), b: undefined }],
    ["the other cell is none of these", { a: arriving(3, "gone"), b: null }],
  ])("but not where %s", (_, known) => {
    expect([keptBy(7, cells(known)), orphaned(cells(known))]).toEqual([undefined, []]);
  });
});

describe("what a cell has though another one has had it since", () => {
  const stale = (name: string, known: Parameters<typeof cells>[0]) => {
    const all = cells(known);
    return superseded(all.find((cell) => cell.name === name) ?? { name, rows: undefined }, all);
  };
  test.each([
    ["is open there", { a: row("open", 1), b: row("open", 2) }, [{ bucket: 7, epoch: 2, cell: "b" }]],
    ["was moving here", { a: row("moving", 1, "b"), b: row("open", 2) }, [{ bucket: 7, epoch: 2, cell: "b" }]],
    ["has moved on", { a: row("open", 1), b: left(3, "c"), c: undefined }, [{ bucket: 7, epoch: 3, cell: "c" }]],
    ["is here under the latest epoch", { a: row("open", 3), b: left(3, "a") }, []],
    ["is about to come back", { a: row("open", 1), b: left(3, "a") }, []],
    ["only arrives there", { a: row("open", 1), b: arriving(2, "a") }, []],
    ["has left already", { a: left(2, "b"), b: row("open", 2) }, []],
  ])("%s", (_, known, expected) => {
    expect(stale("a", known)).toEqual(expected);
  });
});

test("a bucket is abandoned when its lease has ended while it moves", () => {
  const of = (its: BucketRow) => cells({ a: its }).map(abandoned);
  expect(of(row("moving", 1, "b", true))).toEqual([[7]]);
  expect([of(row("moving", 1, "b")), of(row("left", 2, "b", true)), of(row("open", 1, null, true))]).toEqual([
    [[]],
    [[]],
    [[]],
  ]);
});

test("what no cell has is opened under a later epoch than any", () => {
  expect(nextEpoch(7, cells({ a: row("left", 4, "gone"), b: row("left", 2, "a") }))).toBe(5);
  expect(nextEpoch(7, cells({ a: row("left", 4, "gone"), b: arriving(5, "gone") }))).toBe(6);
  expect(nextEpoch(7, cells({ a: null }))).toBe(1);
});

describe("two cells are one database", () => {
  test.each([
    ["which has all buckets", { a: row("open", 1), c: null, b: row("open", 1) }],
    ["between whose names a bucket was moved", { a: row("left", 2, "b"), b: row("left", 2, "b") }],
  ])("%s", (_, known) => {
    expect(twinsOf(cells(known))).toEqual(["a", "b"]);
  });

  test.each([
    ["no bucket is known yet", { a: null, b: null }],
    ["one has not answered", { a: row("open", 1), b: undefined }],
    ["a bucket has left for the other", { a: row("left", 2, "b"), b: row("open", 2) }],
    ["a bucket has come back", { a: row("left", 2, "b"), b: row("left", 3, "a") }],
    [
      "what one that went back was told is what the other one says",
      { a: left(3, "c", SUPERSEDED), b: left(3, "c"), c: row("open", 3) },
    ],
    ["both went back", { a: left(3, "c", SUPERSEDED), b: left(3, "c", SUPERSEDED), c: row("open", 3) }],
    ["a bucket has left both", { a: row("left", 3, "c"), b: row("left", 3, "a"), c: row("open", 3) }],
  ])("not where %s", (_, known) => {
    expect(twinsOf(cells(known))).toBeUndefined();
  });
});
