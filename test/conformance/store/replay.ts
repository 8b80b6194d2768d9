import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { MessageId } from "../../../src/model/rows.ts";
import type { FinishedRow, ReplayFilter, ReplayScope, ReplayStore } from "../../../src/ports/finishedRows.ts";
import { claimRequest, died, failed, released, type StoreHarness, sent } from "./harness.ts";
import { exerciseReplayOrder } from "./replayOrder.ts";

export function exerciseReplay(open: () => Promise<StoreHarness>): void {
  describe("replay", () => {
    describe("moves", () => {
      test.each(["sent", "dead"] as const)(
        "a %s row back to pending: as if it had never been tried, due now",
        async (state) => {
          await using harness = await open();
          const { replay, outbox } = harness.store;
          await harness.insertOutbox([{ topic: "a", key: "k", payload: '{"n":1}', maxAttempts: 3 }]);
          // One failure first, so that attempt and last_error are there to be cleared.
          await outbox.settle((await outbox.claim(claimRequest())).rows.map((row) => failed(row, 0)));
          const again = await outbox.claim(claimRequest());
          await outbox.settle(again.rows.map((row) => (state === "sent" ? sent(row) : died(row))));
          const [before] = await harness.outboxRows();
          expect(before).toMatchObject({ state, lastError: state === "sent" ? "status 500" : "no route" });

          expect(await replay.move(await replay.begin(), [before?.id as MessageId], "alice")).toMatchObject({
            changed: 1,
          });

          const [after] = await harness.outboxRows();
          const { id, sequence, topic, key, payload, headers, maxAttempts } = before ?? {};
          expect(after).toMatchObject({ id, sequence, topic, key, payload, headers, maxAttempts });
          expect(after).toMatchObject({
            state: "pending",
            attempt: 0,
            claimToken: null,
            leaseInMs: null,
            lastError: null,
          });
          expect(after?.dueInMs).toBeLessThanOrEqual(0);
          expect(after?.dueInMs).toBeGreaterThan(-5000);
          expect(after?.updatedMsAgo).toBeLessThan(5000);
          expect((await outbox.claim(claimRequest())).rows).toMatchObject([{ id, attempt: 0 }]);
        },
      );

      test("no row that waits or runs, and none that is not there", async () => {
        await using harness = await open();
        const { replay, outbox } = harness.store;
        const ids = await harness.insertOutbox([{}, {}, { dueInMs: 60_000 }]);
        await outbox.claim(claimRequest({ limit: 1 }));
        const before = await harness.outboxRows();
        const scope = await replay.begin();

        expect(await replay.move(scope, [...ids, randomUUID() as MessageId], "alice")).toMatchObject({ changed: 0 });
        expect(await replay.move(scope, [], "alice")).toMatchObject({ changed: 0 });

        const columns = ({ state, attempt, claimToken }: (typeof before)[number]) => ({ state, attempt, claimToken });
        expect((await harness.outboxRows()).map(columns)).toEqual(before.map(columns));
        expect(await allPages(replay, scope)).toEqual([]);
        expect(await replay.find(scope, {}, ids)).toEqual([]);
      });

      test("no row a second time that finished after the replay had begun", async () => {
        await using harness = await open();
        const { replay, outbox } = harness.store;
        const ids = await finishedRows(harness, 2);
        const scope = await replay.begin();
        expect(await replay.move(scope, ids, "alice")).toMatchObject({ changed: 2 });
        await outbox.settle((await outbox.claim(claimRequest())).rows.map(sent));

        expect(await allPages(replay, scope)).toEqual([]);
        expect(await replay.find(scope, {}, ids)).toEqual([]);
        expect(await replay.move(scope, ids, "alice")).toMatchObject({ changed: 0 });
        expect(await matching(harness, { finishedBefore: "2000-01-01T00:00:00.000000Z" })).toEqual([]);
        expect(await matching(harness, { finishedBefore: "9999-01-01T00:00:00.000000Z" })).toEqual(ids);

        expect((await harness.outboxRows()).map((row) => row.state)).toEqual(["sent", "sent"]);
        expect(await replay.move(await replay.begin(), ids, "alice")).toMatchObject({ changed: 2 });
      });

      test("rows that count as untried until a poller has taken them, and no more when they wait for a retry", async () => {
        await using harness = await open();
        const { replay, outbox } = harness.store;
        const ids = await finishedRows(harness, 4);
        const others = await finishedRows(harness, 1);
        expect(await replay.untried(ids)).toBe(0);
        await replay.move(await replay.begin(), [...ids, ...others], "alice");
        expect(await replay.untried(ids)).toBe(4);
        expect(await replay.untried([])).toBe(0);

        const { rows } = await outbox.claim(claimRequest({ limit: 3 }));
        expect(await replay.untried(ids)).toBe(1);
        await outbox.settle(rows.map((row, n) => [sent(row), failed(row), released(row)][n] ?? sent(row)));
        expect(await replay.untried(ids)).toBe(2);
      });

      test("a row once when several replays want it at the same time, and nobody deadlocks", async () => {
        await using harness = await open();
        const other = await harness.replica();
        const ids = await finishedRows(harness, 300);
        const scope = await harness.store.replay.begin();

        const moved = await Promise.all(
          Array.from({ length: 12 }, (_, n) =>
            (n % 2 === 0 ? harness.store : other).replay.move(scope, n % 3 === 0 ? ids.toReversed() : ids, "alice"),
          ),
        );

        expect(moved.reduce((sum, each) => sum + each.changed, 0)).toBe(300);
      });
    });

    describe("walks", () => {
      test("finished rows in the order of their sequence, in pages, without rows that came after its begin", async () => {
        await using harness = await open();
        const { replay } = harness.store;
        const ids = await finishedRows(harness, 7);
        const scope = await replay.begin();
        await finishedRows(harness, 2);

        const first = await replay.page(scope, {}, null, 3);
        const second = await replay.page(scope, {}, first.next, 3);

        expect([first, second].map((page) => page.rows.map((row) => row.id))).toEqual([
          ids.slice(0, 3),
          ids.slice(3, 6),
        ]);
        expect([first.next, second.next].includes(null)).toBe(false);
        expect((await allPages(replay, scope)).map((row) => row.id)).toEqual(ids);
      });

      test("rows that a page shows unchanged", async () => {
        await using harness = await open();
        const { replay, outbox } = harness.store;
        await harness.insertOutbox([{ topic: "orders", key: "k" }, { topic: "free" }]);
        const { rows } = await outbox.claim(claimRequest());
        const [keyed, free] = rows;
        if (keyed === undefined || free === undefined) throw new Error("two rows expected");
        const longReason = { id: keyed.id, claimToken: keyed.claimToken, attempted: true, reason: "x".repeat(500) };
        await outbox.settle([{ ...longReason, kind: "dead" }, sent(free)]);

        const shown = await allPages(replay, await replay.begin());

        const { id, sequence, createdAt } = keyed;
        const facts = {
          id,
          sequence,
          createdAt,
          topic: "orders",
          destination: null,
          isPinned: false,
          key: "k",
          state: "dead",
          attempt: 1,
        };
        expect(shown).toMatchObject([
          { ...facts, lastError: "x".repeat(200) },
          expect.objectContaining({
            id: free.id,
            topic: "free",
            key: null,
            state: "sent",
            attempt: 0,
            lastError: null,
          }),
        ]);
      });
    });

    describe("filters", () => {
      test("by topics, letter for letter", async () => {
        await using harness = await open();
        const topics = ["orders", "Orders", "orders ", "orders.created", "o%", "{a,b}", 'q"\\'];
        const byTopic = new Map<string, MessageId | undefined>();
        for (const topic of topics) byTopic.set(topic, (await finishedRows(harness, 1, topic))[0]);

        for (const topic of topics) expect(await matching(harness, { topics: [topic] })).toEqual([byTopic.get(topic)]);
        expect(await matching(harness, { topics: ["Orders", "o%", "none"] })).toEqual([
          byTopic.get("Orders"),
          byTopic.get("o%"),
        ]);
        expect(await matching(harness, { topics: ["none"] })).toEqual([]);
        expect(await matching(harness, { topics: [] })).toEqual([]);
      });

      test("by state, in pages as without", async () => {
        await using harness = await open();
        const { replay } = harness.store;
        const ids = await harness.insertOutbox(Array.from({ length: 12 }, () => ({ topic: "orders" })));
        const dead = ids.filter((_, n) => n === 1 || n === 10);
        const delivered = ids.filter((id) => !dead.includes(id));
        await harness.finishOutbox(dead, { state: "dead" });
        await harness.finishOutbox(delivered, { state: "sent" });
        const scope = await replay.begin();

        expect(await matching(harness, { state: "dead" })).toEqual(dead);
        expect(await matching(harness, { state: "sent" })).toEqual(delivered);
        expect(await matching(harness, { state: "dead", topics: ["payments"] })).toEqual([]);
        const named = await replay.find(scope, { state: "dead" }, ids.slice(0, 5));
        expect(named.map((row) => row.id)).toEqual(dead.slice(0, 1));
        // The limit bounds the rows looked at: a page of delivered rows has no dead one, and is not the last.
        const page = await replay.page(scope, { state: "dead" }, (await replay.page(scope, {}, null, 2)).next, 3);
        expect(page.rows).toEqual([]);
        expect(page.next).not.toBeNull();
      });

      test("by the time of creation, both bounds exclusive to the microsecond", async () => {
        await using harness = await open();
        const [id] = await finishedRows(harness, 1);
        const scope = await harness.store.replay.begin();
        const [row] = await allPages(harness.store.replay, scope);
        const ms = row?.createdAt?.getTime() ?? 0;
        const passes = async (filter: ReplayFilter) =>
          (await harness.store.replay.page(scope, filter, null, 10)).rows.some((each) => each.id === id);
        // Somewhere in this millisecond lies the row's time: the last bound that it comes after, and the first that it comes before.
        const lastAfter = await highest((us) => passes({ createdAfter: instant(ms, us) }));
        const firstBefore = 1 + (await highest(async (us) => !(await passes({ createdBefore: instant(ms, us) }))));

        // A store whose times are finer than a microsecond may have it between two of them.
        expect([1, 2]).toContain(firstBefore - lastAfter);
      });

      test("by all that is given together", async () => {
        await using harness = await open();
        const [oldOrder] = await finishedRows(harness, 1, "orders", 60_000);
        const [newOrder, ...others] = [
          ...(await finishedRows(harness, 1, "orders", 10_000)),
          ...(await finishedRows(harness, 1, "payments", 10_000)),
          ...(await finishedRows(harness, 1, "orders", 0)),
        ];
        const scope = await harness.store.replay.begin();
        const { now } = await harness.store.messages.get(newOrder as MessageId, false);
        const at = (msAgo: number) => new Date(now.getTime() - msAgo).toISOString();
        const filter = { topics: ["orders"], createdAfter: at(30_000), createdBefore: at(5000) };
        const all = [oldOrder, newOrder, ...others] as readonly MessageId[];

        expect(await matching(harness, filter)).toEqual([newOrder]);
        const named = await harness.store.replay.find(scope, filter, all);
        expect(named.map((row) => row.id)).toEqual([newOrder]);
        const names = [...all.toReversed(), randomUUID() as MessageId];
        expect((await harness.store.replay.find(scope, {}, names)).map((row) => row.id)).toEqual(all);
        expect(await harness.store.replay.find(scope, {}, [])).toEqual([]);
        expect(await harness.store.replay.find(scope, { ...filter, topics: [] }, all)).toEqual([]);
      });
    });

    exerciseReplayOrder(open);
  });
}

