import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, MessageId, Outcome } from "../../../src/model/rows.ts";
import { claimRequest, failed, parked, recorded, released, type StoreHarness, sent } from "./harness.ts";

async function claimAll({ store }: Pick<StoreHarness, "store">): Promise<readonly ClaimedRow[]> {
  return (await store.outbox.claim(claimRequest())).rows;
}

/** A failed, a parked and a sent row, each with its record. */
async function threeEnds(harness: StoreHarness): Promise<readonly MessageId[]> {
  await harness.insertOutbox([{}, {}, {}]);
  const rows = await claimAll(harness);
  const [first, second, third] = rows as [ClaimedRow, ClaimedRow, ClaimedRow];
  await harness.store.outbox.settle([
    recorded(failed(first)),
    recorded(parked(second), { code: null, status: null, destination: null, attempt: null }),
    recorded(sent(third), { code: null, status: null }),
  ]);
  return rows.map(({ id }) => id);
}

export function exerciseHistory(open: () => Promise<StoreHarness>): void {
  describe("the history", () => {
    test("has an entry for each outcome with a record, whole", async () => {
      await using harness = await open();
      const { history } = harness.store;
      expect(history.isAvailable).toBe(true);
      const [first, second, third] = (await threeEnds(harness)) as [MessageId, MessageId, MessageId];

      const [entry, ...others] = await history.of(first, 10);
      expect(others).toEqual([]);
      expect(entry).toMatchObject({
        sequence: expect.stringMatching(/^\d+$/),
        id: first,
        at: expect.any(Date),
        event: "retry",
        attempt: 1,
        actor: "host-1",
        destination: "billing",
        code: "status_5xx",
        status: "503",
        durationMs: 13,
        reason: "status 500",
      });
      expect(Math.abs((entry?.at.getTime() ?? 0) - Date.now())).toBeLessThan(60_000);
      expect(await history.of(second, 10)).toMatchObject([
        { event: "park", attempt: null, destination: null, code: null, status: null },
      ]);
      expect(await history.of(third, 10)).toMatchObject([{ event: "sent", reason: null }]);
      expect((await history.since(null, 2)).map(({ event }) => event)).toEqual(["park", "sent"]);
      expect((await history.since(entry?.sequence ?? null, 1)).map(({ event }) => event)).toEqual(["park"]);
    });

    test("keeps the newest entries of a row in order, and no release", async () => {
      await using harness = await open();
      await harness.insertOutbox([{}]);
      for (let attempt = 1; attempt <= 4; attempt += 1) {
        const [row] = (await claimAll(harness)) as [ClaimedRow];
        await harness.store.outbox.settle([recorded(attempt === 3 ? released(row) : failed(row, 0), { attempt })]);
      }
      const [{ id }] = (await harness.outboxRows()) as unknown as [{ id: MessageId }];
      expect((await harness.store.history.of(id, 10)).map(({ attempt }) => attempt)).toEqual([1, 2, 4]);
      expect((await harness.store.history.of(id, 2)).map(({ attempt }) => attempt)).toEqual([2, 4]);
    });

    test("has no entry for a row that the fence held off, nor for an outcome without a record", async () => {
      await using harness = await open();
      await harness.insertOutbox([{}, {}]);
      const [taken, plain] = (await claimAll(harness)) as [ClaimedRow, ClaimedRow];
      await harness.reset(taken.id);
      await harness.store.outbox.settle([recorded(failed(taken)), failed(plain)]);
      expect(await harness.store.history.since(null, 10)).toEqual([]);
    });

    test("stores of any text what the database can", async () => {
      await using harness = await open();
      await harness.insertOutbox([{}]);
      const [row] = (await claimAll(harness)) as [ClaimedRow];
      const odd = `\0half \ud800 ${"x".repeat(5000)}`;
      const reason = "y".repeat(5000);
      const outcome: Outcome = { ...failed(row), kind: "retry", delayMs: 0, reason };
      await harness.store.outbox.settle([
        recorded(outcome, { code: odd, status: odd, destination: odd, replica: odd, durationMs: 1e12 }),
      ]);
      const [entry] = await harness.store.history.of(row.id, 1);
      expect(entry).toMatchObject({
        event: "retry",
        durationMs: 2 ** 31 - 1,
        code: expect.stringMatching(/^half {2}x+$/),
      });
      expect(entry?.reason).toMatch(/^y{1000,}$/);
    });

    test("has who replayed, retried and discarded each row, and why", async () => {
      await using harness = await open();
      const { parked: parkedRows, replay, history } = harness.store;
      await harness.insertOutbox([{}, {}, {}]);
      const rows = await claimAll(harness);
      const [first, second, third] = rows as [ClaimedRow, ClaimedRow, ClaimedRow];
      await harness.store.outbox.settle([parked(first), parked(second), sent(third)]);

      expect(await parkedRows.retry([first.id, third.id], "alice")).toMatchObject({ changed: 1 });
      expect(await parkedRows.discard([second.id], "bob", "sold out")).toMatchObject({ changed: 1 });
      expect(await replay.move(await replay.begin(), [first.id, second.id, third.id], "carol")).toMatchObject({
        changed: 2,
      });

      const seen = async ({ id }: ClaimedRow) =>
        (await history.of(id, 10)).map(({ event, actor, reason }) => [event, actor, reason]);
      expect(await seen(first)).toEqual([["retried", "alice", null]]);
      expect(await seen(second)).toEqual([
        ["discarded", "bob", "sold out"],
        ["replayed", "carol", null],
      ]);
      expect(await seen(third)).toEqual([["replayed", "carol", null]]);
    });

    test("goes with its row when retention deletes it, and with no other", async () => {
      await using harness = await open();
      const { history, retention } = harness.store;
      const [first, second, third] = (await threeEnds(harness)) as [MessageId, MessageId, MessageId];
      await harness.finishOutbox([first], { state: "dead", finishedMsAgo: 10_000 });
      await harness.finishOutbox([third], { state: "sent", finishedMsAgo: 10_000 });
      for (const range of await retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 5000 })) {
        expect(await retention.deleteBatch(range, 10)).toMatchObject({ deleted: 1 });
      }
      expect((await harness.outboxRows()).map(({ id }) => id)).toEqual([second]);
      expect((await history.since(null, 10)).map(({ id }) => id)).toEqual([second]);
    });
  });
}
