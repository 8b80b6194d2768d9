import { describe, expect, test } from "@jest/globals";
import type { MessageId } from "../../../src/model/rows.ts";
import type { ClaimRequest } from "../../../src/ports/store.ts";
import { systemClock } from "../../../src/time/clock.ts";
import { seeded } from "../../support/random.ts";
import { claimRequest, failed, queuesOf, type StoreHarness, sent } from "./harness.ts";
import { drain } from "./order.ts";

/** Longer than a sweep of a short front waits. */
const SWEEP_MS = 1001;

/** A claim for these destinations. */
const of = (destinations: readonly string[], request: Partial<ClaimRequest> = {}): ClaimRequest =>
  claimRequest({ queues: queuesOf(destinations, request.limit), ...request });

const claimed = async ({ store }: StoreHarness, ...request: Parameters<typeof of>) =>
  (await store.outbox.claim(of(...request))).rows.map(({ id }) => id);

/** Claims and sends everything that is free now, `limit` rows at a time. */
async function sendAll({ store }: StoreHarness, destinations: readonly string[], limit = 10) {
  const ids: MessageId[] = [];
  for (;;) {
    const { rows, more } = await store.outbox.claim(of(destinations, { limit }));
    ids.push(...rows.map(({ id }) => id));
    await store.outbox.settle(rows.map(sent));
    if (rows.length === 0 && !more) return ids;
  }
}

/** A claim for one destination, or for two others. */
const inTurns = (turn: number) => of(turn % 2 === 0 ? ["b", "c"] : ["a"], { limit: 20 });

