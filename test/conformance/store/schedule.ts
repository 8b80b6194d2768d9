import { describe, expect, test } from "@jest/globals";
import type { NewInboxRow } from "../../../src/model/rows.ts";
import { eventually } from "../../support/eventually.ts";
import { inboxRow, relayRequest, type StoreHarness } from "./harness.ts";

/** The end of the year 9999. */
const LAST_MS = 253_402_300_799_999;

const delay = (delayMs: number) => ({ delayMs, publishedAt: null, notBefore: null });

export function exerciseSchedule(open: () => Promise<StoreHarness>): void {
  describe("a row that is put off at its receipt", () => {
    test("a row with a delay is relayed when it is due, in its order, and holds back no other until then", async () => {
      await using harness = await open();
      const { inbox } = harness.store;
      const held = ["first", "second"].map((aggregate) => inboxRow({ aggregateId: aggregate, schedule: delay(2000) }));
      const behind = inboxRow({ aggregateId: "first", schedule: delay(2000) });
      const free = inboxRow({ aggregateId: "first" });
      await inbox.insert([...held, free]);
      await inbox.insert([behind]);

      expect(await inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
      expect((await harness.outboxRows()).map(({ id }) => id)).toEqual([free.id]);
      expect(await inbox.oldestPendingAgeMs(["orders"])).toBeNull();

      await eventually(async () => {
        await inbox.relay(relayRequest({ limit: 1 }));
        return (await harness.outboxRows()).length === 4;
      });
      const relayed = (await harness.outboxRows()).map(({ id }) => id);
      expect(relayed).toEqual([free.id, ...held.map(({ id }) => id), behind.id]);
    });

    test("rows of an aggregate leave in the order of their publication, whichever replica received them when", async () => {
      await using harness = await open();
      const stores = [harness.store, await harness.replica(harness.clock)];
      const now = Date.now();
      const published = Array.from({ length: 12 }, (_, n) =>
        inboxRow({ aggregateId: "a", schedule: { ...delay(2000), publishedAt: now - 12 + n } }),
      );
      // By turns, in pairs, the last ones first.
      for (let n = 0; n < published.length; n += 2) {
        await stores[(n / 2) % 2]?.inbox.insert(published.slice(-n - 2, published.length - n));
      }
      const ordinary = inboxRow({ aggregateId: "a" });
      await harness.store.inbox.insert([ordinary]);

      const order = [ordinary, ...published].map(({ id }) => id);
      await eventually(async () => {
        await Promise.all(stores.map(({ inbox }) => inbox.relay(relayRequest({ limit: 5 }))));
        const ids = (await harness.outboxRows()).map(({ id }) => id);
        expect(ids).toEqual(order.slice(0, ids.length));
        return ids.length === order.length;
      });
    });

    const DELAY = 3_600_000;
    const DAY = 86_400_000;
    test.each<[string, (now: number) => NewInboxRow["schedule"], (now: number) => number]>([
      ["without a schedule", () => undefined, () => 0],
      ["with a delay from its receipt", () => delay(DELAY), () => DELAY],
      ["with the longest delay", () => delay(365 * DAY), () => 365 * DAY],
      [
        "with a delay from its publication",
        (now) => ({ ...delay(DELAY), publishedAt: now - DELAY / 2 }),
        () => DELAY / 2,
      ],
      ["received after its delay", (now) => ({ ...delay(DELAY), publishedAt: now - DAY }), () => 0],
      ["published long ago", () => ({ ...delay(DELAY), publishedAt: 0 }), () => 0],
      ["published in the future", (now) => ({ ...delay(DELAY), publishedAt: now + DAY }), () => DELAY],
      ["not to be delivered before a time", (now) => ({ ...delay(0), notBefore: now + DAY }), () => DAY],
      ["with a time that has come", (now) => ({ ...delay(0), notBefore: now - DAY }), () => 0],
      ["with a time before the end of its delay", (now) => ({ ...delay(DAY), notBefore: now + DELAY }), () => DAY],
      ["with a time after the end of its delay", (now) => ({ ...delay(DELAY), notBefore: now + DAY }), () => DAY],
      ["for the last time there is", () => ({ ...delay(0), notBefore: LAST_MS }), (now) => LAST_MS - now],
    ])("is due at its time: %s", async (_, scheduleAt, dueIn) => {
      const expectedInMs = dueIn(Date.now());
      await using harness = await open();
      const { inbox } = harness.store;
      const row = () => inboxRow({ schedule: scheduleAt(Date.now()) });
      const expiring = { ...row(), expiry: { at: null, afterMs: DAY } };
      await inbox.insert([row(), inboxRow(), expiring]);
      await inbox.insert([row()]);
      await inbox.insertAllOrNone([row()]);

      const due = (await harness.inboxRows()).map(({ dueInMs }) => dueInMs);

      const scheduled = due.toSorted((a, b) => a - b);
      expect(scheduled).toHaveLength(5);
      expect(scheduled[0]).toBeLessThanOrEqual(0);
      for (const ms of scheduled.slice(1)) {
        expect(ms).toBeLessThanOrEqual(expectedInMs);
        expect(ms).toBeGreaterThan(expectedInMs - 60_000);
      }
    });

    test("the age of a row with a delay counts from when it is due", async () => {
      await using harness = await open();
      await harness.store.inbox.insert([inboxRow({ schedule: delay(2000) })]);

      const age = await eventually(async () => {
        const oldest = await harness.store.inbox.oldestPendingAgeMs(["orders"]);
        expect(oldest).not.toBeNull();
        return oldest;
      });

      const [row] = await harness.inboxRows();
      expect(age).toBeLessThanOrEqual(-(row?.dueInMs ?? 0));
    });
  });
}
