import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow } from "../../../src/model/rows.ts";
import { claimRequest, failed, parked, released, type StoreHarness, sent } from "./harness.ts";

/** How the row came to be due. Each leaves it pending, and due. */
const WAYS: Readonly<Record<string, (harness: StoreHarness) => Promise<void>>> = {
  "just inserted": async (harness) => void (await harness.insertOutbox([{ key: "k" }])),
  "scheduled ahead": async (harness) => {
    await harness.insertOutbox([{ key: "k", dueInMs: 60_000 }]);
    await harness.ageOutbox(60_000);
  },
  replayed: async ({ insertOutbox, store }) => {
    const ids = await insertOutbox([{ key: "k" }]);
    await store.outbox.settle((await claimAll({ store })).map(sent));
    expect(await store.replay.move(await store.replay.begin(), ids, "alice")).toMatchObject({ changed: 1 });
  },
  retried: async ({ insertOutbox, store }) => {
    await insertOutbox([{ key: "k" }]);
    await store.outbox.settle((await claimAll({ store })).map((row) => failed(row, 0)));
  },
  "parked and retried": async ({ insertOutbox, store }) => {
    const ids = await insertOutbox([{ key: "k" }]);
    await store.outbox.settle((await claimAll({ store })).map(parked));
    expect(await store.parked.retry(ids, "alice")).toMatchObject({ changed: 1 });
  },
};

/** How a claim ends that leaves the row unchanged. */
const ENDS: Readonly<Record<string, (harness: StoreHarness, rows: readonly ClaimedRow[]) => Promise<void>>> = {
  "a release": async ({ store }, rows) => void (await store.outbox.settle(rows.map(released))),
  "the end of its lease": async (harness) => {
    await harness.expireLeases();
    expect(await harness.store.outbox.reclaim(100, 300_000)).toBe(1);
  },
};

const HOUR_MS = 3_600_000;

export function exerciseSetBackClock(open: () => Promise<StoreHarness>): void {
  const cases = Object.keys(WAYS).flatMap((way) => Object.keys(ENDS).map((end) => [way, end] as const));
  describe("when the clock is set back during a claim", () => {
    test.each(cases)("a row that was %s goes first in its key after %s, at once", async (way, end) => {
      await using harness = await open();
      await WAYS[way]?.(harness);
      const rows = await claimAll(harness);
      expect(rows).toHaveLength(1);
      await harness.ageOutbox(-HOUR_MS);
      await ENDS[end]?.(harness, rows);

      const later = await harness.insertOutbox([{ key: "k" }]);

      const next = await claimAll({ store: await harness.replica() });
      expect(next.map(({ id }) => id)).toEqual([...rows.map(({ id }) => id), ...later]);
    });
  });
}

const claimAll = async ({ store }: Pick<StoreHarness, "store">) => (await store.outbox.claim(claimRequest())).rows;
