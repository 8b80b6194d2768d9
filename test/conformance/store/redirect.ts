import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, MessageId } from "../../../src/model/rows.ts";
import { claimRequest, died, failed, parked, queuesOf, type StoreHarness, sent } from "./harness.ts";

/** Rows of the topic `a`, so of the destination `a`, that were replayed to `b`. */
async function redirected(harness: StoreHarness, keys: readonly (string | null)[]): Promise<readonly MessageId[]> {
  const { outbox, replay } = harness.store;
  const ids = await harness.insertOutbox(keys.map((key) => ({ topic: "a", key })));
  await outbox.settle((await outbox.claim(claimRequest())).rows.map((row) => died(row)));
  expect(await replay.move(await replay.begin(), ids, "alice", "b")).toMatchObject({ changed: ids.length });
  return ids;
}

const claimOf = async ({ store }: StoreHarness, destination: string) =>
  (await store.outbox.claim(claimRequest({ queues: queuesOf([destination]) }))).rows;
const idsOf = (rows: readonly ClaimedRow[]) => rows.map(({ id }) => id);

export function exerciseRedirect(open: () => Promise<StoreHarness>): void {
  describe("a row that was replayed to another destination", () => {
    test("is claimed as one of that destination, and carries its name", async () => {
      await using harness = await open();
      expect(harness.store.replay.destinationRemedy).toBeUndefined();
      const [id] = await redirected(harness, [null]);
      const [there] = await harness.insertOutbox([{ topic: "a", key: null }]);
      expect(await claimOf(harness, "a")).toMatchObject([{ id: there, destination: "a", isPinned: false }]);
      expect(await claimOf(harness, "c")).toEqual([]);
      expect(await claimOf(harness, "b")).toMatchObject([{ id, topic: "a", destination: "b", isPinned: true }]);
    });

    test("still comes before the later rows of its key, whichever destination those go to", async () => {
      await using harness = await open();
      const [first] = await redirected(harness, ["k"]);
      const [second] = await harness.insertOutbox([{ topic: "a", key: "k" }]);
      expect(await claimOf(harness, "a")).toEqual([]);
      const rows = await claimOf(harness, "b");
      expect(idsOf(rows)).toEqual([first]);
      expect(await claimOf(harness, "a")).toEqual([]);
      await harness.store.outbox.settle(rows.map(sent));
      expect(idsOf((await harness.store.outbox.claim(claimRequest())).rows)).toEqual([second]);
    });

    test("goes there until it is replayed to yet another one, also after failures", async () => {
      await using harness = await open();
      const { outbox, replay } = harness.store;
      const [id] = (await redirected(harness, [null])) as [MessageId];
      await outbox.settle((await claimOf(harness, "b")).map((row) => failed(row, 0)));
      const again = await claimOf(harness, "b");
      expect(idsOf(again)).toEqual([id]);
      await outbox.settle(again.map(sent));
      expect(await replay.find(await replay.begin(), {}, [id])).toMatchObject([
        { id, destination: "b", isPinned: true },
      ]);
      await replay.move(await replay.begin(), [id], "alice");
      const kept = await claimOf(harness, "b");
      expect(idsOf(kept)).toEqual([id]);
      await outbox.settle(kept.map(sent));
      await replay.move(await replay.begin(), [id], "alice", "a");
      expect(idsOf(await claimOf(harness, "a"))).toEqual([id]);
    });

    test("counts there: in the backlog, the searches and what is blocked, parked or dead", async () => {
      await using harness = await open();
      const { outbox, messages, operations, parked: parkedRows, replay } = harness.store;
      const [first, second, third] = (await redirected(harness, ["k1", "k2", "k3"])) as [
        MessageId,
        MessageId,
        MessageId,
      ];
      const { byDestination } = await outbox.backlog();
      expect(byDestination.get("b")).toMatchObject({ pending: 3 });
      expect(byDestination.get("a")).toBeUndefined();

      const page = await messages.outboxPage({ destination: "b" }, null, 10);
      expect(page.rows.map(({ id }) => id)).toEqual([third, second, first]);
      expect((await messages.outboxPage({ destination: "a" }, null, 10)).rows).toEqual([]);

      const [one, two, three] = (await claimOf(harness, "b")) as [ClaimedRow, ClaimedRow, ClaimedRow];
      await outbox.settle([failed(one), parked(two), died(three)]);
      const there = { topic: "a", destination: "b", isPinned: true };
      expect(await parkedRows.list({}, null, 10)).toMatchObject([{ id: second, ...there }]);
      expect(await operations.deadRows(10)).toMatchObject([{ id: third, ...there }]);
      const blocked = await operations.blockedKeys(10, 10);
      expect(new Set(blocked.map(({ id }) => id))).toEqual(new Set([first, second]));
      for (const row of blocked) expect(row).toMatchObject(there);
      expect((await messages.get(third, false)).outbox).toMatchObject(there);
      const { rows } = await replay.page(await replay.begin(), {}, null, 10);
      expect(rows).toMatchObject([{ id: third, ...there }]);
    });

    test("is that of an application, too, which names the destination", async () => {
      await using harness = await open();
      const [id] = await harness.insertOutbox([{ topic: "a", key: null, destination: "b" }]);
      expect(await claimOf(harness, "a")).toEqual([]);
      expect(await claimOf(harness, "b")).toMatchObject([{ id, destination: "b", isPinned: true }]);
    });

    test("goes by its label if routes sent it there, until it is replayed", async () => {
      await using harness = await open();
      const { outbox, replay, operations, messages } = harness.store;
      const [known, unknown] = (await harness.insertOutbox([
        { topic: "a", key: null, destination: "b", routes: "0123abcd" },
        { topic: "a", key: null, destination: "gone", routes: "0123abcd" },
      ])) as [MessageId, MessageId];
      expect(await claimOf(harness, "a")).toEqual([]);
      const ofUnknown = await claimOf(harness, "gone");
      expect(ofUnknown).toMatchObject([{ id: unknown, destination: "gone", isPinned: false }]);
      const ofKnown = await claimOf(harness, "b");
      expect(ofKnown).toMatchObject([{ id: known, destination: "b", isPinned: false }]);
      await outbox.settle(ofUnknown.map(sent));
      await outbox.settle(ofKnown.map((row) => died(row)));

      expect((await messages.get(known, false)).outbox).toMatchObject({ destination: "b", isPinned: false });
      const again = { id: known, destination: null, isPinned: false };
      expect(await operations.deadRows(10)).toMatchObject([again]);
      expect(await replay.find(await replay.begin(), {}, [known])).toMatchObject([again]);
      expect(await replay.move(await replay.begin(), [known], "alice")).toMatchObject({ changed: 1 });
      const { rows: replayed } = await outbox.claim(claimRequest());
      expect(replayed).toMatchObject([{ ...again, destination: "a" }]);
      await outbox.settle(replayed.map((row) => died(row)));
      expect(await replay.move(await replay.begin(), [known], "alice", "b")).toMatchObject({ changed: 1 });
      const { rows: pinned } = await outbox.claim(claimRequest());
      expect(pinned).toMatchObject([{ id: known, destination: "b", isPinned: true }]);
    });

    test("has that in its history", async () => {
      await using harness = await open();
      const [id] = (await redirected(harness, [null])) as [MessageId];
      expect(await harness.store.history.of(id, 10)).toMatchObject([
        { event: "replayed", actor: "alice", reason: "to the destination b" },
      ]);
    });

    test("is claimed by its name also if no destination is called so", async () => {
      await using harness = await open();
      const { replay, outbox } = harness.store;
      const [id] = (await redirected(harness, [null])) as [MessageId];
      await outbox.settle((await claimOf(harness, "b")).map(sent));
      await replay.move(await replay.begin(), [id], "alice", "B*");
      expect(await claimOf(harness, "a")).toEqual([]);
      expect(await claimOf(harness, "B*")).toMatchObject([{ id, destination: "B*", isPinned: true }]);
    });
  });
}
