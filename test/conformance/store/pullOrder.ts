import { describe, expect, test } from "@jest/globals";
import type { PullClaim } from "../../../src/ports/pullStore.ts";
import type { Store } from "../../../src/ports/store.ts";
import { seeded } from "../../support/random.ts";
import type { StoreHarness } from "./harness.ts";
import { claim, ids, pullRequest, receive } from "./pullSupport.ts";

export function exercisePullOrder(open: () => Promise<StoreHarness>): void {
  describe("pull order per aggregate", () => {
    test("a run of rows of one aggregate is claimed together, in order, beside other aggregates and free rows", async () => {
      await using harness = await open();
      const rows = await receive(harness, [A, {}, A, B, A]);

      expect(ids((await harness.store.pull.claim(pullRequest())).rows)).toEqual(ids(rows));
    });

    test.each<[string, (store: Store, held: PullClaim) => Promise<unknown>]>([
      ["acknowledged", (store, held) => store.pull.acknowledge(held)],
      ["dead", (store, held) => store.pull.reject(held, { delayMs: 0, reason: null, maxAttempts: 1 })],
    ])("while a row is claimed elsewhere later rows of its aggregate wait, until it is %s", async (_, close) => {
      await using harness = await open();
      const [, second, third, free] = ids(await receive(harness, [A, A, A, B]));
      const other = await harness.replica();
      const held = await claim({ store: other }, { limit: 1 });

      expect(ids((await harness.store.pull.claim(pullRequest())).rows)).toEqual([free]);

      await close(other, held);
      expect(ids((await harness.store.pull.claim(pullRequest())).rows)).toEqual([second, third]);
    });

    test("the aggregate of another source is another one", async () => {
      await using harness = await open();
      await receive(harness, [A, { ...A, source: "payments" }]);
      await claim(harness);

      expect((await harness.store.pull.claim(pullRequest({ source: "payments" }))).rows).toHaveLength(1);
    });

    test("while a row waits out its delay later rows of its aggregate wait behind it, and follow it then", async () => {
      await using harness = await open();
      const rows = ids(await receive(harness, [A, A]));
      await harness.store.pull.reject(await claim(harness, { limit: 1 }), LATER);

      expect((await harness.store.pull.claim(pullRequest())).rows).toEqual([]);

      await harness.makeInboxDue();
      expect(ids((await harness.store.pull.claim(pullRequest())).rows)).toEqual(rows);
    });

    test("a rejection releases the later rows of its aggregate under the same claim, uncounted, and nothing else", async () => {
      await using harness = await open();
      const [before, rejected, other, later, free] = ids(await receive(harness, [A, A, B, A, {}]));
      const held = await claim(harness);

      const rejection = await harness.store.pull.reject({ ...held, ids: list(rejected) }, LATER);

      expect(rejection).toEqual({ retried: [rejected], dead: [], released: [later] });
      const records = await harness.inboxRows();
      expect(records.filter((row) => row.claimToken === held.token).map((row) => row.id)).toEqual([
        before,
        other,
        free,
      ]);
      expect(records.find((row) => row.id === later)).toMatchObject({ attempt: 0, claimToken: null, lastError: null });
      await harness.store.pull.acknowledge(held);
      expect((await harness.store.pull.claim(pullRequest())).rows).toEqual([]);
      await harness.makeInboxDue();
      const { rows } = await harness.store.pull.claim(pullRequest());
      expect(rows.map(({ id, attempt }) => [id, attempt])).toEqual([
        [rejected, 2],
        [later, 1],
      ]);
    });

    test("rows rejected together are all counted, and what lies between them is released", async () => {
      await using harness = await open();
      const [first, between, last] = ids(await receive(harness, [A, A, A]));
      const held = await claim(harness);

      const rejection = await harness.store.pull.reject({ ...held, ids: list(last, first) }, { ...LATER, delayMs: 0 });

      expect(rejection).toEqual({ retried: [first, last], dead: [], released: [between] });
      const { rows } = await harness.store.pull.claim(pullRequest());
      expect(rows.map(({ id, attempt }) => [id, attempt])).toEqual([
        [first, 2],
        [between, 1],
        [last, 2],
      ]);
    });

    test("a row whose lease has run out comes before the later rows of its aggregate", async () => {
      await using harness = await open();
      const rows = ids(await receive(harness, [A, A]));
      await claim(harness, { limit: 1 });
      await harness.expirePullLeases();

      expect(ids((await harness.store.pull.claim(pullRequest())).rows)).toEqual(rows);
    });

    test("a row that dies in front frees its aggregate in the same claim", async () => {
      await using harness = await open();
      const [first, second, third] = ids(await receive(harness, [A, A, A]));
      await claim(harness, { limit: 1 });
      await harness.expirePullLeases();

      const { rows, dead } = await harness.store.pull.claim(pullRequest({ maxAttempts: 1 }));

      expect(dead).toEqual([first]);
      expect(ids(rows)).toEqual([second, third]);
    });

    test("rows behind a busy aggregate that would fill many batches are not starved", async () => {
      await using harness = await open();
      await receive(
        harness,
        Array.from({ length: 300 }, () => A),
      );
      const free = ids(await receive(harness, [B, {}, B]));
      const held = await claim(harness, { limit: 1 });

      expect(ids((await harness.store.pull.claim(pullRequest({ limit: 10 }))).rows)).toEqual(free);

      const [next] = ids(await receive(harness, [{}]));
      await harness.store.pull.reject(held, LATER);
      expect(ids((await harness.store.pull.claim(pullRequest({ limit: 10 }))).rows)).toEqual([next]);
    });

    test.each([[1], [20], [200]])(
      "six clients that reject and abandon claims on %i aggregates process every row, each aggregate in order",
      async (aggregates) => {
        await using harness = await open();
        const replicas = await Promise.all(Array.from({ length: 5 }, () => harness.replica()));
        const total = 400;
        await receive(
          harness,
          Array.from({ length: total }, (_, n) => ({ aggregateId: `a-${n % aggregates}`, payload: String(n) })),
        );
        const processed: number[] = [];
        const random = seeded(aggregates);

        await Promise.all([harness.store, ...replicas].map((store) => consume(store, processed, total, random)));

        expect(processed.toSorted((a, b) => a - b)).toEqual(Array.from({ length: total }, (_, n) => n));
        for (let aggregate = 0; aggregate < aggregates; aggregate += 1) {
          const own = processed.filter((n) => n % aggregates === aggregate);
          expect(own).toEqual(own.toSorted((a, b) => a - b));
        }
      },
      60_000,
    );
  });
}

