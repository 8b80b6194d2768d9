import { describe, expect, test } from "@jest/globals";
import { EXPIRED, type NewInboxRow } from "../../../src/model/rows.ts";
import { claimRequest, died, inboxRow, relayRequest, type StoreHarness } from "./harness.ts";
import { pullRequest, receive } from "./pullSupport.ts";

const HOUR_MS = 3_600_000;
const LATER = { at: null, afterMs: HOUR_MS };
const GONE = { at: Date.UTC(2001, 0, 1), afterMs: null };

/** Receives rows of one aggregate, and relays them. */
async function relayed({ store }: StoreHarness, rows: readonly Partial<NewInboxRow>[]) {
  const received = rows.map((row) => inboxRow({ aggregateId: "k", ...row }));
  expect((await store.inbox.insert(received)).map(({ kind }) => kind)).toEqual(received.map(() => "stored"));
  return { received, result: await store.inbox.relay(relayRequest()) };
}

export function exerciseExpiry(open: () => Promise<StoreHarness>): void {
  describe("a message that expires", () => {
    test.each([
      ["has expired by its time", GONE],
      ["has expired by the earlier of two times", { ...GONE, afterMs: HOUR_MS }],
      ["has expired at its receipt", { at: null, afterMs: 0 }],
    ])("is dead instead of relayed if it %s, and does not block others of its key", async (_how, expiry) => {
      await using harness = await open();
      const { received, result } = await relayed(harness, [{ expiry }, {}]);
      const [first, second] = received;
      expect(result).toMatchObject({ relayed: 1, dead: [{ id: first?.id, source: "orders", reason: EXPIRED }] });
      expect(await harness.inboxRows()).toMatchObject([
        { id: first?.id, state: "dead", lastError: EXPIRED },
        { id: second?.id, state: "processed", lastError: null },
      ]);
      expect((await harness.outboxRows()).map(({ id }) => id)).toEqual([second?.id]);
    });

    test("is dead with that reason also if its topic renders empty", async () => {
      await using harness = await open();
      const [row] = [inboxRow({ expiry: GONE, eventType: null })];
      await harness.store.inbox.insert([row]);
      const { dead } = await harness.store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));
      expect(dead).toMatchObject([{ reason: EXPIRED }]);
    });

    test("is claimed as such from its time on, by the clock of the database", async () => {
      await using harness = await open();
      await relayed(harness, [{ expiry: LATER }, {}, { expiry: { at: Date.now() + HOUR_MS, afterMs: 2 * HOUR_MS } }]);
      const { rows } = await harness.store.outbox.claim(claimRequest());
      const minutes = rows.map(({ expiresInMs }) => expiresInMs && Math.ceil(expiresInMs / 60_000));
      expect(minutes).toEqual([60, null, 60]);
      await harness.expireMessages();
      await harness.expireLeases();
      await harness.store.outbox.reclaim(10, 30_000);
      const again = (await harness.store.outbox.claim(claimRequest())).rows;
      expect(again.map(({ expiresInMs }) => expiresInMs)).toEqual([0, null, 0]);
    });

    test("is delivered after all if an operator replays it", async () => {
      await using harness = await open();
      const { outbox, replay } = harness.store;
      const { received } = await relayed(harness, [{ expiry: LATER }]);
      await harness.expireMessages();
      const { rows } = await outbox.claim(claimRequest());
      await outbox.settle(rows.map((row) => died(row, false)));
      expect(
        await replay.move(
          await replay.begin(),
          received.map(({ id }) => id),
          "alice",
        ),
      ).toMatchObject({ changed: 1 });
      expect((await outbox.claim(claimRequest())).rows).toMatchObject([{ expiresInMs: null, attempt: 0 }]);
    });

    test("is dead instead of given to a pull client, and the next one of its aggregate is given", async () => {
      await using harness = await open();
      const [first, second] = await receive(harness, [{ aggregateId: "a", expiry: LATER }, { aggregateId: "a" }]);
      await harness.expireMessages();
      const { rows, dead } = await harness.store.pull.claim(pullRequest());
      expect([dead, rows.map(({ id }) => id)]).toEqual([[first?.id], [second?.id]]);
      expect(await harness.inboxRows()).toMatchObject([
        { state: "dead", lastError: EXPIRED, attempt: 0 },
        { attempt: 1 },
      ]);
    });

    test("is stored once, among others that do not", async () => {
      await using harness = await open();
      const rows = [
        inboxRow({ expiry: LATER }),
        inboxRow(),
        inboxRow({ expiry: GONE, state: "dead", lastError: "no" }),
      ];
      for (const insert of ["insert", "insertAllOrNone"] as const) {
        const outcomes = await harness.store.inbox[insert](rows.map((row) => ({ ...row, id: inboxRow().id })));
        const kind = insert === "insert" ? "stored" : "duplicate";
        expect(outcomes).toEqual(rows.map(() => ({ kind })));
      }
      expect(await harness.inboxRows()).toHaveLength(3);
    });
  });
}
