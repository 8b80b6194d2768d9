import { describe, expect, test } from "@jest/globals";
import type { MessageId } from "../../../src/model/rows.ts";
import type { RetentionPolicy, RetentionRange } from "../../../src/ports/finishedRows.ts";
import type { Store } from "../../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, type StoreHarness, sent } from "./harness.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

const outboxByAge = (maxAgeMs: number): RetentionPolicy => ({ table: "outbox", kind: "AGE", maxAgeMs });
const inboxByAge = (maxAgeMs: number): RetentionPolicy => ({ table: "inbox", kind: "AGE", maxAgeMs });
const byCount = (maxCount: number): RetentionPolicy => ({ table: "outbox", kind: "COUNT", maxCount });

/** Deletes the ranges to their ends. @returns how many rows each batch deleted */
async function deleteAll(store: Store, ranges: readonly RetentionRange[], limit: number): Promise<readonly number[]> {
  const batches: number[] = [];
  for (const range of ranges) {
    for (let left: RetentionRange | null = range; left !== null; ) {
      const { deleted, rest } = await store.retention.deleteBatch(left, limit);
      batches.push(deleted);
      left = rest;
    }
  }
  return batches;
}

/** One sweep. @returns the number of rows deleted */
async function sweep(store: Store, policy: RetentionPolicy, limit = 100): Promise<number> {
  const batches = await deleteAll(store, await store.retention.plan(policy), limit);
  return batches.reduce((sum, deleted) => sum + deleted, 0);
}

async function insertInbox({ store }: StoreHarness, count: number): Promise<readonly MessageId[]> {
  const rows = Array.from({ length: count }, () => inboxRow());
  await store.inbox.insert(rows);
  return rows.map((row) => row.id);
}

const rowsOf = (count: number) => Array.from({ length: count }, () => ({}));
const idsIn = (rows: readonly { readonly id: MessageId }[]) => rows.map(({ id }) => id);

