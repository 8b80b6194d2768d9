import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, MessageId } from "../../../src/model/rows.ts";
import type { ClaimScope } from "../../../src/ports/store.ts";
import { claimRequest, died, failed, parked, type StoreHarness, sent } from "./harness.ts";

const scope = (which: ClaimScope["which"], destination: string): ClaimScope => ({
  name: `${which} ${destination}`,
  which,
  destinations: [destination],
  exceptKeys: [],
});

/** Rows of the topic `a`, so of the destination `a`, that were replayed to `b`. */
async function redirected(harness: StoreHarness, keys: readonly (string | null)[]): Promise<readonly MessageId[]> {
  const { outbox, replay } = harness.store;
  const ids = await harness.insertOutbox(keys.map((key) => ({ topic: "a", key })));
  await outbox.settle((await outbox.claim(claimRequest())).rows.map((row) => died(row)));
  expect(await replay.move(await replay.begin(), ids, "alice", "b")).toBe(ids.length);
  return ids;
}

const claimOf = async ({ store }: StoreHarness, which: ClaimScope["which"], destination: string) =>
  (await store.outbox.claim(claimRequest({ scope: scope(which, destination) }))).rows;
const idsOf = (rows: readonly ClaimedRow[]) => rows.map(({ id }) => id);

export function exerciseRedirect(open: () => Promise<StoreHarness>): void {
  describe("a row that was replayed to another destination", () => {
    test("is claimed as one of that destination, and carries its name", async () => {
      await using harness = await open();
      expect(harness.store.replay.overrideRemedy).toBeUndefined();
      const [id] = await redirected(harness, [null]);
      const [there] = await harness.insertOutbox([{ topic: "a", key: null }]);
      expect(await claimOf(harness, "only", "a")).toMatchObject([{ id: there, destinationOverride: null }]);
      expect(await claimOf(harness, "except", "b")).toEqual([]);
      expect(await claimOf(harness, "only", "b")).toMatchObject([{ id, topic: "a", destinationOverride: "b" }]);
    });

    test("still comes before the later rows of its key, whichever destination those go to", async () => {
      await using harness = await open();
      const [first] = await redirected(harness, ["k"]);
      const [second] = await harness.insertOutbox([{ topic: "a", key: "k" }]);
      expect(await claimOf(harness, "only", "a")).toEqual([]);
      const rows = await claimOf(harness, "only", "b");
      expect(idsOf(rows)).toEqual([first]);
      expect(await claimOf(harness, "only", "a")).toEqual([]);
      await harness.store.outbox.settle(rows.map(sent));
      expect(idsOf((await harness.store.outbox.claim(claimRequest())).rows)).toEqual([second]);
    });

    test("goes there until it is replayed to yet another one, also after failures", async () => {
      await using harness = await open();
      const { outbox, replay } = harness.store;
      const [id] = (await redirected(harness, [null])) as [MessageId];
      await outbox.settle((await claimOf(harness, "only", "b")).map((row) => failed(row, 0)));
      const again = await claimOf(harness, "only", "b");
      expect(idsOf(again)).toEqual([id]);
      await outbox.settle(again.map(sent));
      expect(await replay.find(await replay.begin(), {}, [id])).toMatchObject([{ id, destinationOverride: "b" }]);
      await replay.move(await replay.begin(), [id], "alice");
      const kept = await claimOf(harness, "only", "b");
      expect(idsOf(kept)).toEqual([id]);
      await outbox.settle(kept.map(sent));
      await replay.move(await replay.begin(), [id], "alice", "a");
      expect(idsOf(await claimOf(harness, "only", "a"))).toEqual([id]);
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

      const [one, two, three] = (await claimOf(harness, "only", "b")) as [ClaimedRow, ClaimedRow, ClaimedRow];
      await outbox.settle([failed(one), parked(two), died(three)]);
      const there = { topic: "a", destinationOverride: "b" };
      expect(await parkedRows.list({}, null, 10)).toMatchObject([{ id: second, ...there }]);
      expect(await operations.deadRows(10)).toMatchObject([{ id: third, ...there }]);
      const blocked = await operations.blockedKeys(10, 10);
      expect(new Set(blocked.map(({ id }) => id))).toEqual(new Set([first, second]));
      for (const row of blocked) expect(row).toMatchObject(there);
      expect((await messages.get(third, false)).outbox).toMatchObject(there);
      const { rows } = await replay.page(await replay.begin(), {}, null, 10);
      expect(rows).toMatchObject([{ id: third, ...there }]);
    });

    test("has that in its history", async () => {
      await using harness = await open();
      const [id] = (await redirected(harness, [null])) as [MessageId];
      expect(await harness.store.history.of(id, 10)).toMatchObject([
        { event: "replayed", actor: "alice", reason: "to the destination b" },
      ]);
    });

    test("is a row without a destination where that one does not exist", async () => {
      await using harness = await open();
      const { replay, outbox } = harness.store;
      const [id] = (await redirected(harness, [null])) as [MessageId];
      await outbox.settle((await claimOf(harness, "only", "b")).map(sent));
      await replay.move(await replay.begin(), [id], "alice", "B*");
      expect(await claimOf(harness, "only", "B*")).toEqual([]);
      expect(await claimOf(harness, "except", "a")).toMatchObject([{ id, destinationOverride: "B*" }]);
    });
  });
}
