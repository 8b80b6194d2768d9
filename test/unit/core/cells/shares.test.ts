import { describe, expect, test } from "@jest/globals";
import { equalShares } from "../../../../src/core/cells/shares.ts";

/** The owners of buckets, from how many each cell has; `none` for those that no cell has. */
function owned(counts: Readonly<Record<string, number>>): ReadonlyMap<number, string | undefined> {
  const owners = Object.entries(counts).flatMap(([cell, n]) => Array.from({ length: n }, () => cell));
  return new Map(owners.map((cell, bucket) => [bucket, cell === "none" ? undefined : cell]));
}

/** How many each cell has after the moves. */
function after(owners: ReadonlyMap<number, string | undefined>, cells: readonly string[]) {
  const result = new Map(owners);
  const plan = equalShares(owners, cells);
  for (const { bucket, from, to } of plan) {
    expect(result.get(bucket)).toBe(from);
    expect(to).not.toBe(from);
    result.set(bucket, to);
  }
  const counts = cells.map((cell) => [...result.values()].filter((owner) => owner === cell).length);
  return { counts, moves: plan.length };
}

describe("equal shares", () => {
  test.each([
    [{ a: 1024 }, ["a", "b"], [512, 512], 512],
    [{ a: 512, b: 512 }, ["a", "b"], [512, 512], 0],
    [{ a: 512, b: 512 }, ["a", "b", "c"], [342, 341, 341], 341],
    // The one that has more already keeps the rest of the division.
    [{ a: 341, b: 341, c: 342 }, ["a", "b", "c"], [341, 341, 342], 0],
    [{ a: 341, b: 341, c: 342 }, ["a", "b"], [512, 512], 342],
    [{ a: 3, b: 7, none: 2 }, ["a", "b"], [6, 6], 3],
    [{ a: 5 }, ["a"], [5], 0],
  ])("of %j for %j", (counts, cells, expected, moves) => {
    expect(after(owned(counts), cells)).toEqual({ counts: expected, moves });
  });

  test("of nobody are none", () => {
    expect(equalShares(owned({ a: 3 }), [])).toEqual([]);
  });
});