const A = { aggregateId: "a" };
const B = { aggregateId: "b" };
const LATER = { delayMs: 60_000, reason: "status 500", maxAttempts: 5 };

/** One client: claims, and processes in order with one failure in twenty; some claims it loses without a word. */
async function consume(store: Store, processed: number[], total: number, random: () => number): Promise<void> {
  while (processed.length < total) {
    const mood = random();
    const request = pullRequest({
      limit: 1 + Math.floor(random() * 20),
      maxAttempts: 1_000_000,
      leaseMs: mood < 0.05 ? 5 : 60_000,
    });
    const { token, rows } = await store.pull.claim(request);
    const held = { source: request.source, token, ids: null };
    if (mood < 0.05) continue;
    const failed = new Set<string | null>();
    for (const row of rows) {
      if (failed.has(row.aggregateId)) continue;
      if (random() < 0.05) {
        failed.add(row.aggregateId);
        await store.pull.reject({ ...held, ids: [row.id] }, { ...LATER, delayMs: 1, maxAttempts: 1_000_000 });
      } else {
        processed.push(Number(row.payload));
        expect(await store.pull.acknowledge({ ...held, ids: [row.id] })).toEqual([row.id]);
      }
    }
  }
}

function list<T>(...items: readonly (T | undefined)[]): readonly T[] {
  return items.filter((item) => item !== undefined);
}
