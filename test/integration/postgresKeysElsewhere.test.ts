import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, MessageId } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, claimSome, failed, type StoreHarness, sent } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresHarnesses } from "../support/postgresHarness.ts";

failOnLeaks();

const LIMIT = 10;
/** Far beyond the longest rest between two sweeps of so short a front. */
const SWEEP_MS = 5000;

describe("keys in delivery elsewhere", () => {
  const open = postgresHarnesses();

  const idsOf = (rows: readonly ClaimedRow[]): readonly MessageId[] => rows.map(({ id }) => id);
  const claimOf = async (store: Store): Promise<readonly ClaimedRow[]> =>
    (await claimSome(store, { limit: LIMIT })).rows;

  /** Another replica delivers the first row of a key, behind which so many wait; then comes a free one. */
  async function withBacklog(harness: StoreHarness, rows: number) {
    await harness.insertOutbox([{ key: "taken" }]);
    const behind = await harness.insertOutbox(Array.from({ length: rows }, () => ({ key: "taken" })));
    const free = await harness.insertOutbox([{ key: "free" }]);
    const other = await harness.replica();
    const [head] = (await other.outbox.claim(claimRequest({ limit: 1 }))).rows;
    if (head === undefined) throw new Error("nothing was claimed");
    return { behind, free, finish: () => other.outbox.settle([sent(head)]) };
  }

  test("leave their rows to that replica, and do not starve those behind them", async () => {
    await using harness = await open();
    const keys = Array.from({ length: LIMIT }, (_, n) => ({ key: `taken-${n}` }));
    await harness.insertOutbox(keys);
    const behind = await harness.insertOutbox([...keys, ...keys]);
    const free = await harness.insertOutbox([{ key: "free" }, {}]);
    const other = await harness.replica();
    const request = claimRequest({ limit: LIMIT });
    await other.outbox.claim(request);

    expect(idsOf(await claimOf(harness.store))).toEqual(free);

    const next = claimRequest({ limit: LIMIT, heldTokens: [request.token] });
    expect(idsOf((await other.outbox.claim(next)).rows)).toEqual(behind.slice(0, LIMIT));
  });

  test("are claimed by the next sweep when they are free", async () => {
    await using harness = await open();
    const { behind, free, finish } = await withBacklog(harness, 2 * LIMIT);
    expect(idsOf(await claimOf(harness.store))).toEqual(free);
    const later = await harness.insertOutbox([{ key: "later" }]);
    expect(idsOf(await claimOf(harness.store))).toEqual(later);

    await finish();

    harness.clock.advance(SWEEP_MS);
    expect(idsOf(await claimOf(harness.store))).toEqual(behind.slice(0, LIMIT));
  });

  test("are not read by each claim if very many of their rows wait: the next sweep claims them", async () => {
    await using harness = await open();
    const { behind, free, finish } = await withBacklog(harness, 5001);
    expect(idsOf(await claimOf(harness.store))).toEqual(free);
    await finish();
    expect(await claimOf(harness.store)).toEqual([]);

    harness.clock.advance(SWEEP_MS);

    expect(idsOf(await claimOf(harness.store))).toEqual(behind.slice(0, LIMIT));
  });

  test("are not those of this replica: its claims continue with a key, also past a blocked front", async () => {
    await using harness = await open();
    await harness.insertOutbox(Array.from({ length: LIMIT }, () => ({ key: "blocked" })));
    const [blocked] = (await harness.store.outbox.claim(claimRequest({ limit: 1 }))).rows;
    if (blocked === undefined) throw new Error("nothing was claimed");
    await harness.store.outbox.settle([failed(blocked)]);
    const hot = await harness.insertOutbox(Array.from({ length: 6000 }, () => ({ key: "hot" })));

    const claimed = [await claimOf(harness.store)];
    for (let n = 0; n < 3; n += 1) {
      await harness.store.outbox.settle((claimed.at(-1) ?? []).map(sent));
      claimed.push(await claimOf(harness.store));
    }

    const [first, ...others] = claimed.map(({ length }) => length);
    expect(others).toEqual([LIMIT, LIMIT, LIMIT]);
    expect(claimed.flatMap(idsOf)).toEqual(hot.slice(0, Number(first) + 3 * LIMIT));
  });

  test("are passed too if nothing else waits", async () => {
    await using harness = await open();
    const { behind, free, finish } = await withBacklog(harness, 5001);
    await harness.removeOutbox(free);
    expect(await claimOf(harness.store)).toEqual([]);
    await finish();
    expect(await claimOf(harness.store)).toEqual([]);
    const later = await harness.insertOutbox([{ key: "later" }]);
    expect(idsOf(await claimOf(harness.store))).toEqual(later);

    harness.clock.advance(SWEEP_MS);

    expect(idsOf(await claimOf(harness.store))).toEqual(behind.slice(0, LIMIT));
  });
});