export function exerciseQueues(open: () => Promise<StoreHarness>): void {
  describe("claims by destination", () => {
    test("take rows of the destinations that are asked, in order", async () => {
      await using harness = await open();
      const topics = ["a", "b", "c", "a", "b", "c"];
      const ids = await harness.insertOutbox(topics.map((topic) => ({ topic })));
      const to = (...wanted: string[]) => ids.filter((_, n) => wanted.includes(topics[n] ?? ""));

      expect(await claimed(harness, ["a"])).toEqual(to("a"));
      expect(await claimed(harness, ["excluded"])).toEqual([]);
      expect(await claimed(harness, ["a", "b", "c"])).toEqual(to("b", "c"));
    });

    test("label the rows that they take, and rows that they leave behind", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ topic: "a" }, { topic: "b" }, { topic: "nowhere" }]);

      const { rows } = await harness.store.outbox.claim(of(["a"]));

      expect(rows.map(({ topic, destination, isPinned }) => ({ topic, destination, isPinned }))).toEqual([
        { topic: "a", destination: "a", isPinned: false },
        { topic: "nowhere", destination: null, isPinned: false },
      ]);
      const label = { routes: "hash" };
      expect(await harness.labels()).toEqual([
        { destination: "a", ...label },
        { destination: "b", ...label },
        { destination: "", ...label },
      ]);
    });

    test("take no more rows than a destination has room for, and tell which have more", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox(["a", "a", "a", "b", "a"].map((topic) => ({ topic })));
      await claimed(harness, ["c"]);
      const room = new Map([
        ["a", 2],
        ["b", 2],
      ]);
      const request = claimRequest({ queues: { ...queuesOf([]), room } });

      const first = await harness.store.outbox.claim(request);
      expect(first.rows.map(({ id }) => id)).toEqual([ids[0], ids[1], ids[3]]);
      expect(first).toMatchObject({ more: true, unread: new Set(["a"]) });
      const second = await harness.store.outbox.claim({ ...request, token: claimRequest().token, limit: 1 });
      expect(second.rows.map(({ id }) => id)).toEqual([ids[2]]);
      const third = await harness.store.outbox.claim({ ...request, token: claimRequest().token });
      expect(third.rows.map(({ id }) => id)).toEqual([ids[4]]);
      expect(third.more).toBe(false);
    });

    test("compare destinations letter for letter", async () => {
      await using harness = await open();
      const [lower, upper, spaced] = await harness.insertOutbox([{ topic: "a" }, { topic: "A" }, { topic: "a " }]);

      expect(await claimed(harness, ["A"])).toEqual([upper]);
      expect(await claimed(harness, ["a "])).toEqual([spaced]);
      expect(await claimed(harness, ["a"])).toEqual([lower]);
    });

    test("leave named rows out, with the later ones of their keys", async () => {
      await using harness = await open();
      const inserted = await harness.insertOutbox([
        { topic: "a", key: "k" },
        { topic: "a", key: "k" },
        { topic: "a", key: null },
        { topic: "a", key: "other" },
      ]);
      await claimed(harness, ["b"]);
      const exceptIds = [inserted[0] as MessageId, inserted[2] as MessageId];
      const { rows } = await harness.store.outbox.claim(of(["a"], { queues: { ...queuesOf(["a"]), exceptIds } }));
      expect(rows.map(({ id }) => id)).toEqual(inserted.slice(3));
    });

    test("keep a key behind its row of another destination", async () => {
      await using harness = await open();
      const [head, , behind, alone] = await harness.insertOutbox([
        { topic: "stuck", key: "k" },
        { topic: "stuck", key: "other" },
        { key: "k" },
        { key: "free" },
      ]);

      expect(await claimed(harness, ["orders"])).toEqual([alone]);

      const { rows } = await harness.store.outbox.claim(of(["stuck"], { limit: 1 }));
      expect(rows.map(({ id }) => id)).toEqual([head]);
      expect(await claimed(harness, ["orders"])).toEqual([]);
      await harness.store.outbox.settle(rows.map(sent));
      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, ["orders"])).toEqual([behind]);
    });

    test("keep the order of a key across its destinations", async () => {
      await using harness = await open();
      const topics = ["orders", "stuck", "orders", "orders", "stuck"];
      const ids = await harness.insertOutbox(topics.map((topic) => ({ topic, key: "k" })));

      expect(await claimed(harness, ["stuck"])).toEqual([]);
      expect(await sendAll(harness, ["orders"])).toEqual(ids.slice(0, 1));
      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, ["stuck"])).toEqual(ids.slice(1, 2));
      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, ["orders"])).toEqual(ids.slice(2, 4));
    });

    test("take a run of a key that goes to several destinations, if all of them are asked", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox(["a", "b", "a"].map((topic) => ({ topic, key: "k" })));

      expect(await claimed(harness, ["b", "a"])).toEqual(ids);
    });

    test("follow rows that this process holds only to the same destination", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox([
        { topic: "a", key: "k" },
        { topic: "a", key: "k" },
        { topic: "b", key: "k" },
      ]);
      const first = of(["a"], { limit: 1 });
      await harness.store.outbox.claim(first);
      const heldTokens = [first.token];

      expect(await claimed(harness, ["a", "b"])).toEqual([]);
      expect(await claimed(harness, ["b"], { heldTokens })).toEqual([]);
      expect(await claimed(harness, ["a"], { heldTokens })).toEqual([ids[1]]);
    });

    test.each<[string, readonly Parameters<StoreHarness["insertOutbox"]>[0][number][]]>([
      ["a row of another destination", [{ topic: "stuck", key: "k" }]],
      [
        "a row scheduled ahead and one of another destination",
        [
          { key: "k", dueInMs: 600_000 },
          { topic: "stuck", key: "k" },
        ],
      ],
    ])("find the free rows behind many that stay behind %s", async (_, heads) => {
      await using harness = await open();
      await harness.insertOutbox([...heads, ...Array.from({ length: 50 }, () => ({ key: "k" }))]);
      const free = await harness.insertOutbox(Array.from({ length: 25 }, (_, n) => ({ key: `free-${n % 5}` })));

      expect(await sendAll(harness, ["orders"])).toEqual(free);
    });

    test("take the rows of a key whose row of another destination is scheduled ahead", async () => {
      await using harness = await open();
      const [, behind] = await harness.insertOutbox([{ topic: "stuck", key: "k", dueInMs: 600_000 }, { key: "k" }]);

      expect(await claimed(harness, ["orders"])).toEqual([behind]);
    });

    test("take the rows behind one's own claims, and not behind those of others", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox([{ key: "k" }, { key: "k" }, { key: "k" }]);
      const first = of(["orders"], { limit: 1 });
      await harness.store.outbox.claim(first);

      expect(await claimed(harness, ["orders"])).toEqual([]);
      expect(await claimed(harness, ["orders"], { heldTokens: [first.token] })).toEqual(ids.slice(1));
    });

    test("find what is appended, and what becomes free, behind a blocked front", async () => {
      await using harness = await open();
      const [head, ...blocked] = await harness.insertOutbox(Array.from({ length: 40 }, () => ({ key: "k" })));
      const { rows } = await harness.store.outbox.claim(of(["orders"], { limit: 1 }));
      await harness.store.outbox.settle(rows.map((row) => ({ ...failed(row), destination: "orders" })));
      expect(await sendAll(harness, ["orders"])).toEqual([]);
      for (let round = 0; round < 3; round += 1) {
        const free = await harness.insertOutbox(Array.from({ length: 15 }, (_, n) => ({ key: `free-${n % 3}` })));
        expect(await sendAll(harness, ["orders"])).toEqual(free);
      }

      await harness.makeDue();
      expect(await claimed(harness, ["orders"], { limit: 1 })).toEqual([head]);
      const retried = await harness.outboxRows();
      await harness.store.outbox.settle(
        retried
          .filter(({ state }) => state === "processing")
          .map(({ id, claimToken }) => ({ id, claimToken: claimToken as never, kind: "sent", destination: "orders" })),
      );
      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, ["orders"])).toEqual(blocked);
    });

    test("find rows that are set back below a blocked front with the next sweep", async () => {
      await using harness = await open();
      const [early] = await harness.insertOutbox([{}]);
      await sendAll(harness, ["orders"]);
      await harness.insertOutbox([{ topic: "stuck", key: "k" }, ...Array.from({ length: 30 }, () => ({ key: "k" }))]);
      expect(await sendAll(harness, ["orders"])).toEqual([]);
      if (early === undefined) throw new Error("a row was expected");
      await harness.reset(early);

      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, ["orders"])).toEqual([early]);
    });

    test("find reclaimed rows", async () => {
      await using harness = await open();
      const [row] = await harness.insertOutbox([{}, { topic: "stuck" }]);
      expect(await claimed(harness, ["orders"])).toEqual([row]);
      await harness.expireLeases();
      expect(await harness.store.outbox.reclaim(10, 300_000)).toBe(1);

      expect(await claimed(harness, ["orders"])).toEqual([row]);
    });

    test("three replicas, with failures, deliver every row, each key in order", async () => {
      await using harness = await open();
      const replicas = await Promise.all(Array.from({ length: 3 }, () => harness.replica(systemClock)));
      const total = 300;
      const keys = 20;
      await harness.insertOutbox(
        Array.from({ length: total }, (_, n) => ({
          topic: ["a", "b", "c"][n % 3] ?? "a",
          key: `key-${n % keys}`,
          payload: String(n),
          maxAttempts: 1000,
        })),
      );
      const delivered: number[] = [];
      const random = seeded(7);

      await Promise.all(replicas.map((store) => drain(store, delivered, total, random, inTurns)));

      expect(delivered.toSorted((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, n) => n));
      for (let key = 0; key < keys; key += 1) {
        const payloads = delivered.filter((n) => n % keys === key);
        expect(payloads).toEqual(payloads.toSorted((a, b) => a - b));
      }
    }, 60_000);
  });
}
