import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow } from "../../../src/model/rows.ts";
import type { ClaimRequest, Store } from "../../../src/ports/store.ts";
import { systemClock } from "../../../src/time/clock.ts";
import { seeded } from "../../support/random.ts";
import { claimRequest, claimSome, died, failed, released, type StoreHarness, sent } from "./harness.ts";

export function exerciseOrder(open: () => Promise<StoreHarness>): void {
  describe("order per key", () => {
    test("a run of rows of one key is claimed together, in order, beside other keys and free rows", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox([{ key: "a" }, {}, { key: "a" }, { key: "b" }, { key: "a" }]);

      const { rows, heldBack } = await harness.store.outbox.claim(claimRequest());

      expect(rows.map((row) => row.id)).toEqual(ids);
      expect(heldBack).toBe(0);
    });

    test("while a row of a key is in flight elsewhere, later rows of the key wait and others do not", async () => {
      await using harness = await open();
      const [, , , free] = await harness.insertOutbox([{ key: "a" }, { key: "a" }, { key: "a" }, { key: "b" }]);
      const other = await harness.replica();
      const held = await other.outbox.claim(claimRequest({ limit: 1 }));

      const claim = await harness.store.outbox.claim(claimRequest());
      expect(claim.rows.map((row) => row.id)).toEqual([free]);
      expect(claim.heldBack).toBe(2);

      await other.outbox.settle(held.rows.map(sent));
      expect((await harness.store.outbox.claim(claimRequest())).rows).toHaveLength(2);
    });

    test("rows behind one of this process' own claims are claimed; behind any other they wait", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "a" }, { key: "a" }]);
      const own = claimRequest({ limit: 1 });
      await harness.store.outbox.claim(own);

      expect((await harness.store.outbox.claim(claimRequest())).rows).toEqual([]);
      expect((await harness.store.outbox.claim(claimRequest({ heldTokens: [own.token] }))).rows).toHaveLength(1);
    });

    test("while a row waits for its retry, later rows of its key wait behind it, also once it is due", async () => {
      await using harness = await open();
      const [head, next] = await harness.insertOutbox([{ key: "a" }, { key: "a" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest({ limit: 1 }));
      await harness.store.outbox.settle(rows.map((row) => failed(row)));

      expect((await harness.store.outbox.claim(claimRequest())).rows).toEqual([]);

      await harness.makeDue();
      expect((await harness.store.outbox.claim(claimRequest())).rows.map((row) => row.id)).toEqual([head, next]);
    });

    test.each<[string, (row: ClaimedRow) => ReturnType<typeof sent>]>([
      ["sent", sent],
      ["dead", (row) => died(row)],
    ])("a key continues once its row is %s", async (_, settle) => {
      await using harness = await open();
      const [, next] = await harness.insertOutbox([{ key: "a" }, { key: "a" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest({ limit: 1 }));
      await harness.store.outbox.settle(rows.map(settle));

      expect((await harness.store.outbox.claim(claimRequest())).rows.map((row) => row.id)).toEqual([next]);
    });

    test("the rest of a run that was given back waits behind its failed head", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ key: "a" }, { key: "a" }, { key: "a" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest());
      const [head, ...rest] = rows;
      if (head === undefined) throw new Error("nothing was claimed");
      await harness.store.outbox.settle([failed(head), ...rest.map(released)]);

      expect((await harness.store.outbox.claim(claimRequest())).rows).toEqual([]);
    });

    test("a reclaimed row comes before the later rows of its key", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox([{ key: "a" }, { key: "a" }]);
      await harness.store.outbox.claim(claimRequest({ limit: 1 }));
      await harness.expireLeases();
      await harness.store.outbox.reclaim(10, 300_000);

      expect((await harness.store.outbox.claim(claimRequest())).rows.map((row) => row.id)).toEqual(ids);
    });

    test("rows behind a blocked key that fills many batches are not starved", async () => {
      await using harness = await open();
      await harness.insertOutbox(Array.from({ length: 300 }, () => ({ key: "blocked" })));
      const free = await harness.insertOutbox(Array.from({ length: 60 }, (_, n) => ({ key: `free-${n % 6}` })));
      await block(harness);

      const claimed: string[] = [];
      for (let pass = 0; pass < 10; pass += 1) {
        const { rows } = await claimSome(harness.store, { limit: 20 });
        claimed.push(...rows.map((row) => row.id));
        await harness.store.outbox.settle(rows.map(sent));
      }

      expect(claimed).toEqual(free);
    });

    test("rows behind more blocked keys than a claim can look at beforehand are left out, and the free ones between them are not", async () => {
      await using harness = await open();
      const keys = Array.from({ length: 250 }, (_, n) => `blocked-${n}`);
      await harness.insertOutbox(keys.map((key) => ({ key })));
      const heads = await harness.store.outbox.claim(claimRequest({ limit: keys.length }));
      await harness.store.outbox.settle(heads.rows.map((row) => failed(row)));
      // A front of rows behind them, then as many more with a free row after every fifth.
      await harness.insertOutbox(keys.map((key) => ({ key })));
      const mixed = keys.map((key, n) => (n % 5 === 0 ? { key: `free-${n}` } : { key }));
      const inserted = await harness.insertOutbox(mixed);
      const free = inserted.filter((_, n) => n % 5 === 0);

      const claimed: string[] = [];
      for (let pass = 0; pass < 60; pass += 1) {
        const { rows } = await claimSome(harness.store, { limit: 10 });
        claimed.push(...rows.map((row) => row.id));
        await harness.store.outbox.settle(rows.map(sent));
      }
      expect(claimed).toEqual(free);
    });

    test("what becomes free, is added, or is set back below the place where claims begin is met by the next sweep", async () => {
      await using harness = await open();
      const [early] = await harness.insertOutbox([{ key: "early" }]);
      await harness.store.outbox.settle((await harness.store.outbox.claim(claimRequest())).rows.map(sent));
      const blocked = await harness.insertOutbox(Array.from({ length: 100 }, () => ({ key: "blocked" })));
      await block(harness);
      await harness.insertOutbox([{ key: "free" }]);
      const past = await claimSome(harness.store, { limit: 20 });
      expect(past.rows.map((row) => row.key)).toEqual(["free"]);
      if (early === undefined) throw new Error("a row was expected");

      await harness.reset(early);
      await harness.makeDue();
      harness.clock.advance(5000);
      const swept: string[] = [];
      for (let pass = 0; pass < 8; pass += 1) {
        const { rows } = await claimSome(harness.store, { limit: 20 });
        swept.push(...rows.map((row) => row.id));
        await harness.store.outbox.settle(rows.map(sent));
      }

      expect(swept).toEqual([early, ...blocked]);
    });

    test.each([[3], [20], [200]])(
      "six replicas with failures on %i keys deliver every row, each key in order",
      async (keys) => {
        await using harness = await open();
        // Running clocks: what a retry sets free below a replica's cursor is met when it sweeps.
        const replicas = await Promise.all(Array.from({ length: 6 }, () => harness.replica(systemClock)));
        const total = 600;
        await harness.insertOutbox(
          Array.from({ length: total }, (_, n) => ({ key: `key-${n % keys}`, payload: String(n), maxAttempts: 1000 })),
        );
        const delivered: number[] = [];
        const random = seeded(keys);

        await Promise.all(replicas.map((store) => drain(store, delivered, total, random)));

        expect(delivered.toSorted((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, n) => n));
        for (let key = 0; key < keys; key += 1) {
          const payloads = delivered.filter((n) => n % keys === key);
          expect(payloads).toEqual(payloads.toSorted((a, b) => a - b));
        }
      },
      60_000,
    );
  });
}

/** Claims the first row and lets it fail for a minute. */
async function block(harness: StoreHarness): Promise<void> {
  const { rows } = await harness.store.outbox.claim(claimRequest({ limit: 1 }));
  await harness.store.outbox.settle(rows.map((row) => failed(row)));
}

/**
 * One replica: claims, "delivers" run by run with one failure in twenty, settles, until all replicas together have delivered `total`.
 *
 * @param requestOf makes the request of each claim, by its number
 */
export async function drain(
  store: Store,
  delivered: number[],
  total: number,
  random: () => number,
  requestOf: (turn: number) => ClaimRequest = () => claimRequest({ limit: 30 }),
): Promise<void> {
  for (let turn = 0; delivered.length < total; turn += 1) {
    const { rows } = await store.outbox.claim(requestOf(turn));
    const failedKeys = new Set<string>();
    const outcomes = rows.map((row) => {
      const key = row.key ?? "";
      if (failedKeys.has(key)) return released(row);
      if (random() < 0.05) {
        failedKeys.add(key);
        return failed(row, 1);
      }
      delivered.push(Number(row.payload));
      return sent(row);
    });
    await store.outbox.settle(outcomes);
  }
}
