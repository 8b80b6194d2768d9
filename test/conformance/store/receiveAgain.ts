import { describe, expect, test } from "@jest/globals";
import type { NewInboxRow } from "../../../src/model/rows.ts";
import { inboxRow, relayRequest, type StoreHarness } from "./harness.ts";
import { claim, pullRequest } from "./pullSupport.ts";

export function exerciseReceiveAgain(open: () => Promise<StoreHarness>): void {
  describe("receiving a dead inbox row again", () => {
    const dead = (overrides: Partial<NewInboxRow> = {}) =>
      inboxRow({ state: "dead", lastError: "no JSON", ...overrides });
    const again = (row: NewInboxRow): NewInboxRow => ({ ...row, state: "pending", lastError: null });

    test("writes what its source makes of it now, under its id, source and key, and the relay takes it", async () => {
      await using harness = await open();
      const row = dead({ payload: "bm8=", headers: { a: "1" }, eventType: null, aggregateId: null });
      await harness.store.inbox.insert([row]);
      const written = { payload: '{"é":"\u2028"}', headers: { B: "2" }, eventType: "made", aggregateId: "a-1" };

      expect(await harness.store.replay.receiveAgain(again({ ...row, ...written }))).toBe(true);

      const [record] = await harness.inboxRows();
      const { id, source, idempotencyKey } = row;
      expect(record).toMatchObject({ id, source, idempotencyKey, payload: written.payload, aggregateId: "a-1" });
      expect(record).toMatchObject({ state: "pending", attempt: 0, processed: false, lastError: null });
      expect((await harness.store.inbox.relay(relayRequest())).relayed).toBe(1);
      expect(await harness.outboxRows()).toMatchObject([
        { id, topic: "orders.made", key: "a-1", payload: written.payload, headers: { B: "2" } },
      ]);
    });

    test("keeps it dead with the reason why it was refused again", async () => {
      await using harness = await open();
      const row = dead();
      await harness.store.inbox.insert([row]);
      expect(await harness.store.replay.receiveAgain({ ...row, lastError: "still no JSON" })).toBe(true);
      expect(await harness.inboxRows()).toMatchObject([{ state: "dead", processed: true, lastError: "still no JSON" }]);
      expect((await harness.store.inbox.relay(relayRequest())).relayed).toBe(0);
    });

    test("leaves a row that is pending, processed or not there", async () => {
      await using harness = await open();
      const [pending, processed] = [inboxRow(), inboxRow({ source: "gone" })];
      await harness.store.inbox.insert([pending, processed]);
      await harness.finishInbox([processed.id], { state: "processed" });
      const before = await harness.inboxRows();
      for (const row of [pending, processed, inboxRow()])
        expect(await harness.store.replay.receiveAgain(again({ ...row, payload: "{}" }))).toBe(false);
      expect((await harness.inboxRows()).map(({ state, payload }) => [state, payload])).toEqual(
        before.map(({ state, payload }) => [state, payload]),
      );
    });

    test("puts rows of an aggregate into the outbox in the order in which they are written, behind those relayed since", async () => {
      await using harness = await open();
      const rows = Array.from({ length: 5 }, () => dead({ aggregateId: "a" }));
      await harness.store.inbox.insert(rows);
      await harness.store.inbox.insert([inboxRow({ aggregateId: "a", idempotencyKey: "since" })]);
      await harness.store.inbox.relay(relayRequest());
      // An idle relay has marks by which it begins behind what it has seen.
      await harness.store.inbox.relay(relayRequest());
      harness.clock.advance(60_000);
      await harness.store.inbox.relay(relayRequest());

      for (const row of rows) await harness.store.replay.receiveAgain(again(row));
      while ((await harness.store.inbox.relay(relayRequest({ limit: 2 }))).relayed > 0);

      expect((await harness.outboxRows()).slice(1).map(({ id }) => id)).toEqual(rows.map(({ id }) => id));
    });

    test("keeps a row that a receipt relays behind those of its aggregate that still wait", async () => {
      await using harness = await open();
      const [row, next] = [dead({ aggregateId: "a" }), inboxRow({ aggregateId: "a" })];
      await harness.store.inbox.insert([row]);
      await harness.store.inbox.relay(relayRequest());
      await harness.store.replay.receiveAgain(again(row));
      // This process relays and has caught up: a receipt relays its row too, if none waits in front of it.
      await harness.store.inbox.insert([next]);
      while ((await harness.store.inbox.relay(relayRequest())).relayed > 0);
      expect((await harness.outboxRows()).map(({ id }) => id)).toEqual([row.id, next.id]);
    });

    test("makes a row that pull clients gave up available again, with all its claims", async () => {
      await using harness = await open();
      const row = inboxRow({ consumption: "pull" });
      await harness.store.inbox.insert([row]);
      const held = await claim(harness, { maxAttempts: 1 });
      await harness.store.pull.reject(held, { delayMs: 0, reason: "no", maxAttempts: 1 });
      expect(await harness.inboxRows()).toMatchObject([{ state: "dead", attempt: 1 }]);
      expect(await harness.store.replay.receiveAgain(again(row))).toBe(true);
      expect(await harness.inboxRows()).toMatchObject([{ state: "pending", attempt: 0, claimToken: null }]);
      const { rows } = await harness.store.pull.claim(pullRequest({ maxAttempts: 1 }));
      expect(rows.map(({ id, attempt }) => [id, attempt])).toEqual([[row.id, 1]]);
    });

    test("lets an expired row live", async () => {
      await using harness = await open();
      const row = inboxRow({ expiry: { at: null, afterMs: 1000 } });
      await harness.store.inbox.insert([row]);
      await harness.expireMessages();
      await harness.store.inbox.relay(relayRequest());
      expect(await harness.inboxRows()).toMatchObject([{ state: "dead" }]);
      expect(await harness.store.replay.receiveAgain(again(row))).toBe(true);
      expect((await harness.store.inbox.relay(relayRequest())).relayed).toBe(1);
    });
  });
}
