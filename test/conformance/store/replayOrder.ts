import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, MessageId } from "../../../src/model/rows.ts";
import type { Store } from "../../../src/ports/store.ts";
import { claimRequest, claimSome, died, failed, released, type StoreHarness, sent } from "./harness.ts";

/**
 * Two dead rows of the key `k` with a row of another key between them, which waits for its retry. The harness' own store and the replica have both seen that
 * row as the lowest unfinished one, and their clocks stand still: they do not look again. A fresh replica has seen nothing yet.
 */
interface Straddled {
  readonly early: MessageId;
  readonly late: MessageId;
  readonly replica: Store;
  readonly fresh: Store;
}

async function straddle(harness: StoreHarness): Promise<Straddled> {
  const [early, between, late] = await harness.insertOutbox([{ key: "k" }, { key: "other" }, { key: "k" }]);
  if (early === undefined || between === undefined || late === undefined) throw new Error("three rows expected");
  const { rows } = await harness.store.outbox.claim(claimRequest());
  await harness.store.outbox.settle(rows.map((row) => (row.id === between ? failed(row) : died(row))));
  harness.clock.advance(5000);
  const replica = await harness.replica();
  for (const store of [harness.store, replica]) expect(await claimedBy(store)).toEqual([]);
  return { early, late, replica, fresh: await harness.replica() };
}

async function claimedBy(store: Store, limit = 100): Promise<readonly MessageId[]> {
  return (await store.outbox.claim(claimRequest({ limit }))).rows.map((row) => row.id);
}

async function replayAll(store: Store, ids: readonly MessageId[]): Promise<void> {
  expect(await store.replay.move(await store.replay.begin(), ids, "alice")).toMatchObject({ changed: ids.length });
}

