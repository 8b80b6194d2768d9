import { describe, expect, test } from "@jest/globals";
import type { MessageId } from "../../../src/model/rows.ts";
import type { ClaimScope } from "../../../src/ports/store.ts";
import { systemClock } from "../../../src/time/clock.ts";
import { seeded } from "../../support/random.ts";
import { claimRequest, failed, type StoreHarness, sent } from "./harness.ts";
import { drain } from "./order.ts";

const except = (destinations: readonly string[], exceptKeys: readonly string[] = []): ClaimScope => ({
  name: `others than ${destinations}`,
  which: "except",
  destinations,
  exceptKeys,
});
const only = (destinations: readonly string[], exceptKeys: readonly string[] = []): ClaimScope => ({
  name: `only ${destinations}`,
  which: "only",
  destinations,
  exceptKeys,
});

/** Claims of one destination, and of the others. */
const inTurns = (turn: number) => claimRequest({ limit: 20, scope: turn % 2 === 0 ? except(["a"]) : only(["a"]) });

/** Longer than the cursor of a scope keeps behind, and than a sweep of a short front waits. */
const SWEEP_MS = 1001;

export function exerciseScopes(open: () => Promise<StoreHarness>): void {
  describe("claims of a scope", () => {
    test("leave named rows out, with the later ones of their keys", async () => {
      await using harness = await open();
      const inserted = await harness.insertOutbox([
        { topic: "a", key: "k" },
        { topic: "a", key: "k" },
        { topic: "a", key: null },
        { topic: "a", key: "other" },
        { topic: "a", key: null },
      ]);
      const exceptIds = [inserted[0] as MessageId, inserted[2] as MessageId];
      const { rows } = await harness.store.outbox.claim(claimRequest({ scope: { ...only(["a"]), exceptIds } }));
      expect(rows.map(({ id }) => id)).toEqual(inserted.slice(3));
    });

    /** Claims and sends everything of the scope that is free now, `limit` rows at a time. */
    async function sendAll({ store }: StoreHarness, scope: ClaimScope, limit = 10): Promise<readonly MessageId[]> {
      const ids: MessageId[] = [];
      for (;;) {
        const { rows } = await store.outbox.claim(claimRequest({ scope, limit }));
        if (rows.length === 0) return ids;
        ids.push(...rows.map(({ id }) => id));
        await store.outbox.settle(rows.map(sent));
      }
    }

    /** Nothing is free: the claims that follow begin behind everything that is there now. */
    async function passFront({ store, clock }: StoreHarness, scope: ClaimScope): Promise<void> {
      for (let look = 0; look < 2; look += 1) {
        clock.advance(SWEEP_MS);
        expect((await store.outbox.claim(claimRequest({ scope }))).rows).toEqual([]);
      }
    }

    const claimed = async ({ store }: StoreHarness, scope: ClaimScope, limit = 100) => {
      const { rows } = await store.outbox.claim(claimRequest({ scope, limit }));
      return rows.map(({ id }) => id);
    };

    test("take rows of some destinations, or of all others, in order", async () => {
      await using harness = await open();
      const topics = ["a", "b", "c", "a", "b", "c"];
      const ids = await harness.insertOutbox(topics.map((topic) => ({ topic })));
      const of = (...wanted: string[]) => ids.filter((_, n) => wanted.includes(topics[n] ?? ""));

      expect(await claimed(harness, only(["a"]))).toEqual(of("a"));
      expect(await claimed(harness, only(["nobody's"]))).toEqual([]);
      expect(await claimed(harness, except(["a", "b"]))).toEqual(of("c"));
      expect(await claimed(harness, only([]))).toEqual([]);
      expect(await claimed(harness, except([]))).toEqual(of("b"));
    });

    test("compare topics letter for letter", async () => {
      await using harness = await open();
      const [lower, upper, spaced] = await harness.insertOutbox([{ topic: "a" }, { topic: "A" }, { topic: "a " }]);

      expect(await claimed(harness, only(["A"]))).toEqual([upper]);
      expect(await claimed(harness, except(["a"]))).toEqual([spaced]);
      expect(await claimed(harness, except(["A"]))).toEqual([lower]);
    });

    test("tell whether more rows are due", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ topic: "a" }, { topic: "b" }, { topic: "a" }, { topic: "b" }]);

      const first = await harness.store.outbox.claim(claimRequest({ scope: only(["a"]), limit: 1 }));
      const second = await harness.store.outbox.claim(claimRequest({ scope: only(["a"]), limit: 2 }));

      expect([first.more, second.more]).toEqual([true, false]);
      expect(second.rows).toHaveLength(1);
    });

    test("leave keys out, until they are not named any more", async () => {
      await using harness = await open();
      const [a, b, free, a2] = await harness.insertOutbox([{ key: "a" }, { key: "b" }, {}, { key: "a" }]);

      expect(await claimed(harness, except([], ["a", "b"]))).toEqual([free]);
      await passFront(harness, except([], ["a", "b"]));
      expect(await claimed(harness, except([], ["b"]))).toEqual([]);
      harness.clock.advance(SWEEP_MS);
      expect(await claimed(harness, except([], ["b"]))).toEqual([a, a2]);
      expect(await claimed(harness, only(["orders"]))).toEqual([b]);
    });

    test.each<[string, ClaimScope]>([
      ["of excluded destinations", except(["stuck"])],
      ["of other destinations", only(["orders"])],
    ])("keep a key behind its row %s", async (_, scope) => {
      await using harness = await open();
      const [head, , behind, alone] = await harness.insertOutbox([
        { topic: "stuck", key: "k" },
        { topic: "stuck", key: "other" },
        { key: "k" },
        { key: "free" },
      ]);

      expect(await claimed(harness, scope)).toEqual([alone]);

      const { rows } = await harness.store.outbox.claim(claimRequest({ scope: only(["stuck"]), limit: 1 }));
      expect(rows.map(({ id }) => id)).toEqual([head]);
      expect(await claimed(harness, scope)).toEqual([]);
      await harness.store.outbox.settle(rows.map(sent));
      harness.clock.advance(SWEEP_MS);
      expect(await claimed(harness, scope)).toEqual([behind]);
    });

    test("keep the order of a key across its destinations", async () => {
      await using harness = await open();
      const topics = ["orders", "stuck", "orders", "orders", "stuck"];
      const ids = await harness.insertOutbox(topics.map((topic) => ({ topic, key: "k" })));

      expect(await claimed(harness, only(["stuck"]))).toEqual([]);
      expect(await sendAll(harness, except(["stuck"]))).toEqual(ids.slice(0, 1));
      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, only(["stuck"]))).toEqual(ids.slice(1, 2));
      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, except(["stuck"]))).toEqual(ids.slice(2, 4));
    });

    test.each<[string, readonly Parameters<StoreHarness["insertOutbox"]>[0][number][]]>([
      ["a row of an excluded destination", [{ topic: "stuck", key: "k" }]],
      [
        "a row scheduled ahead and one of an excluded destination",
        [
          { key: "k", dueInMs: 600_000 },
          { topic: "stuck", key: "k" },
        ],
      ],
    ])("meet the free rows behind many that stay behind %s", async (_, heads) => {
      await using harness = await open();
      await harness.insertOutbox([...heads, ...Array.from({ length: 50 }, () => ({ key: "k" }))]);
      const free = await harness.insertOutbox(Array.from({ length: 25 }, (_, n) => ({ key: `free-${n % 5}` })));

      expect(await sendAll(harness, except(["stuck"]))).toEqual(free);
    });

    test("meet the free rows behind many that stay behind a row below the place where they begin", async () => {
      await using harness = await open();
      const scope = except(["stuck"]);
      const [head] = await harness.insertOutbox([{ key: "k" }]);
      expect(await sendAll(harness, scope)).toEqual([head]);
      await harness.insertOutbox(Array.from({ length: 5 }, () => ({ topic: "stuck" })));
      await passFront(harness, scope);
      if (head === undefined) throw new Error("a row was expected");
      await harness.reset(head);
      const behind = await harness.insertOutbox(Array.from({ length: 30 }, () => ({ key: "k" })));
      const free = await harness.insertOutbox([{ key: "free" }, {}]);

      expect(await sendAll(harness, scope)).toEqual(free);
      harness.clock.advance(SWEEP_MS);
      expect(await sendAll(harness, scope)).toEqual([head, ...behind]);
    });

    test("take the rows of a key whose row of an excluded destination is scheduled ahead", async () => {
      await using harness = await open();
      const [, behind] = await harness.insertOutbox([{ topic: "stuck", key: "k", dueInMs: 600_000 }, { key: "k" }]);

      expect(await claimed(harness, except(["stuck"]))).toEqual([behind]);
    });

    test("take the rows behind one's own claims, and not behind those of others", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox([{ key: "k" }, { key: "k" }, { key: "k" }]);
      const scope = except(["stuck"]);
      const first = claimRequest({ scope, limit: 1 });
      await harness.store.outbox.claim(first);

      expect(await claimed(harness, scope)).toEqual([]);
      const { rows } = await harness.store.outbox.claim(claimRequest({ scope, heldTokens: [first.token] }));
      expect(rows.map(({ id }) => id)).toEqual(ids.slice(1));
    });

    test("pass a long front, and go on behind it with what is appended", async () => {
      await using harness = await open();
      const stuck = (count: number) => harness.insertOutbox(Array.from({ length: count }, () => ({ topic: "stuck" })));
      const scope = except(["stuck"]);
      await stuck(300);
      const free: MessageId[] = [];
      const sentInAll: MessageId[] = [];
      for (let round = 0; round < 5; round += 1) {
        free.push(...(await harness.insertOutbox(Array.from({ length: 15 }, (_, n) => ({ key: `free-${n % 3}` })))));
        await stuck(20);
        sentInAll.push(...(await sendAll(harness, scope)));
        harness.clock.advance(400);
      }

      expect(sentInAll).toEqual(free);
      expect(await claimed(harness, only(["stuck"]), 500)).toHaveLength(400);
    });

    test("meet what appears below the place where they begin with the next sweep: replays and retries", async () => {
      await using harness = await open();
      const scope = except(["stuck"]);
      const [early, retried] = await harness.insertOutbox([{}, { key: "retried" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest({ scope }));
      await harness.store.outbox.settle(rows.slice(0, 1).map(sent));
      await harness.insertOutbox(Array.from({ length: 30 }, () => ({ topic: "stuck" })));
      await passFront(harness, scope);

      await harness.store.outbox.settle(rows.slice(1).map((row) => failed(row, 100)));
      await harness.makeDue();
      expect(await claimed(harness, scope)).toEqual([]);
      harness.clock.advance(120);
      expect(await claimed(harness, scope)).toEqual([retried]);

      if (early === undefined) throw new Error("a row was expected");
      await passFront(harness, scope);
      await harness.reset(early);
      expect(await claimed(harness, scope)).toEqual([]);
      harness.clock.advance(SWEEP_MS);
      expect(await claimed(harness, scope)).toEqual([early]);
    });

    test.each<[string, ClaimScope, string | undefined]>([
      ["a scope alone", only(["orders"]), "only orders"],
      ["a scope that leaves other destinations out", except(["stuck"]), undefined],
    ])("sweep for the retries of %s", async (_, scope, name) => {
      await using harness = await open();
      const [row] = await harness.insertOutbox([{}, { topic: "stuck" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest({ scope }));
      await passFront(harness, scope);
      await harness.store.outbox.settle(rows.map((each) => ({ ...failed(each, 100), scope: name })));
      await harness.makeDue();

      expect(await claimed(harness, scope)).toEqual([]);
      harness.clock.advance(120);
      expect(await claimed(harness, scope)).toEqual([row]);
    });

    test("sweep for reclaimed rows", async () => {
      await using harness = await open();
      const scope = only(["orders"]);
      const [row] = await harness.insertOutbox([{}, { topic: "stuck" }]);
      expect(await claimed(harness, scope)).toEqual([row]);
      await passFront(harness, scope);
      await harness.expireLeases();
      expect(await harness.store.outbox.reclaim(10, 300_000)).toBe(1);
      expect(await claimed(harness, scope)).toEqual([]);
      harness.clock.advance(20);

      expect(await claimed(harness, scope)).toEqual([row]);
    });

    test("leave the claims of all rows as they are", async () => {
      await using harness = await open();
      const [stuck] = await harness.insertOutbox([{ topic: "stuck" }]);
      expect(await claimed(harness, except(["stuck"]))).toEqual([]);
      const { rows } = await harness.store.outbox.claim(claimRequest());
      expect(rows.map(({ id }) => id)).toEqual([stuck]);

      expect((await harness.store.outbox.claim(claimRequest())).rows).toEqual([]);
      const [free] = await harness.insertOutbox([{}]);
      expect(await claimed(harness, except(["stuck"]))).toEqual([free]);
    });

    test("three replicas that claim by scopes, with failures, deliver every row, each key in order", async () => {
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
