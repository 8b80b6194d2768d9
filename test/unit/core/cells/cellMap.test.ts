import { expect, test } from "@jest/globals";
import { CellMap } from "../../../../src/core/cells/cellMap.ts";
import type { ClaimToken } from "../../../../src/model/rows.ts";
import type { BucketStore } from "../../../../src/ports/bucketStore.ts";
import { MemoryCell } from "../../../property/cells/memoryCell.ts";
import { silentLog } from "../../../support/recorders.ts";

const BUCKET = 7;
const MOVE = { token: "a move" as ClaimToken, leaseMs: 10_000 };
const at = (epoch: number) => [{ bucket: BUCKET, epoch }];

/** A cell of which calls fail while it is away. */
class Reached {
  readonly name: string;
  readonly tables: MemoryCell;
  isAway = false;
  readonly store: { readonly buckets: BucketStore };

  constructor(name: string) {
    this.name = name;
    this.tables = new MemoryCell(name, () => 0);
    const call =
      (method: keyof BucketStore) =>
      async (...args: readonly unknown[]) => {
        if (this.isAway) throw new Error("the database is away");
        return (this.tables[method] as (...args: readonly unknown[]) => unknown).apply(this.tables, [...args]);
      };
    this.store = { buckets: new Proxy({} as BucketStore, { get: (_, method: keyof BucketStore) => call(method) }) };
  }

  stateOf(bucket: number) {
    return this.tables.tables.buckets.get(bucket)?.state;
  }
}

/** The bucket has left a cell for another, which went back to before that: it knows of another bucket alone. */
function lose({ tables: from }: Reached, { tables: to }: Reached): void {
  from.open(at(1));
  from.close([BUCKET], "b", MOVE);
  from.leave([BUCKET], MOVE.token);
  to.open([{ bucket: BUCKET + 1, epoch: 1 }]);
}

test("takes nothing back from a cell that went back in time before all cells have told what they have", async () => {
  const [a, b, c] = ["a", "b", "c"].map((name) => new Reached(name)) as [Reached, Reached, Reached];
  lose(a, b);
  // The second one had given the bucket to the third, which is away now.
  c.tables.open(at(3));
  c.isAway = true;
  const map = new CellMap({ cells: [a, b, c], log: silentLog });

  await map.refresh();
  await map.refresh();
  expect([a, b, c].map((cell) => cell.stateOf(BUCKET))).toEqual(["left", undefined, "open"]);
  expect(map.cellOf(BUCKET)).toMatchObject({
    reason: expect.stringMatching(/^the bucket 7 has left the cell a for b/),
  });

  c.isAway = false;
  await map.refresh();
  await map.refresh();
  expect([a, b, c].map((cell) => cell.stateOf(BUCKET))).toEqual(["left", undefined, "open"]);
  expect(map.cellOf(BUCKET)).toMatchObject({ cell: "c" });
});

test("takes back what a cell that went back in time has lost", async () => {
  const [a, b] = ["a", "b"].map((name) => new Reached(name)) as [Reached, Reached];
  lose(a, b);
  const map = new CellMap({ cells: [a, b], log: silentLog });

  await map.refresh();
  expect(map.cellOf(BUCKET)).toMatchObject({ cell: "a" });
  expect(a.tables.tables.buckets.get(BUCKET)).toMatchObject({ state: "open", epoch: 3 });
});