export function exerciseReplayOrder(open: () => Promise<StoreHarness>): void {
  describe("below the lowest row that a poller remembers keeps the order of a key:", () => {
    test("both rows are claimed together by the first replica", async () => {
      await using harness = await open();
      const { early, late, replica } = await straddle(harness);
      await replayAll(replica, [early, late]);

      expect(await claimedBy(harness.store)).toEqual([early, late]);
      expect(await claimedBy(replica)).toEqual([]);
    });

    test.each<[string, (harness: StoreHarness, fresh: Store, rows: readonly ClaimedRow[]) => Promise<unknown>]>([
      ["is given back", (_, fresh, rows) => fresh.outbox.settle(rows.map(released))],
      ["failed and is due again", (_, fresh, rows) => fresh.outbox.settle(rows.map((row) => failed(row, 0)))],
      [
        "is taken back from a dead replica",
        async (harness, fresh) => {
          await harness.expireLeases();
          await fresh.outbox.reclaim(10, 300_000);
        },
      ],
      [
        "waited for its retry",
        async (harness, fresh, rows) => {
          await fresh.outbox.settle(rows.map((row) => failed(row)));
          expect(await claimedBy(harness.store)).toEqual([]);
          await harness.makeDue();
        },
      ],
    ])(
      "the later row waits for the earlier row that is claimed, and goes behind it once it %s",
      async (_, giveBack) => {
        await using harness = await open();
        const { early, late, fresh } = await straddle(harness);
        await replayAll(fresh, [early, late]);
        const { rows } = await fresh.outbox.claim(claimRequest({ limit: 1 }));
        expect(rows.map(({ id }) => id)).toEqual([early]);
        expect(await claimedBy(harness.store)).toEqual([]);
        await giveBack(harness, fresh, rows);

        expect((await claimedBy(harness.store)).filter((id) => id === early || id === late)).toEqual([early, late]);
      },
    );

    test("a fresh row of the key waits behind a replayed one", async () => {
      await using harness = await open();
      const { early, replica, fresh } = await straddle(harness);
      await replayAll(fresh, [early]);
      const [newcomer] = await harness.insertOutbox([{ key: "k" }]);
      const { rows } = await fresh.outbox.claim(claimRequest({ limit: 1 }));
      expect(rows.map((row) => row.id)).toEqual([early]);

      expect(await claimedBy(replica)).toEqual([]);

      await fresh.outbox.settle(rows.map(sent));
      expect(await claimedBy(replica)).toEqual([newcomer]);
    });

    test("a claim that begins past a blocked front takes both in order", async () => {
      await using harness = await open();
      const [early] = await harness.insertOutbox([{ key: "k" }]);
      await harness.insertOutbox(Array.from({ length: 100 }, () => ({ key: "blocked" })));
      const [, late] = await harness.insertOutbox([{ key: "free" }, { key: "k" }]);
      if (early === undefined || late === undefined) throw new Error("rows were expected");
      await harness.finishOutbox([early, late], { state: "dead" });
      const head = await harness.store.outbox.claim(claimRequest({ limit: 1 }));
      await harness.store.outbox.settle(head.rows.map((row) => failed(row)));
      const past = await claimSome(harness.store, { limit: 20 });
      expect(past.rows.map((row) => row.key)).toEqual(["free"]);

      await replayAll(harness.store, [early, late]);
      const { rows } = await claimSome(harness.store, { limit: 20 });
      expect(rows.map((row) => row.id)).toEqual([early, late]);
    });

    test.each([[3], [40]])(
      "replicas that drain replays of %i keys beside fresh rows, with failures, deliver every row, each key in order",
      async (keys) => {
        await using harness = await open();
        const replicas = await Promise.all(Array.from({ length: 3 }, () => harness.replica()));
        const total = 400;
        const row = (batch: string, n: number) => ({
          key: `${batch}-${n % keys}`,
          payload: `${batch}-${n}`,
          maxAttempts: 1000,
        });
        const rows = (batch: string) => Array.from({ length: total }, (_, n) => row(batch, n));
        const finished = [...(await harness.insertOutbox(rows("replayed").slice(0, total / 2)))];
        await harness.insertOutbox([{ key: "blocked" }]);
        finished.push(...(await harness.insertOutbox(rows("replayed").slice(total / 2))));
        await harness.finishOutbox(finished, { state: "sent" });
        const blocked = await harness.store.outbox.claim(claimRequest());
        await harness.store.outbox.settle(blocked.rows.map((each) => failed(each)));
        harness.clock.advance(5000);
        // All of them take the blocked row for the lowest one; half of what will be replayed lies below it.
        for (const store of [harness.store, ...replicas]) expect(await claimedBy(store)).toEqual([]);
        await harness.insertOutbox(rows("fresh"));
        const delivered: string[] = [];
        const scope = await harness.store.replay.begin();

        await Promise.all([
          drain(harness.store, delivered, 2 * total, 0, () => harness.clock.advance(20)),
          // Their clocks stand still: they never look again at what is the lowest row, and never sweep.
          ...replicas.map((store, n) => drain(store, delivered, 2 * total, n + 1)),
          replayInPages(harness.store, scope, 30),
        ]);

        for (const batch of ["replayed", "fresh"]) {
          const numbers = delivered.filter((each) => each.startsWith(batch)).map((each) => Number(each.split("-")[1]));
          expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, n) => n));
          for (let key = 0; key < keys; key += 1) {
            const ofKey = numbers.filter((n) => n % keys === key);
            expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
          }
        }
      },
      60_000,
    );
  });
}

async function replayInPages(store: Store, scope: Awaited<ReturnType<Store["replay"]["begin"]>>, size: number) {
  let after: string | null = null;
  do {
    const page = await store.replay.page(scope, {}, after, size);
    await store.replay.move(
      scope,
      page.rows.map((row) => row.id),
      "alice",
    );
    after = page.next;
  } while (after !== null);
}

/** One replica: claims, "delivers" run by run with one failure in eight, settles. */
async function drain(store: Store, delivered: string[], total: number, seed: number, onTurn = () => {}): Promise<void> {
  for (let n = seed; delivered.length < total; ) {
    onTurn();
    const { rows } = await store.outbox.claim(claimRequest({ limit: 25 }));
    const failedKeys = new Set<string>();
    const outcomes = rows.map((row) => {
      const key = row.key ?? "";
      if (failedKeys.has(key)) return released(row);
      n += 1;
      if (n % 8 === 0) {
        failedKeys.add(key);
        return failed(row, 1);
      }
      delivered.push(row.payload ?? "");
      return sent(row);
    });
    await store.outbox.settle(outcomes);
  }
}