/** Rows that were delivered, or died, so many ms ago. */
async function finishedRows(harness: StoreHarness, count: number, topic = "orders", createdMsAgo?: number) {
  const ids = await harness.insertOutbox(Array.from({ length: count }, () => ({ topic })));
  await harness.finishOutbox(ids, { state: "dead", ...(createdMsAgo === undefined ? {} : { createdMsAgo }) });
  return ids;
}

/** Every page of a replay from its begin. */
async function allPages(replay: ReplayStore, scope: ReplayScope, filter: ReplayFilter = {}): Promise<FinishedRow[]> {
  const rows: FinishedRow[] = [];
  let after: string | null = null;
  do {
    const page = await replay.page(scope, filter, after, 4);
    rows.push(...page.rows);
    after = page.next;
  } while (after !== null);
  return rows;
}

async function matching(harness: StoreHarness, filter: ReplayFilter): Promise<readonly MessageId[]> {
  const { replay } = harness.store;
  return (await allPages(replay, await replay.begin(), filter)).map((row) => row.id);
}

/** `ms` since the Unix epoch plus microseconds, which may be below 0 and above 999. */
function instant(ms: number, us: number): string {
  const whole = ms + Math.floor(us / 1000);
  const rest = String(((us % 1000) + 1000) % 1000).padStart(3, "0");
  return new Date(whole).toISOString().replace("Z", `${rest}Z`);
}

/** The highest microsecond from -2 to 1001 for which a condition holds that holds up to some point and not beyond. */
async function highest(holds: (us: number) => Promise<boolean>): Promise<number> {
  let [low, high] = [-2, 1002];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}
