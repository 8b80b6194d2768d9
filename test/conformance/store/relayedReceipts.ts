import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, NewInboxRow } from "../../../src/model/rows.ts";
import type { ClaimRequest, RelayRequest, Store } from "../../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, type StoreHarness, sent } from "./harness.ts";

const TOPICS: RelayRequest["topics"] = { orders: ["orders.", ""], own: [" t.", ".", " "], bare: ["", ""] };
const REQUEST = relayRequest({ topics: TOPICS, ownKeySources: ["own"], maxAttempts: 7 });

/** Rows whose topics, keys and headers take every way that there is. */
const rowsOfAllKinds = (): readonly NewInboxRow[] => [
  inboxRow({ aggregateId: "a", payload: '{"n": 1.0,\n "t": "ä\\u0000"}' }),
  inboxRow({ source: "own", aggregateId: "a", eventType: "x" }),
  inboxRow({ source: "own", aggregateId: null, eventType: null }),
  inboxRow({ source: "bare", aggregateId: "", eventType: " \tcreated\n" }),
  inboxRow({ source: "bare", eventType: "  " }),
  inboxRow({ headers: { Host: "h", "ACCEPT-x": "y", "X-Source": "forged", "Content-Type": "text/plain", kept: "ö" } }),
  inboxRow({ headers: { "content-type": "application/problem+json", "x-inbox-id": "forged" } }),
  inboxRow({ headers: { Traceparent: "00-1", tracestate: "s=1", "svc-traceparent": "00-2", "svc-tracestate": "t=2" } }),
  inboxRow({ aggregateId: "a", eventType: "later" }),
];

/**
 * Receipts of a process that relays. If the database can, they relay rows that wait for nothing: the result must be the same whether receipt or relay relays a
 * row.
 */
