import { describe, expect, test } from "@jest/globals";
import { type MessageId, PARKED_UNTIL } from "../../../src/model/rows.ts";
import type { ClaimQueues, ParkedFilter, Store } from "../../../src/ports/store.ts";
import { claimRequest, claimSome, failed, parked, queuesOf, type StoreHarness, sent } from "./harness.ts";

/** Longer than any cursor or mark is trusted. */
const LOOK_AGAIN_MS = 5000;
const QUEUES: readonly (readonly [string, ClaimQueues | undefined])[] = [
  ["as one queue", undefined],
  ["by destination", queuesOf(["orders"])],
];

/** Parks the first row that is free. */
async function parkFirst({ store }: Pick<StoreHarness, "store">): Promise<MessageId> {
  const { rows } = await store.outbox.claim(claimRequest({ limit: 1 }));
  expect((await store.outbox.settle(rows.map(parked))).closed).toEqual(new Set(rows.map(({ id }) => id)));
  const [row] = rows;
  if (row === undefined) throw new Error("a row to park was expected");
  return row.id;
}

async function claimed(store: Store, queues?: ClaimQueues): Promise<readonly MessageId[]> {
  const { rows } = await store.outbox.claim(claimRequest({ queues }));
  return rows.map(({ id }) => id);
}

