import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { ClaimToken, InsertResult, NewInboxRow } from "../../../src/model/rows.ts";
import { type BucketStore, type StoredRow, SUPERSEDED, type UnfinishedRow } from "../../../src/ports/bucketStore.ts";
import type { Store } from "../../../src/ports/store.ts";
import { claimRequest, failed, inboxRow, parked, relayRequest, type StoreHarness } from "./harness.ts";

const lease = (leaseMs = 60_000) => ({ token: randomUUID() as ClaimToken, leaseMs });
const at = (epoch: number, ...buckets: readonly number[]) => buckets.map((bucket) => ({ bucket, epoch }));
const SCHEDULE = { delayMs: 60_000, publishedAt: null, notBefore: null };
const TOPICS = relayRequest({ topics: { orders: ["orders.", ""] } });

/** All pages, of two rows each. */
async function all<T>(
  page: (from: string | undefined) => ReturnType<BucketStore["finished" | "unfinished"]>,
): Promise<T[]> {
  const rows: unknown[] = [];
  for (let from: string | undefined; ; ) {
    const { rows: more, next } = await page(from);
    rows.push(...more);
    if (next === undefined) return rows as T[];
    from = next;
  }
}

/** How a store takes received rows, by what it does with them. */
const WAYS: Readonly<Record<string, (store: Store, rows: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>>> =
  {
    "one after the other": (store, rows) => store.inbox.insert(rows),
    "of several kinds": (store, rows) => store.inbox.insert(rows.map((row, n) => ({ ...row, source: `source-${n}` }))),
    "with times": (store, rows) => store.inbox.insert(rows.map((row) => ({ ...row, schedule: SCHEDULE }))),
    "all or none": (store, rows) => store.inbox.insertAllOrNone(rows),
    "behind a duplicate": async (store, [first = inboxRow(), ...rows]) => {
      const { bucket: _, ...known } = first;
      await store.inbox.insert([known]);
      const outcomes = await store.inbox.insert([
        inboxRow({ ...known, id: randomUUID() as NewInboxRow["id"], bucket: 7 }),
        ...rows,
      ]);
      expect(outcomes[0]).toEqual({ kind: "duplicate" });
      return [{ kind: "stored" }, ...outcomes.slice(1)];
    },
    "and relayed": async (store, rows) => {
      await store.inbox.relay(TOPICS);
      return await store.inbox.insert(rows);
    },
    "relayed and claimed": async (store, rows) => {
      await store.inbox.relay(TOPICS);
      return await store.inbox.insert(rows, { request: claimRequest(), onClaimed: () => {} });
    },
  };

export function exerciseBuckets(open: () => Promise<StoreHarness>): void {
  describe("buckets", () => {
    test("are opened once, and never under an earlier epoch", async () => {
      await using harness = await open();
      const { buckets } = harness.store;
      await Promise.all(Array.from({ length: 5 }, () => buckets.open(at(1, 1, 2, 3))));
      await buckets.open(at(3, 2));
      await buckets.open(at(2, 2, 4));
      const rows = (await buckets.all()).rows.toSorted((a, b) => a.bucket - b.bucket);
      expect(rows.map(({ bucket, epoch }) => [bucket, epoch])).toEqual([
        [1, 1],
        [2, 3],
        [3, 1],
        [4, 2],
      ]);
      expect(rows[0]).toEqual({
        bucket: 1,
        state: "open",
        epoch: 1,
        otherCell: null,
        token: null,
        hasLeaseEnded: false,
      });
    });

    test("are closed by one mover, opened again by it alone, or left for good under the next epoch", async () => {
      await using harness = await open();
      const { buckets } = harness.store;
      const [first, second] = [lease(), lease()];
      await buckets.open(at(4, 1, 2, 3));
      expect((await buckets.close([1, 2, 9], "b", first)).toSorted()).toEqual([1, 2]);
      expect(await buckets.close([1, 3], "c", second)).toEqual([3]);
      expect((await buckets.renew(first)).toSorted()).toEqual([1, 2]);
      expect(await buckets.reopen([1, 2], second.token)).toEqual([]);
      expect(await buckets.reopen([1, 2], null)).toEqual([]);
      expect(await buckets.reopen([1], first.token)).toEqual([1]);
      expect(await buckets.leave([1, 2], second.token)).toEqual([]);
      expect(await buckets.leave([1, 2], first.token)).toEqual(at(5, 2));
      expect(await buckets.reopen([2], first.token)).toEqual([]);
      expect((await buckets.all()).rows.toSorted((a, b) => a.bucket - b.bucket)).toEqual([
        { bucket: 1, state: "open", epoch: 4, otherCell: null, token: null, hasLeaseEnded: false },
        { bucket: 2, state: "left", epoch: 5, otherCell: "b", token: first.token, hasLeaseEnded: false },
        { bucket: 3, state: "moving", epoch: 4, otherCell: "c", token: second.token, hasLeaseEnded: false },
      ]);
    });

    test("arrive where they were expected by that move on that server, and nowhere else", async () => {
      await using harness = await open();
      const { buckets } = harness.store;
      const { server } = await buckets.all();
      const [move, other] = [lease().token, lease().token];
      const expected = { from: "a", token: move, server };
      await buckets.open([...at(1, 1), ...at(2, 2), ...at(3, 3)]);
      // On Citus nothing tells.
      if (server !== undefined)
        expect(await buckets.expect(at(2, 1), { ...expected, server: `${server}0` })).toEqual([]);
      expect((await buckets.expect(at(2, 1, 2, 3, 4), expected)).toSorted()).toEqual([1, 4]);
      // Nothing is stored of what only arrives.
      await expect(harness.store.inbox.insert([inboxRow({ bucket: 4 })])).rejects.toMatchObject({ code: "elsewhere" });
      expect(await buckets.arrive(at(2, 1, 4), other)).toEqual([]);
      expect(await buckets.arrive(at(1, 1, 4), move)).toEqual([]);
      expect((await buckets.arrive(at(2, 1, 4), move)).toSorted()).toEqual([1, 4]);
      // Whoever reads the maps may have been first.
      expect((await buckets.arrive(at(2, 1, 4), move)).toSorted()).toEqual([1, 4]);
      await harness.store.inbox.insert([inboxRow({ bucket: 4 })]);

      await buckets.expect(at(5, 9), expected);
      expect(await buckets.expect(at(5, 9), { ...expected, token: other })).toEqual([9]);
      expect(await buckets.arrive(at(5, 9), move)).toEqual([]);
      await buckets.open(at(5, 9));
      const rows = (await buckets.all()).rows.filter(({ bucket }) => bucket === 9 || bucket === 4);
      expect(rows.map(({ state, epoch, otherCell, token }) => [state, epoch, otherCell, token])).toEqual([
        ["open", 2, null, null],
        ["open", 5, null, null],
      ]);
    });

    test("that have left are taken back, and those that another cell has had since are given up", async () => {
      await using harness = await open();
      const { buckets } = harness.store;
      const move = lease();
      await buckets.open(at(4, 1, 2, 3));
      await buckets.close([1, 2], "b", move);
      await buckets.leave([1], move.token);
      const under = (nextEpoch: number, of: ReturnType<typeof at>) => of.map((each) => ({ ...each, nextEpoch }));
      expect(await buckets.takeBack(under(6, [...at(4, 1, 2, 3), ...at(1, 9)]))).toEqual([]);
      expect(await buckets.takeBack(under(7, at(5, 1)))).toEqual([1]);
      expect(await buckets.takeBack(under(8, at(5, 1)))).toEqual([]);

      const since = (epoch: number, ...of: readonly number[]) =>
        at(epoch, ...of).map((each) => ({ ...each, cell: "c" }));
      expect(await buckets.supersede([...since(7, 1), ...since(4, 2), ...since(3, 3)])).toEqual([]);
      expect((await buckets.supersede([...since(8, 1), ...since(7, 2), ...since(9, 7)])).toSorted()).toEqual([1, 2]);
      expect(await buckets.reopen([2], move.token)).toEqual([]);
      const rows = (await buckets.all()).rows.toSorted((a, b) => a.bucket - b.bucket);
      expect(rows).toEqual([
        { bucket: 1, state: "left", epoch: 8, otherCell: "c", token: SUPERSEDED, hasLeaseEnded: false },
        { bucket: 2, state: "left", epoch: 7, otherCell: "c", token: SUPERSEDED, hasLeaseEnded: false },
        { bucket: 3, state: "open", epoch: 4, otherCell: null, token: null, hasLeaseEnded: false },
      ]);
    });

    test("of a mover whose lease has ended are opened by anybody, after which its token is worth nothing", async () => {
      await using harness = await open();
      const { buckets } = harness.store;
      const gone = lease(-1);
      await buckets.open(at(1, 1, 2));
      await buckets.close([1], "b", gone);
      await buckets.close([2], "b", lease());
      expect(
        (await buckets.all()).rows.filter(({ hasLeaseEnded }) => hasLeaseEnded).map(({ bucket }) => bucket),
      ).toEqual([1]);
      expect(await buckets.reopen([1, 2], null)).toEqual([1]);
      expect(await buckets.leave([1], gone.token)).toEqual([]);
      expect(await buckets.renew(gone)).toEqual([]);
    });

    test.each(Object.entries(WAYS))(
      "keep rows out that are stored %s, unless each of theirs is open",
      async (way, store) => {
        await using harness = await open();
        const { buckets } = harness.store;
        const rows = () => [inboxRow({ bucket: 7, aggregateId: "a" }), inboxRow({ bucket: 8 }), inboxRow()];
        await buckets.open(at(1, 7, 8, 9));
        expect((await store(harness.store, rows())).map(({ kind }) => kind)).toEqual(["stored", "stored", "stored"]);
        const { server } = await buckets.all();
        const known = (bucketsOn: string | undefined) => rows().map((row) => ({ ...row, bucketsOn }));
        await expect(store(harness.store, known(`${server}0`))).rejects.toMatchObject({ code: "elsewhere" });
        expect(await store(harness.store, known(server))).toHaveLength(3);
        const before = (await harness.inboxRows()).length;

        await buckets.close([8], "b", lease());
        const refused = await store(harness.store, rows()).catch((error: unknown) => error);
        expect(refused).toMatchObject({ name: "StoreError", code: "elsewhere" });
        // The row of which there is a duplicate was stored without a bucket.
        const more = (await harness.inboxRows()).length - before;
        expect(more).toBe(way === "behind a duplicate" ? 1 : 0);

        await store(harness.store, [inboxRow({ bucket: 7 }), inboxRow({ bucket: 9 })]);
        expect(await store(harness.store, [inboxRow()])).toHaveLength(1);
      },
    );

    test("show the rows that wait, why, and for how long", async () => {
      await using harness = await open();
      const { store } = harness;
      await store.inbox.insert([
        inboxRow({ idempotencyKey: "sent", aggregateId: "sent" }),
        ...["turn", "retry", "parked", "delivery"].map((key) => inboxRow({ idempotencyKey: key, aggregateId: key })),
      ]);
      await store.inbox.relay(TOPICS);
      const { rows: claimed } = await store.outbox.claim(claimRequest());
      const row = (key: string) => claimed.filter((each) => each.key === key);
      await store.outbox.settle([
        ...row("sent").map(({ id, claimToken }) => ({ id, claimToken, kind: "sent" as const })),
        ...row("turn").map(({ id, claimToken }) => ({ id, claimToken, kind: "release" as const })),
        ...row("retry").map((each) => failed(each, 60_000)),
        ...row("parked").map(parked),
      ]);
      await harness.insertOutbox([{ key: "ahead", dueInMs: 60_000 }, { key: null }]);
      await store.inbox.insert([
        inboxRow({ idempotencyKey: "relay", aggregateId: "k" }),
        inboxRow({ idempotencyKey: "time", schedule: SCHEDULE }),
        ...["pull", "pull-2", "pull-3"].map((idempotencyKey) => inboxRow({ idempotencyKey, consumption: "pull" })),
      ]);

      const rows = await all<UnfinishedRow>((from) => store.buckets.unfinished(from, 2));
      const shown = rows.map(
        ({ received, key, waitsFor }) => `${received?.idempotencyKey ?? "-"} ${key ?? "-"} ${waitsFor}`,
      );
      expect(shown.toSorted()).toEqual(
        [
          "- ahead time",
          "delivery delivery delivery",
          "parked parked operator",
          "pull - pull",
          "pull-2 - pull",
          "pull-3 - pull",
          "relay - relay",
          "retry retry retry",
          "time - time",
          "turn turn turn",
        ].toSorted(),
      );
      const due = (reason: string) => rows.find(({ waitsFor }) => waitsFor === reason)?.dueInMs ?? -1;
      expect([due("turn"), due("relay")]).toEqual([0, 0]);
      for (const reason of ["retry", "time"])
        expect([due(reason) > 50_000, due(reason) <= 60_000]).toEqual([true, true]);
      expect(due("operator")).toBeGreaterThan(1e12);
    });

    test("take copies of another cell's finished rows as they are, once, and none of a known key", async () => {
      await using from = await open();
      await using to = await open();
      const sender = from.store.inbox;
      const expiry = { at: null, afterMs: 3_600_000 };
      const rows = [
        inboxRow({
          idempotencyKey: "a",
          aggregateId: "x",
          headers: { H: 'ö"' },
          payload: '{"n": 1.0,\n "t": "ä\\u0000"}',
        }),
        inboxRow({ idempotencyKey: "b", eventType: null, correlationId: null, expiry }),
        inboxRow({ idempotencyKey: "c", state: "dead", lastError: "no JSON" }),
        inboxRow({ idempotencyKey: "known" }),
      ];
      await sender.insert(rows);
      await sender.relay(TOPICS);
      await sender.insert([inboxRow({ idempotencyKey: "pending", schedule: SCHEDULE })]);
      await to.store.inbox.insert([inboxRow({ idempotencyKey: "known", payload: "other" })]);

      const found = await all<{
        readonly id: NewInboxRow["id"];
        readonly idempotencyKey: string;
        readonly bytes: number;
      }>((position) => from.store.buckets.finished(position, 2));
      expect(found.map(({ idempotencyKey }) => idempotencyKey).toSorted()).toEqual(["a", "b", "c", "known"]);
      const ids = [...found.map(({ id }) => id), inboxRow().id];
      const stored = await from.store.buckets.read(ids);
      expect(await to.store.buckets.copy(stored)).toEqual({ stored: 3, refused: new Map() });
      expect(await to.store.buckets.copy(stored)).toEqual({ stored: 0, refused: new Map() });

      const copies = await to.store.buckets.read(ids);
      const byKey = (a: { idempotencyKey?: string | null }, b: { idempotencyKey?: string | null }) =>
        String(a.idempotencyKey) < String(b.idempotencyKey) ? -1 : 1;
      expect(copies.toSorted(byKey)).toEqual(
        stored.filter(({ idempotencyKey }) => idempotencyKey !== "known").toSorted(byKey),
      );
      const again = await to.store.inbox.insert(rows.map((row) => ({ ...row, id: randomUUID() as NewInboxRow["id"] })));
      expect(again.map(({ kind }) => kind)).toEqual(rows.map(() => "duplicate"));
    });

    test("take the place of an older row of their key that has ended, and of no other", async () => {
      await using from = await open();
      await using to = await open();
      const rows = ["older", "newer", "retried", "waits"].map((idempotencyKey) => inboxRow({ idempotencyKey }));
      await from.store.inbox.insert(rows);
      await from.store.inbox.relay(TOPICS);
      const stored = await from.store.buckets.read(rows.map(({ id }) => id));
      const changed = (key: string, change: StoredRow): StoredRow => ({
        ...stored.find(({ idempotencyKey }) => idempotencyKey === key),
        ...change,
      });
      const waiting = inboxRow({ idempotencyKey: "waits" });
      await to.store.inbox.insert([waiting]);
      const there = [
        changed("older", { id: randomUUID(), state: "dead", createdAt: "2020-01-01T00:00:00Z" }),
        changed("newer", { id: randomUUID(), state: "dead", createdAt: "2100-01-01T00:00:00Z" }),
        changed("retried", { state: "dead", processedAt: "2020-01-01T00:00:00Z" }),
      ];
      expect(await to.store.buckets.copy(there)).toEqual({ stored: 3, refused: new Map() });

      expect(await to.store.buckets.copy(stored)).toEqual({ stored: 2, refused: new Map() });
      expect(await to.store.buckets.copy(stored)).toEqual({ stored: 0, refused: new Map() });
      const ids = [...rows.map(({ id }) => id), ...there.map(({ id }) => id as NewInboxRow["id"]), waiting.id];
      const copies = await to.store.buckets.read([...new Set(ids)]);
      expect(Object.fromEntries(copies.map(({ idempotencyKey, state }) => [idempotencyKey, state]))).toEqual({
        older: "processed",
        newer: "dead",
        retried: "processed",
      });
      expect(copies).toContainEqual(changed("older", {}));
    });

    test("find what was received since a while", async () => {
      await using harness = await open();
      const { store } = harness;
      const rows = [inboxRow(), inboxRow()];
      await store.inbox.insert(rows);
      await store.inbox.relay(TOPICS);
      await harness.finishInbox([rows[0]?.id as NewInboxRow["id"]], { state: "dead", receivedMsAgo: 60_000 });
      const since = async (ms: number) => {
        const { position, nowMs } = await store.buckets.positionBefore(ms);
        expect(Math.abs(nowMs - Date.now())).toBeLessThan(600_000);
        return (await store.buckets.finished(position, 10)).rows.map(({ id }) => id);
      };
      expect(await since(30_000)).toEqual([rows[1]?.id]);
      expect(await since(90_000)).toEqual([rows[0]?.id, rows[1]?.id]);
    });
  });
}
