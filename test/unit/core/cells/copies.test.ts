import { expect, test } from "@jest/globals";
import { Copies } from "../../../../src/core/cells/copies.ts";
import { BUCKETS } from "../../../../src/model/cells.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
import type { BucketStore, StoredRow } from "../../../../src/ports/bucketStore.ts";
import { ManualClock } from "../../../support/recorders.ts";

const ROWS = Array.from({ length: 100 }, (_, n) => ({
  id: `row ${n}` as MessageId,
  source: "orders",
  idempotencyKey: `${n}`,
  aggregateId: null,
  bytes: 10,
}));

/** A cell with finished rows, and one that takes them; `onCopy` is called with the size of each statement. */
function setUp(onCopy: (rows: number, clock: ManualClock) => void) {
  const clock = new ManualClock();
  const sizes: number[] = [];
  const from = {
    finished: async () => ({ rows: ROWS, next: undefined }),
    read: async (ids: readonly MessageId[]) =>
      ROWS.filter(({ id }) => ids.includes(id)).map(({ id, idempotencyKey }) => ({ id, idempotencyKey })),
  } as unknown as BucketStore;
  const to = {
    all: async () => ({ rows: [], server: undefined }),
    copy: async (rows: readonly StoredRow[]) => {
      sizes.push(rows.length);
      onCopy(rows.length, clock);
      return { stored: rows.length, refused: new Map() };
    },
  } as unknown as BucketStore;
  const refused: string[] = [];
  const copies = new Copies(from, clock, (_, id) => refused.push(id));
  const targets = new Map(Array.from({ length: BUCKETS }, (_, bucket) => [bucket, to] as const));
  return { pass: () => copies.pass(targets, new AbortController().signal), sizes, refused };
}

const tooSlow = () => new StoreError("contention", "canceling statement due to lock timeout");

test("one statement that waited for a lock makes no later one small", async () => {
  let isLocked = true;
  const { pass, sizes, refused } = setUp((rows) => {
    if (!isLocked) return;
    if (rows === 1) isLocked = false;
    throw tooSlow();
  });
  expect(await pass()).toBe(100);
  expect(refused).toEqual(["row 0"]);
  expect(sizes).toEqual([100, 50, 25, 13, 7, 4, 2, 1, 1, 2, 4, 8, 16, 32, 36]);
});

test("where as many rows as before would take too long, statements stay small", async () => {
  const { pass, sizes } = setUp((rows, clock) => {
    clock.advance(rows * 100);
    if (rows > 30) throw tooSlow();
  });
  expect(await pass()).toBe(100);
  expect(sizes).toEqual([100, 50, 25, 25, 25, 25]);
});