export function exerciseParking(open: () => Promise<StoreHarness>): void {
  describe("a parked row", () => {
    test("stays pending until the end of time, with its attempt counted, its reason and no claim", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "k" }]);
      await harness.store.outbox.settle(
        (await harness.store.outbox.claim(claimRequest())).rows.map((row) => failed(row, 0)),
      );
      const id = await parkFirst(harness);

      const [row] = await harness.outboxRows();
      expect(row).toMatchObject({ id, state: "pending", attempt: 2, lastError: "status 500" });
      expect(row).toMatchObject({ claimToken: null, leaseInMs: null });
      expect(Math.abs((row?.dueInMs ?? 0) - (Date.parse(PARKED_UNTIL) - Date.now()))).toBeLessThan(60_000);
      expect(row?.updatedMsAgo).toBeLessThan(5000);
    });

    test.each(QUEUES)("holds back its key, and no other, in every replica: claims %s", async (_, queues) => {
      await using harness = await open();
      const clock = harness.clock;
      await harness.insertOutbox([{ key: "k" }, { key: "k" }, { key: "free" }, {}]);
      const head = await parkFirst(harness);
      const [, , free, keyless] = (await harness.outboxRows()).map(({ id }) => id);
      const replica = await harness.replica(clock);

      expect(await claimed(harness.store, queues)).toEqual([free, keyless]);
      for (let look = 0; look < 3; look += 1) {
        clock.advance(LOOK_AGAIN_MS);
        await harness.insertOutbox([{ key: "k" }]);
        for (const store of [harness.store, replica, await harness.replica()]) {
          expect(await claimed(store, queues)).toEqual([]);
        }
      }
      expect((await harness.outboxRows())[0]).toMatchObject({ id: head, state: "pending", attempt: 1 });
    });

    test("does not hold back an earlier row of its key that is replayed, behind a long front", async () => {
      await using harness = await open();
      const rows = [...Array.from({ length: 30 }, () => ({ key: "front" })), { key: "k" }, { key: "k" }, { key: "k" }];
      await harness.insertOutbox(rows);
      const early = (await harness.outboxRows()).at(-3)?.id as MessageId;
      const { outbox } = harness.store;
      const all = await outbox.claim(claimRequest());
      await outbox.settle(
        all.rows.map((row, n) =>
          n === 0 || n === 31 ? parked(row) : n === 30 ? sent(row) : { ...sent(row), kind: "release" },
        ),
      );
      await harness.reset(early);
      for (let look = 0; look < 3; look += 1) {
        harness.clock.advance(LOOK_AGAIN_MS);
        const { rows: found } = await outbox.claim(claimRequest({ limit: 5 }));
        expect(found.map(({ id }) => id)).toEqual(look === 0 ? [early] : []);
        await outbox.settle(found.map(sent));
      }
    });

    test("is out of the way of a claim past it, whose own key it holds back behind a long front", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "k" }, ...Array.from({ length: 100 }, () => ({ key: "k" })), { key: "free" }]);
      await parkFirst(harness);
      const { rows } = await claimSome(harness.store, { limit: 20 });
      expect(rows.map(({ key }) => key)).toEqual(["free"]);
      harness.clock.advance(LOOK_AGAIN_MS);
      expect(await claimed(harness.store)).toEqual([]);
    });

    test("is left alone by reclaim, replay and retention", async () => {
      await using harness = await open();
      const { outbox, replay, retention } = harness.store;
      await harness.insertOutbox([{ key: "k" }]);
      const id = await parkFirst(harness);
      const before = await harness.outboxRows();
      await harness.expireLeases();

      expect(await outbox.reclaim(10, 0)).toBe(0);
      const scope = await replay.begin();
      expect(await replay.find(scope, {}, [id])).toEqual([]);
      expect(await replay.move(scope, [id], "alice")).toMatchObject({ changed: 0 });
      expect(await retention.plan({ table: "outbox", kind: "COUNT", maxCount: 0 })).toEqual([]);
      expect(await retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 0 })).toEqual([]);

      const kept = ({ state, attempt, lastError }: (typeof before)[number]) => ({ state, attempt, lastError });
      expect((await harness.outboxRows()).map(kept)).toEqual(before.map(kept));
    });

    test("is still under its claim: a claim taken over parks nothing", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "k" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest());
      await harness.expireLeases();
      await harness.store.outbox.reclaim(10, 300_000);

      expect((await harness.store.outbox.settle(rows.map(parked))).closed).toEqual(new Set());
      const [again] = (await harness.store.outbox.claim(claimRequest())).rows;
      expect(again).toMatchObject({ attempt: 0 });
    });

    test("is settled beside others in one batch", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox([{ key: "a" }, { key: "b" }, { key: "c" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest());
      const outcomes = rows.map((row, n) => [sent(row), parked(row), failed(row)][n] ?? sent(row));
      expect((await harness.store.outbox.settle(outcomes)).closed).toEqual(new Set(ids));
      expect((await harness.outboxRows()).map(({ state, attempt }) => [state, attempt])).toEqual([
        ["sent", 0],
        ["pending", 1],
        ["pending", 1],
      ]);
    });
  });

  describe("parked rows", () => {
    test("are listed in pages, in the order of their sequence, by id and key letter for letter; those scheduled there by others are not", async () => {
      await using harness = await open();
      const { parked: store, outbox } = harness.store;
      const ids = await harness.insertOutbox(["a", "A", "b", "a "].map((key) => ({ topic: `t-${key}`, key })));
      await outbox.settle((await outbox.claim(claimRequest())).rows.map(parked));
      const [ahead] = await harness.insertOutbox([{ key: "ahead", dueInMs: Date.parse(PARKED_UNTIL) - Date.now() }]);

      const listed = async (filter: ParkedFilter) => (await store.list(filter, null, 100)).map(({ id }) => id);
      expect(await listed({})).toEqual(ids);
      expect(await listed({ key: "a" })).toEqual([ids[0]]);
      expect(await listed({ key: "none" })).toEqual([]);
      expect(await listed({ ids: [ids[2] as MessageId, ids[1] as MessageId, ahead as MessageId] })).toEqual([
        ids[1],
        ids[2],
      ]);
      expect(await listed({ ids: [] })).toEqual([]);
      const page = await store.list({}, null, 3);
      expect((await store.list({}, page.at(-1)?.sequence ?? "", 3)).map(({ id }) => id)).toEqual(ids.slice(3));
      const [first] = page;
      expect(first).toMatchObject({ topic: "t-a", key: "a", attempt: 1, lastError: "status 500" });
      expect(Math.abs((first?.parkedAt?.getTime() ?? 0) - Date.now())).toBeLessThan(60_000);
      const backlog = await outbox.backlog();
      expect(backlog).toMatchObject({ pending: 5, parked: 4 });
      expect([...backlog.byDestination.values()].reduce((sum, each) => sum + each.parked, 0)).toBe(4);
    });

    test("that are retried are due now, as if never tried, before the later rows of their key, in every replica", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "k" }, { key: "k" }]);
      const head = await parkFirst(harness);
      const [, behind] = (await harness.outboxRows()).map(({ id }) => id);
      const replica = await harness.replica();
      for (const store of [harness.store, replica]) expect(await claimed(store)).toEqual([]);

      expect(await harness.store.parked.retry([head, behind as MessageId], "alice")).toMatchObject({ changed: 1 });

      expect(await harness.store.parked.list({}, null, 10)).toEqual([]);
      const [row] = await harness.outboxRows();
      expect(row).toMatchObject({ state: "pending", attempt: 0, claimToken: null });
      expect(row?.dueInMs).toBeLessThanOrEqual(0);
      expect(await claimed(replica)).toEqual([head, behind]);
      expect(await claimed(harness.store)).toEqual([]);
    });

    test("that are retried behind a mark are claimed before what was delivered meanwhile is asked for again", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "k" }, ...Array.from({ length: 50 }, () => ({})), { key: "k" }]);
      const head = await parkFirst(harness);
      const { rows } = await harness.store.outbox.claim(claimRequest());
      await harness.store.outbox.settle(rows.map(sent));
      const replica = await harness.replica();
      for (const store of [harness.store, replica]) {
        harness.clock.advance(LOOK_AGAIN_MS);
        expect(await claimed(store)).toEqual([]);
      }
      await harness.store.parked.retry([head], "alice");

      const again = await harness.store.outbox.claim(claimRequest({ limit: 1 }));
      expect(again.rows.map(({ id }) => id)).toEqual([head]);
      expect(await claimed(replica)).toEqual([]);
      await harness.store.outbox.settle(again.rows.map(sent));
      expect((await replica.outbox.claim(claimRequest())).rows).toMatchObject([{ key: "k" }]);
    });

    test("that are discarded are dead with who and why before the reason, and the next row of the key is claimed", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "k" }, { key: "k" }]);
      const head = await parkFirst(harness);
      const [, behind] = (await harness.outboxRows()).map(({ id }) => id);

      expect(await harness.store.parked.discard([head], "alice", "sold out")).toMatchObject({ changed: 1 });

      expect((await harness.outboxRows())[0]).toMatchObject({
        state: "dead",
        attempt: 1,
        lastError: "discarded by alice: sold out: status 500",
      });
      harness.clock.advance(LOOK_AGAIN_MS);
      expect(await claimed(harness.store)).toEqual([behind]);
      expect(await harness.store.replay.move(await harness.store.replay.begin(), [head], "alice")).toMatchObject({
        changed: 1,
      });
    });

    test("are retried once when several operators want them at the same time, and nobody deadlocks", async () => {
      await using harness = await open();
      const other = await harness.replica();
      const ids = await harness.insertOutbox(Array.from({ length: 200 }, (_, n) => ({ key: `k-${n}` })));
      await harness.store.outbox.settle(
        (await harness.store.outbox.claim(claimRequest({ limit: 200 }))).rows.map(parked),
      );

      const changed = await Promise.all(
        Array.from({ length: 12 }, (_, n) => {
          const store = n % 2 === 0 ? harness.store : other;
          const some = n % 3 === 0 ? ids.toReversed() : ids;
          return store.parked.retry(some, "alice");
        }),
      );

      expect(changed.reduce((sum, each) => sum + each.changed, 0)).toBe(200);
      const states = (await harness.outboxRows()).map(({ state }) => state);
      expect(states).toEqual(Array(200).fill("pending"));
      expect(await harness.store.parked.list({}, null, 1)).toEqual([]);
    });
  });
}
