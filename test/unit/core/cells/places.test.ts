import { describe, expect, test } from "@jest/globals";
import { abandoned, halfMoved, nextEpoch, placeOf, twinsOf } from "../../../../src/core/cells/places.ts";
import type { BucketRow } from "../../../../src/ports/bucketStore.ts";

const row = (
  state: BucketRow["state"],
  epoch: number,
  otherCell: string | null = null,
  hasLeaseEnded = false,
): BucketRow => ({
  bucket: 7,
  state,
  epoch,
  otherCell,
  hasLeaseEnded,
});
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
  ])("%s", (_, known, cell) => {
    expect(placeOf(7, cells(known))).toEqual({ cell });
  });

  test.each([
    [{ a: row("moving", 1, "b"), b: null }, "the bucket 7 is moving from the cell a to b"],
    [{ a: row("moving", 2, "b"), b: row("open", 1) }, "the bucket 7 is moving from the cell a to b"],
    [{ a: row("left", 2, "b"), b: null }, "the bucket 7 has left the cell a for b, where it is not open yet"],
    [{ a: row("left", 2, "b"), b: row("open", 1) }, "the bucket 7 has left the cell a for b, where it is not open yet"],
    [{ a: null, b: undefined }, "where the bucket 7 is, is unknown: the cell b has not answered yet"],
    [{ a: null, b: null }, "where the bucket 7 is, is unknown: no cell has it"],
  ])("nowhere now: %j", (known, reason) => {
    expect(placeOf(7, cells(known))).toEqual({ reason });
  });
});

test("a move that ended between two cells is told by the last that was written of it", () => {
  expect([...halfMoved(cells({ a: row("left", 2, "b"), b: null }))]).toEqual([["b", [{ bucket: 7, epoch: 2 }]]]);
  expect([...halfMoved(cells({ a: row("left", 2, "b"), b: row("open", 1) }))]).toEqual([
    ["b", [{ bucket: 7, epoch: 2 }]],
  ]);
  expect([...halfMoved(cells({ a: row("left", 2, "b"), b: row("open", 2) }))]).toEqual([]);
  expect([...halfMoved(cells({ a: row("left", 2, "b"), b: row("moving", 2, "a") }))]).toEqual([]);
  expect([...halfMoved(cells({ a: row("left", 2, "b"), b: row("left", 3, "c"), c: row("open", 3) }))]).toEqual([]);
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
    ["a bucket has left both", { a: row("left", 3, "c"), b: row("left", 3, "a"), c: row("open", 3) }],
  ])("not where %s", (_, known) => {
    expect(twinsOf(cells(known))).toBeUndefined();
  });
});