export function exerciseRelayedReceipts(open: () => Promise<StoreHarness>): void {
  describe("receipts of a process that relays", () => {
    /** Stores rows, as the database allows. */
    const insert = async ({ inbox }: Store, rows: readonly NewInboxRow[], claim?: ClaimRequest) =>
      (await inbox.insertRelayed?.(rows, REQUEST, claim)) ?? { outcomes: await inbox.insert(rows), claimed: [] };
    const relayAll = async (store: Store) => {
      while ((await store.inbox.relay(REQUEST)).relayed > 0);
    };
    /** Stores rows, and lets the receipt claim. */
    const receive = async (
      store: Store,
      rows: readonly NewInboxRow[],
      overrides: Parameters<typeof claimRequest>[0] = {},
    ) => {
      const { outcomes, claimed } = await insert(store, rows, claimRequest(overrides));
      expect(outcomes.map(({ kind }) => kind)).toEqual(rows.map(() => "stored"));
      return [...claimed];
    };
    const made = async (harness: StoreHarness) =>
      (await harness.outboxRows()).map(({ sequence, updatedMsAgo, createdMsAgo, dueInMs, ...row }) => row);

    test("make of each row what a pass of the relay makes of it, in the same order", async () => {
      await using harness = await open();
      const rows = rowsOfAllKinds();
      const usual = await harness.replica();
      await usual.inbox.insert(rows);
      await usual.inbox.relay(REQUEST);
      const expected = { outbox: await made(harness), inbox: await harness.inboxRows() };
      expect(expected.outbox).toHaveLength(8);

      await using other = await open();
      const { outcomes } = await insert(other.store, rows);
      await other.store.inbox.relay(REQUEST);

      expect(outcomes.map(({ kind }) => kind)).toEqual(rows.map(() => "stored"));
      expect(await made(other)).toEqual(expected.outbox);
      const byId = (a: { readonly id: string }, b: { readonly id: string }) => (a.id < b.id ? -1 : 1);
      const withoutTimes = (all: typeof expected.inbox) => all.map(({ dueInMs, ...row }) => row).toSorted(byId);
      expect(withoutTimes(await other.inboxRows())).toEqual(withoutTimes(expected.inbox));
    });

    test("tell duplicates and rows of no relayed source from the others", async () => {
      await using harness = await open();
      const [first, again] = [inboxRow({ idempotencyKey: "one" }), inboxRow({ idempotencyKey: "one" })];
      const [pulled, unknown] = [inboxRow({ consumption: "pull" }), inboxRow({ source: "unknown" })];
      await insert(harness.store, [first]);

      const { outcomes } = await insert(harness.store, [again, inboxRow()]);
      await insert(harness.store, [pulled, inboxRow()]);
      await insert(harness.store, [unknown, inboxRow()]);
      await relayAll(harness.store);

      expect(outcomes.map(({ kind }) => kind)).toEqual(["duplicate", "stored"]);
      expect(await harness.outboxRows()).toHaveLength(4);
      const waiting = (await harness.inboxRows()).filter(({ state }) => state === "pending");
      expect(waiting.map(({ id }) => id).sort()).toEqual([pulled.id, unknown.id].sort());
    });

    test("leave a row behind earlier ones of its key, which another process received, and no other", async () => {
      await using harness = await open();
      const ingest = await harness.replica();
      const earlier = [inboxRow({ aggregateId: "a" }), inboxRow({ source: "own", aggregateId: "b" })];
      await ingest.inbox.insert(earlier);

      const behind = [inboxRow({ aggregateId: "a" }), inboxRow({ source: "own", aggregateId: "b" })];
      const free = [inboxRow({ aggregateId: "b" }), inboxRow({ source: "own", aggregateId: "a" }), inboxRow()];
      await insert(harness.store, [...behind, ...free]);
      await relayAll(harness.store);

      const order = (await harness.outboxRows()).map(({ id }) => id);
      for (const n of [0, 1]) {
        expect(order.indexOf(behind[n]?.id as never)).toBeGreaterThan(order.indexOf(earlier[n]?.id as never));
      }
      expect([...order].sort()).toEqual([...earlier, ...behind, ...free].map(({ id }) => id).sort());
    });

    test("keep the order of each key, while other processes receive and relay at once", async () => {
      await using harness = await open();
      const stores = [harness.store, await harness.replica(), await harness.replica()];
      let last = false;
      const relays = stores.slice(0, 2).map(async (store) => {
        while (!last) await store.inbox.relay(REQUEST);
      });
      const perKey = 40;
      // Each sender has a key, and sends the next message when the last one was stored, to whichever process.
      const senders = Array.from({ length: 8 }, async (_, key) => {
        for (let n = 0; n < perKey; n += 1) {
          const row = inboxRow({ aggregateId: `key-${key}`, payload: String(n) });
          await insert(stores[(n * 7 + key) % stores.length] as Store, [row]);
        }
      });
      await Promise.all(senders);
      last = true;
      await Promise.all(relays);
      await relayAll(harness.store);

      const rows = await harness.outboxRows();
      expect(rows).toHaveLength(8 * perKey);
      for (let key = 0; key < 8; key += 1) {
        const payloads = rows.filter((row) => row.key === `key-${key}`).map(({ payload }) => Number(payload));
        expect(payloads).toEqual(Array.from({ length: perKey }, (_, n) => n));
      }
    });

    test("give what a claim gives, if they claim", async () => {
      await using harness = await open();
      const rows = rowsOfAllKinds();
      const usual = await harness.replica();
      await usual.inbox.insert(rows);
      await usual.inbox.relay(REQUEST);
      const seen = ({ claimToken, sequence, createdAt, ...row }: ClaimedRow) => row;
      const expected = (await usual.outbox.claim(claimRequest())).rows.map(seen);
      expect(expected).toHaveLength(8);

      await using other = await open();
      const first = claimRequest();
      const claimed = await receive(other.store, rows, { token: first.token });
      await other.store.inbox.relay(REQUEST);
      const { rows: left } = await other.store.outbox.claim({ ...claimRequest(), heldTokens: [first.token] });
      expect([...claimed, ...left].map(seen)).toEqual(expected);
      expect(claimed.every(({ claimToken }) => claimToken === first.token)).toBe(true);
      expect(await other.store.outbox.renew([first.token], first)).toEqual(new Set(claimed.map(({ id }) => id)));
      expect((await other.store.outbox.settle([...claimed, ...left].map(sent))).closed.size).toBe(8);
    });

    test("claim no row behind an unfinished one of its key, whether received or inserted", async () => {
      await using harness = await open();
      const { store } = harness;
      const [byApplication] = await harness.insertOutbox([{ topic: "orders", key: "a" }]);
      const rows = [inboxRow({ aggregateId: "a" }), inboxRow({ aggregateId: "b" }), inboxRow({ aggregateId: "a" })];
      const delivered = await receive(store, rows);
      await store.inbox.relay(REQUEST);
      let claimed: readonly ClaimedRow[] = delivered;
      do {
        await store.outbox.settle(claimed.map(sent));
        ({ rows: claimed } = await store.outbox.claim(claimRequest({ limit: 1 })));
        delivered.push(...claimed);
      } while (claimed.length > 0);
      expect(delivered.flatMap(({ id, key }) => (key === "a" ? [id] : []))).toEqual([
        byApplication,
        rows[0]?.id,
        rows[2]?.id,
      ]);
      expect(delivered).toHaveLength(4);
    });
  });
}
