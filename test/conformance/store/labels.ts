import { describe, expect, test } from "@jest/globals";
import type { MessageId } from "../../../src/model/rows.ts";
import { claimRequest, failed, type StoreHarness } from "./harness.ts";

const [OLD, NEW] = ["00000001", "00000002"];

export function exerciseLabels(open: () => Promise<StoreHarness>): void {
  /** One walk. @returns the rows that each step has found */
  async function walk({ store }: StoreHarness, keep: readonly string[], limit: number): Promise<readonly number[]> {
    const steps: number[] = [];
    let after: string | null = null;
    do {
      const step: Awaited<ReturnType<typeof store.outbox.relabel>> = await store.outbox.relabel(keep, after, limit);
      steps.push(step.found);
      after = step.next;
    } while (after !== null);
    return steps;
  }
  const destinationOf = async ({ store }: StoreHarness, id: MessageId) => {
    const { outbox } = await store.messages.get(id, false);
    return [outbox?.destination, outbox?.isPinned];
  };

  describe("a walk after a change of routes", () => {
    test("takes the labels of routes that are gone, a few rows at a time, and no others", async () => {
      await using harness = await open();
      const ids = (await harness.insertOutbox([
        { topic: "a", key: "k", destination: "b", routes: OLD },
        { topic: "a", key: "k", destination: "a", routes: NEW },
        { topic: "a", destination: "b" },
        { topic: "a" },
        { topic: "a", destination: "a", routes: OLD },
        { topic: "a", destination: "A b", routes: OLD },
      ])) as [MessageId, MessageId, MessageId, MessageId, MessageId, MessageId];
      expect(await walk(harness, [OLD, NEW], 2)).toEqual([0, 0, 0]);
      const found = await walk(harness, [NEW], 2);
      expect(found.length).toBeGreaterThan(2);
      expect(found.reduce((sum, n) => sum + n)).toBe(3);
      expect(await Promise.all(ids.map((id) => destinationOf(harness, id)))).toEqual([
        [null, false],
        ["a", false],
        ["b", true],
        [null, false],
        [null, false],
        [null, false],
      ]);
      expect(await walk(harness, [NEW], 100)).toEqual([0]);
    });

    test("takes those of rows in delivery and in backoff too", async () => {
      await using harness = await open();
      const { outbox } = harness.store;
      const [first, second] = (await harness.insertOutbox([
        { topic: "a", destination: "b", routes: OLD },
        { topic: "a", destination: "b", routes: OLD },
      ])) as [MessageId, MessageId];
      const { rows } = await outbox.claim(claimRequest({ limit: 1 }));
      await outbox.settle(rows.map((row) => failed(row)));
      const { rows: claimed } = await outbox.claim(claimRequest());
      expect(claimed.map(({ id }) => id)).toEqual([second]);
      expect(await walk(harness, [NEW], 100)).toEqual([2]);
      expect(await destinationOf(harness, first)).toEqual([null, false]);
      expect((await outbox.settle(claimed.map((row) => failed(row)))).closed.size).toBe(1);
      expect(await destinationOf(harness, second)).toEqual([null, false]);
    });

    test("the destinations that pending rows name are found", async () => {
      await using harness = await open();
      const { outbox } = harness.store;
      expect(await outbox.destinationsWaiting()).toEqual([]);
      await harness.insertOutbox(
        ["b", "a", "b", "gone", "", "A"].map((destination) => ({ topic: "a", key: "k", destination })),
      );
      await harness.insertOutbox([{ topic: "a" }]);
      expect(new Set(await outbox.destinationsWaiting())).toEqual(new Set(["A", "a", "b", "gone"]));
      expect(await outbox.destinationsWaiting()).toHaveLength(4);
    });
  });
}
