import { describe, expect, test } from "@jest/globals";
import type { NewJournalEntry } from "../../../src/ports/journalStore.ts";
import { inboxRow, type StoreHarness } from "./harness.ts";

const FILTERED: NewJournalEntry = {
  source: "orders",
  outcome: "filtered",
  idempotencyKey: "order-1",
  correlationId: "c-1",
  replica: "host-1",
  ageMs: 0,
};
const DAY_MS = 24 * 3_600_000;

export function exerciseJournal(open: () => Promise<StoreHarness>): void {
  describe("the journal", () => {
    test("finds filtered messages by key and by correlation id, newest first", async () => {
      await using harness = await open();
      const { journal } = harness.store;
      await journal.add([
        { ...FILTERED, ageMs: 60_000 },
        { ...FILTERED, source: "bills", correlationId: null },
        { ...FILTERED, idempotencyKey: null },
        { ...FILTERED, outcome: "duplicate" },
        { ...FILTERED, idempotencyKey: "Order-1", correlationId: "C-1" },
      ]);

      const ofKey = await journal.find({ outcome: "filtered", idempotencyKey: "order-1" }, 10);
      expect(ofKey).toMatchObject([
        {
          at: expect.any(Date),
          source: "bills",
          outcome: "filtered",
          idempotencyKey: "order-1",
          correlationId: null,
          messageId: null,
          replica: "host-1",
        },
        expect.objectContaining({ source: "orders", correlationId: "c-1" }),
      ]);
      const [newer, older] = ofKey.map(({ at }) => at.getTime()) as [number, number];
      expect(newer - older).toBe(60_000);
      const ofCorrelation = await journal.find({ outcome: "filtered", correlationId: "c-1" }, 10);
      expect(ofCorrelation.map(({ idempotencyKey }) => idempotencyKey)).toEqual([null, "order-1"]);
      expect(await journal.find({ outcome: "filtered", correlationId: "c-1" }, 1)).toHaveLength(1);
      expect(await journal.find({ outcome: "filtered", idempotencyKey: "other" }, 10)).toEqual([]);
    });

    test("gives a duplicate the id of the first message of its source and key", async () => {
      await using harness = await open();
      const { inbox, journal } = harness.store;
      const [first, other] = [
        inboxRow({ source: "orders", idempotencyKey: "it's \u00e9 key " }),
        inboxRow({ source: "bills", idempotencyKey: "it's \u00e9 key " }),
      ];
      await inbox.insert([first, other]);
      const duplicate = { ...FILTERED, outcome: "duplicate", idempotencyKey: first.idempotencyKey } as const;
      await journal.add([
        { ...duplicate, correlationId: "c-2" },
        { ...duplicate, correlationId: "c-3" },
        { ...duplicate, source: "bills" },
        { ...duplicate, idempotencyKey: "deleted since" },
        FILTERED,
      ]);

      const { entries, count } = await journal.duplicatesOf(first.id, 10);
      expect(entries.map(({ correlationId, messageId }) => [correlationId, messageId])).toEqual([
        ["c-3", first.id],
        ["c-2", first.id],
      ]);
      expect(count).toBe(2);
      expect(await journal.duplicatesOf(first.id, 1)).toMatchObject({ entries: [{ correlationId: "c-3" }], count: 2 });
      expect(await journal.duplicatesOf(other.id, 10)).toMatchObject({ count: 1 });
      expect(await journal.duplicatesOf(inboxRow().id, 10)).toEqual({ entries: [], count: 0 });
    });

    test("deletes what is older than a day, the oldest first, a bounded number at a time", async () => {
      await using harness = await open();
      const { journal } = harness.store;
      const ages = [DAY_MS + 3000, DAY_MS + 2000, DAY_MS + 1000, DAY_MS - 60_000, 0];
      await journal.add(ages.map((ageMs) => ({ ...FILTERED, ageMs })));

      expect(await journal.deleteOld(2)).toBe(2);
      expect(await journal.deleteOld(2)).toBe(1);
      expect(await journal.deleteOld(2)).toBe(0);
      expect(await journal.find({ outcome: "filtered", idempotencyKey: "order-1" }, 10)).toHaveLength(2);
    });
  });
}
