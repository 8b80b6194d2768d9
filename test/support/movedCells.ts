import { randomUUID } from "node:crypto";
import { CellMap } from "../../src/core/cells/cellMap.ts";
import { Mover, type MoverOptions } from "../../src/core/cells/mover.ts";
import type { Cell } from "../../src/core/cells/places.ts";
import { bucketOf } from "../../src/model/cells.ts";
import type { ClaimToken, NewInboxRow } from "../../src/model/rows.ts";
import type { BucketStore } from "../../src/ports/bucketStore.ts";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, relayRequest, sent } from "../conformance/store/harness.ts";
import type { TestDatabase } from "./databases.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore } from "./postgresHarness.ts";
import { ManualClock, silentLog } from "./recorders.ts";

export const TOPICS = relayRequest({ topics: { orders: ["orders.", ""] } });
export const NEVER = new AbortController().signal;
export const newToken = () => randomUUID() as ClaimToken;
export const inBucket = (row: NewInboxRow): NewInboxRow & { readonly bucket: number } => ({
  ...row,
  bucket: bucketOf(row.aggregateId ?? row.idempotencyKey),
});

export interface TestCell extends Cell {
  readonly store: Store;
  readonly database: TestDatabase;
}

/** Two cells in databases of their own, of which the first has every bucket. Call it at the top level of the file. */
export function useCells() {
  const openMigrated = databaseCopies();
  return async () => {
    const cells: TestCell[] = [];
    for (const name of ["a", "b"]) {
      const database = await openMigrated();
      cells.push({ name, database, store: postgresStore(database, DEFAULT_NAMES, new ManualClock(), silentLog) });
    }
    const [a, b] = cells as [TestCell, TestCell];
    const map = new CellMap({ cells, log: silentLog });
    await map.refresh();
    const others: Store[] = [];
    return {
      a,
      b,
      cells,
      map,
      mover: (options: Partial<MoverOptions> = {}) =>
        new Mover({
          cells,
          ownKeySources: ["own"],
          newToken,
          clock: systemClock,
          log: silentLog,
          waitMs: 1000,
          ...options,
        }),
      /** Another process on a cell. */
      another({ database }: TestCell) {
        const store = postgresStore(database, DEFAULT_NAMES, new ManualClock(), silentLog);
        others.push(store);
        return store;
      },
      async [Symbol.asyncDispose]() {
        for (const store of [...others, ...cells.map((cell) => cell.store)]) await store.close();
        for (const { database } of cells) await database.drop();
      },
    };
  };
}

export const toB = (...buckets: readonly number[]) => buckets.map((bucket) => ({ bucket, from: "a", to: "b" }));
export const states = async ({ store }: Cell, ...buckets: readonly number[]) =>
  (await store.buckets.all()).rows
    .filter(({ bucket }) => buckets.includes(bucket))
    .toSorted((x, y) => x.bucket - y.bucket)
    .map(({ state, epoch }) => `${state} ${epoch}`)
    .join();
/** Relays and sends all that can be. @returns the payloads in order */
export async function deliver({ store }: { readonly store: Store }): Promise<readonly string[]> {
  while ((await store.inbox.relay(TOPICS)).relayed > 0);
  const { rows } = await store.outbox.claim(claimRequest());
  await store.outbox.settle(rows.map(sent));
  return rows.map(({ payload }) => payload ?? "");
}
/** Runs something when a method of the cell's buckets has done its work, or before it, and before its caller learns of it. */
export function watch<C extends Cell>(
  { name, store }: C,
  method: keyof BucketStore,
  run: () => Promise<void>,
  when: "after" | "before" = "after",
): Cell {
  const watched = new Proxy(store.buckets, {
    get: (target, key: keyof BucketStore) => {
      if (key !== method) return target[key];
      return async (...args: readonly unknown[]) => {
        if (when === "before") await run();
        const result = await (target[key] as (...given: readonly unknown[]) => Promise<unknown>)(...args);
        if (when === "after") await run();
        return result;
      };
    },
  });
  return { name, store: { buckets: watched } };
}