export function exerciseRetention(open: () => Promise<StoreHarness>): void {
  describe("retention", () => {
    test.each(["sent", "dead"] as const)("by age deletes outbox rows that were %s too long ago", async (state) => {
      await using harness = await open();
      const [old, young] = await harness.insertOutbox(rowsOf(2));
      await harness.finishOutbox([old as MessageId], { state, finishedMsAgo: HOUR + 1000 });
      await harness.finishOutbox([young as MessageId], { state, finishedMsAgo: HOUR - 60_000, createdMsAgo: DAY });

      expect(await sweep(harness.store, outboxByAge(HOUR))).toBe(1);

      expect(idsIn(await harness.outboxRows())).toEqual([young]);
    });

    test.each(["processed", "dead"] as const)("by age deletes inbox rows that are %s and old", async (state) => {
      await using harness = await open();
      const [old, young] = await insertInbox(harness, 2);
      await harness.finishInbox([old as MessageId], { state, receivedMsAgo: HOUR + 1000 });
      await harness.finishInbox([young as MessageId], { state, receivedMsAgo: HOUR - 60_000 });

      expect(await sweep(harness.store, inboxByAge(HOUR))).toBe(1);

      expect(idsIn(await harness.inboxRows())).toEqual([young]);
    });

    test("by count keeps exactly so many sent rows and, apart from them, so many dead rows: the newest", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox(rowsOf(9));
      // The first row finished last.
      for (const [n, id] of ids.entries()) {
        await harness.finishOutbox([id], { state: n < 5 ? "sent" : "dead", finishedMsAgo: n * 60_000 });
      }

      expect(await sweep(harness.store, byCount(3), 2)).toBe(3);

      expect(idsIn(await harness.outboxRows())).toEqual([...ids.slice(0, 3), ...ids.slice(5, 8)]);
    });

    test("of rows that finished at the same moment by count keeps those with the highest sequence", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox(rowsOf(7));
      await harness.finishOutbox(ids, { state: "sent", finishedMsAgo: HOUR });

      expect(await sweep(harness.store, byCount(3), 2)).toBe(4);

      expect(idsIn(await harness.outboxRows())).toEqual(ids.slice(4));
    });

    test("a moment that many rows share does not keep batches from getting through them", async () => {
      await using harness = await open();
      const outbox = await harness.insertOutbox(rowsOf(5));
      await harness.finishOutbox(outbox, { state: "dead", finishedMsAgo: HOUR });
      await harness.finishInbox(await insertInbox(harness, 5), { state: "processed", receivedMsAgo: HOUR });

      expect(await sweep(harness.store, outboxByAge(60_000), 2)).toBe(5);
      expect(await sweep(harness.store, inboxByAge(60_000), 2)).toBe(5);

      expect([await harness.outboxRows(), await harness.inboxRows()]).toEqual([[], []]);
    });

    test("nothing to delete makes no ranges", async () => {
      await using harness = await open();
      const { retention } = harness.store;
      const policies = [outboxByAge(HOUR), inboxByAge(HOUR), byCount(2)];
      const plans = () => Promise.all(policies.map((policy) => retention.plan(policy)));
      expect(await plans()).toEqual([[], [], []]);

      await harness.finishOutbox(await harness.insertOutbox(rowsOf(2)), { state: "sent" });
      await harness.finishInbox(await insertInbox(harness, 2), { state: "dead" });

      expect(await plans()).toEqual([[], [], []]);
    });

    test("outbox rows that wait, run, or are to be tried again stay, however old, and do not count", async () => {
      await using harness = await open();
      const { store } = harness;
      await harness.insertOutbox(rowsOf(3));
      const { rows } = await store.outbox.claim(claimRequest({ limit: 2 }));
      const [retried] = rows;
      if (retried === undefined) throw new Error("nothing was claimed");
      const { id, claimToken } = retried;
      await store.outbox.settle([{ id, claimToken, kind: "retry", delayMs: 60_000, reason: "status 500" }]);
      const states = async () => (await harness.outboxRows()).map((row) => row.state);
      expect(await states()).toEqual(["pending", "processing", "pending"]);

      expect(await sweep(store, outboxByAge(0))).toBe(0);
      expect(await sweep(store, byCount(1))).toBe(0);

      expect(await states()).toEqual(["pending", "processing", "pending"]);
      await store.outbox.settle(rows.slice(1).map(sent));
      expect(await sweep(store, outboxByAge(0))).toBe(1);
      expect(await states()).toEqual(["pending", "pending"]);
    });

    test("inbox rows that wait stay, be it for the relay or for a pull client", async () => {
      await using harness = await open();
      const { store } = harness;
      await store.inbox.insert([inboxRow(), inboxRow({ consumption: "pull" }), inboxRow({ source: "unknown" })]);

      expect(await sweep(store, inboxByAge(0))).toBe(0);

      await store.inbox.relay(relayRequest());
      expect(await sweep(store, inboxByAge(0))).toBe(1);
      expect((await harness.inboxRows()).map((row) => [row.source, row.consumption])).toEqual([
        ["orders", "pull"],
        ["unknown", "push"],
      ]);
    });

    test("a batch deletes no more than its limit, the oldest first", async () => {
      await using harness = await open();
      const outbox = await harness.insertOutbox(rowsOf(5));
      const inbox = await insertInbox(harness, 5);
      for (let n = 0; n < 5; n += 1) {
        await harness.finishOutbox(outbox.slice(n, n + 1), { state: "sent", finishedMsAgo: HOUR + n * 60_000 });
        await harness.finishInbox(inbox.slice(n, n + 1), {
          state: n % 2 === 0 ? "processed" : "dead",
          receivedMsAgo: HOUR + n * 60_000,
        });
      }
      const { retention } = harness.store;

      const ranges = [...(await retention.plan(outboxByAge(HOUR))), ...(await retention.plan(inboxByAge(HOUR)))];

      const first = await Promise.all(ranges.map((range) => retention.deleteBatch(range, 2)));
      expect(first.map(({ deleted }) => deleted)).toEqual([2, 2]);
      expect(idsIn(await harness.outboxRows())).toEqual(outbox.slice(0, 3));
      expect(new Set(idsIn(await harness.inboxRows()))).toEqual(new Set(inbox.slice(0, 3)));
      const rest = first.flatMap((batch) => batch.rest ?? []);
      expect(await deleteAll(harness.store, rest, 2)).toEqual([2, 1, 2, 1]);
    });

    test("a batch begins at the end of the one before: a row that turns up behind it is for the next sweep", async () => {
      await using harness = await open();
      const { store } = harness;
      const ids = await harness.insertOutbox(rowsOf(4));
      await harness.finishOutbox(ids.slice(0, 3), { state: "sent", finishedMsAgo: HOUR });
      const [range] = await store.retention.plan(outboxByAge(60_000));
      const { rest } = await store.retention.deleteBatch(range as RetentionRange, 2);
      await harness.finishOutbox(ids.slice(3), { state: "sent", finishedMsAgo: DAY });

      expect(await deleteAll(store, rest === null ? [] : [rest], 2)).toEqual([1]);

      expect(idsIn(await harness.outboxRows())).toEqual(ids.slice(3));
      expect(await sweep(store, outboxByAge(60_000))).toBe(1);
    });

    test("what finishes after the plan is for the next sweep", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox(rowsOf(4));
      await harness.finishOutbox(ids.slice(0, 2), { state: "sent", finishedMsAgo: HOUR });
      const byZeroAge = await harness.store.retention.plan(outboxByAge(0));
      const byOne = await harness.store.retention.plan(byCount(1));
      await harness.finishOutbox(ids.slice(2), { state: "sent" });

      expect(await deleteAll(harness.store, byOne, 100)).toEqual([1]);
      expect(await deleteAll(harness.store, byZeroAge, 100)).toEqual([1]);

      expect(idsIn(await harness.outboxRows())).toEqual(ids.slice(2));
    });

    test("a row that was replayed after the plan stays, also when it is delivered again before the batch", async () => {
      await using harness = await open();
      const [first, second, third] = await harness.insertOutbox(rowsOf(3));
      const all = [first, second, third] as MessageId[];
      await harness.finishOutbox(all, { state: "dead", finishedMsAgo: HOUR });
      const ranges = await harness.store.retention.plan(outboxByAge(60_000));
      await harness.reset(first as MessageId);
      await harness.reset(second as MessageId);
      await harness.finishOutbox([second as MessageId], { state: "dead" });

      expect(await deleteAll(harness.store, ranges, 100)).toEqual([1]);

      expect((await harness.outboxRows()).map((row) => [row.id, row.state])).toEqual([
        [first, "pending"],
        [second, "dead"],
      ]);
    });

    test("replicas that sweep at once delete, and count, each row once", async () => {
      await using harness = await open();
      const stores = [harness.store, await harness.replica(), await harness.replica()];
      const outbox = await harness.insertOutbox(rowsOf(500));
      await harness.finishOutbox(outbox.slice(0, 250), { state: "sent", finishedMsAgo: HOUR });
      await harness.finishOutbox(outbox.slice(250), { state: "dead", finishedMsAgo: HOUR });
      await harness.finishInbox(await insertInbox(harness, 300), { state: "processed", receivedMsAgo: HOUR });

      const deleted = await Promise.all(
        stores.flatMap((store) => [sweep(store, byCount(50), 10), sweep(store, inboxByAge(60_000), 10)]),
      );

      expect(deleted.reduce((sum, count) => sum + count, 0)).toBe(400 + 300);
      expect(await harness.inboxRows()).toEqual([]);
      expect(idsIn(await harness.outboxRows())).toEqual([...outbox.slice(200, 250), ...outbox.slice(450)]);
    });

    test.each([
      ["nine centuries", 900 * 365 * DAY],
      ["longer than times go back", 3_000_000 * DAY],
      ["the longest that can be configured", 999_999_999 * DAY],
    ])("an age of %s deletes nothing", async (_, maxAgeMs) => {
      await using harness = await open();
      await harness.finishOutbox(await harness.insertOutbox(rowsOf(1)), { state: "sent", finishedMsAgo: 365 * DAY });
      await harness.finishInbox(await insertInbox(harness, 1), { state: "dead", receivedMsAgo: 365 * DAY });

      expect(await sweep(harness.store, outboxByAge(maxAgeMs))).toBe(0);
      expect(await sweep(harness.store, inboxByAge(maxAgeMs))).toBe(0);
    });
  });
}
