import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { ClaimToken } from "../../../src/model/rows.ts";
import { claimRequest, died, failed, queuesOf, released, type StoreHarness, sent } from "./harness.ts";

export function exerciseClaims(open: () => Promise<StoreHarness>): void {
  describe("outbox claims", () => {
    test("a topic and a payload are all that an application must insert", async () => {
      await using harness = await open();
      const [id] = await harness.insertOutbox([{ topic: "orders", payload: '{"a":1}' }]);

      const { rows } = await harness.store.outbox.claim(claimRequest());

      expect(rows).toMatchObject([
        {
          id,
          topic: "orders",
          payload: '{"a":1}',
          key: null,
          aggregateType: null,
          headers: {},
          attempt: 0,
          maxAttempts: 5,
        },
      ]);
      expect(rows[0]?.createdAt).toBeInstanceOf(Date);
    });

    test("rows come in the order of their sequence, at most the limit, and `more` says that others wait", async () => {
      await using harness = await open();
      const ids = await harness.insertOutbox(Array.from({ length: 5 }, () => ({})));

      const first = await harness.store.outbox.claim(claimRequest({ limit: 3 }));
      const second = await harness.store.outbox.claim(claimRequest({ limit: 3 }));

      expect(first.rows.map((row) => row.id)).toEqual(ids.slice(0, 3));
      expect(first.more).toBe(true);
      expect(second.rows.map((row) => row.id)).toEqual(ids.slice(3));
      expect(second.more).toBe(false);
    });

    test("a claimed row is processing under its token, with a lease on the database's clock", async () => {
      await using harness = await open();
      await harness.insertOutbox([{}]);
      const request = claimRequest({ leaseMs: 20_000 });

      await harness.store.outbox.claim(request);

      const [row] = await harness.outboxRows();
      expect(row).toMatchObject({ state: "processing", claimToken: request.token, attempt: 0 });
      expect(row?.leaseInMs).toBeGreaterThan(15_000);
      expect(row?.leaseInMs).toBeLessThanOrEqual(20_000);
    });

    test("a lease is never longer than the claim timeout", async () => {
      await using harness = await open();
      await harness.insertOutbox([{}]);

      await harness.store.outbox.claim(claimRequest({ leaseMs: 30_000, claimTimeoutMs: 5000 }));

      expect((await harness.outboxRows())[0]?.leaseInMs).toBeLessThanOrEqual(5000);
    });

    test("a claim stops at its byte limit, but never before the first row", async () => {
      await using harness = await open();
      await harness.insertOutbox(Array.from({ length: 4 }, () => ({ payload: `"${"x".repeat(998)}"` })));

      expect((await harness.store.outbox.claim(claimRequest({ maxBytes: 2000 }))).rows).toHaveLength(2);
      expect((await harness.store.outbox.claim(claimRequest({ maxBytes: 1 }))).rows).toHaveLength(1);
    });

    test("claims that run at once never share a row", async () => {
      await using harness = await open();
      const other = await harness.replica();
      await harness.insertOutbox(Array.from({ length: 200 }, () => ({})));

      const claims = await Promise.all(
        Array.from({ length: 10 }, (_, n) =>
          (n % 2 === 0 ? harness.store : other).outbox.claim(claimRequest({ limit: 50 })),
        ),
      );

      const ids = claims.flatMap((claim) => claim.rows.map((row) => row.id));
      expect(new Set(ids).size).toBe(ids.length);
    });

    test("a glance sees what has been due for so long, and nothing that is newer, scheduled ahead, claimed or done", async () => {
      await using harness = await open();
      const { store } = harness;
      const isOverdue = async (ms: number) => (await store.outbox.glance(ms)).isOverdue;
      await harness.insertOutbox([{ key: "a" }, { dueInMs: 60_000 }]);
      expect(await isOverdue(60_000)).toBe(false);
      await harness.ageOutbox(61_000);
      await harness.insertOutbox([{}]);
      expect(await isOverdue(60_000)).toBe(true);
      expect(await isOverdue(120_000)).toBe(false);

      const { rows } = await store.outbox.claim(claimRequest({}));
      expect(rows).toHaveLength(3);
      expect(await isOverdue(0)).toBe(false);
      await store.outbox.settle(rows.map(({ id, claimToken }) => ({ id, claimToken, kind: "sent" })));
      expect(await isOverdue(0)).toBe(false);
    });

    test("a row that is scheduled ahead is not claimed before it is due, and holds back no row of its key", async () => {
      await using harness = await open();
      const [ahead, behind] = await harness.insertOutbox([{ key: "k", dueInMs: 60_000 }, { key: "k" }]);

      expect((await harness.store.outbox.claim(claimRequest())).rows.map((row) => row.id)).toEqual([behind]);

      await harness.makeDue();
      const { rows } = await harness.store.outbox.claim(claimRequest());
      expect(rows.map((row) => row.id)).toEqual([ahead]);
    });

    test("the header column may hold what an application wrote: other values become text, what is no object counts as none", async () => {
      await using harness = await open();
      await harness.insertOutbox([{ topic: "odd-headers" }, { topic: "array-headers" }]);

      const { rows } = await harness.store.outbox.claim(claimRequest());

      expect(rows.map((row) => row.headers)).toEqual([{ n: "1", o: '{"a": true}'.replace(" ", "") }, {}]);
    });
  });
}

export function exerciseSettling(open: () => Promise<StoreHarness>): void {
  describe("settling claims", () => {
    async function claimOne(harness: StoreHarness) {
      await harness.insertOutbox([{}]);
      const { rows } = await harness.store.outbox.claim(claimRequest());
      const [row] = rows;
      if (row === undefined) throw new Error("nothing was claimed");
      return row;
    }

    test("a sent row is done with, and its claim is gone", async () => {
      await using harness = await open();
      const row = await claimOne(harness);

      expect((await harness.store.outbox.settle([sent(row)])).closed).toEqual(new Set([row.id]));

      expect(await harness.outboxRows()).toMatchObject([
        { state: "sent", attempt: 0, claimToken: null, leaseInMs: null, lastError: null },
      ]);
    });

    test("a failed row waits for its delay with the attempt counted and the reason kept", async () => {
      await using harness = await open();
      const row = await claimOne(harness);

      await harness.store.outbox.settle([failed(row, 60_000)]);

      const [after] = await harness.outboxRows();
      expect(after).toMatchObject({ state: "pending", attempt: 1, claimToken: null, lastError: "status 500" });
      expect(after?.dueInMs).toBeGreaterThan(50_000);
      expect((await harness.store.outbox.claim(claimRequest())).rows).toEqual([]);
    });

    test("a dead row keeps the reason; a delivery that was not tried is not counted", async () => {
      await using harness = await open();
      const tried = await claimOne(harness);
      const untried = await claimOne(harness);

      await harness.store.outbox.settle([died(tried), died(untried, false)]);

      expect(await harness.outboxRows()).toMatchObject([
        { state: "dead", attempt: 1, lastError: "no route" },
        { state: "dead", attempt: 0, lastError: "no route" },
      ]);
    });

    test("a released row is pending again at once, as if it had not been claimed", async () => {
      await using harness = await open();
      const row = await claimOne(harness);

      await harness.store.outbox.settle([released(row)]);

      expect(await harness.outboxRows()).toMatchObject([
        { state: "pending", attempt: 0, claimToken: null, lastError: null },
      ]);
      expect((await harness.store.outbox.claim(claimRequest())).rows).toHaveLength(1);
    });

    test("outcomes of several claims and kinds go together", async () => {
      await using harness = await open();
      const rows = [await claimOne(harness), await claimOne(harness), await claimOne(harness), await claimOne(harness)];
      const [a, b, c, d] = rows;
      if (a === undefined || b === undefined || c === undefined || d === undefined)
        throw new Error("four rows expected");

      const { closed } = await harness.store.outbox.settle([sent(a), failed(b), died(c), released(d)]);

      expect(closed).toEqual(new Set(rows.map((row) => row.id)));
      expect((await harness.outboxRows()).map((row) => row.state)).toEqual(["sent", "pending", "dead", "pending"]);
    });

    test("a claim that was taken over settles nothing: the fence", async () => {
      await using harness = await open();
      const row = await claimOne(harness);
      await harness.expireLeases();
      await harness.store.outbox.reclaim(10, 300_000);
      const taken = claimRequest();
      await harness.store.outbox.claim(taken);

      expect((await harness.store.outbox.settle([sent(row)])).closed).toEqual(new Set());

      expect(await harness.outboxRows()).toMatchObject([{ state: "processing", claimToken: taken.token }]);
    });

    test("the fence tells the claims of one process apart", async () => {
      await using harness = await open();
      const row = await claimOne(harness);
      await harness.expireLeases();
      await harness.store.outbox.reclaim(10, 300_000);
      const again = (await harness.store.outbox.claim(claimRequest())).rows[0];
      const other = await claimOne(harness);
      if (again === undefined) throw new Error("nothing was claimed again");

      const { closed } = await harness.store.outbox.settle([
        sent(row),
        { ...sent(other), claimToken: again.claimToken },
      ]);

      expect(closed).toEqual(new Set());
    });

    test("settling twice changes nothing the second time", async () => {
      await using harness = await open();
      const row = await claimOne(harness);
      await harness.store.outbox.settle([sent(row)]);

      expect((await harness.store.outbox.settle([failed(row)])).closed).toEqual(new Set());

      expect(await harness.outboxRows()).toMatchObject([{ state: "sent", attempt: 0 }]);
    });

    test("a renewed lease is longer, but never past the claim timeout, and only under its own token", async () => {
      await using harness = await open();
      const row = await claimOne(harness);

      const held = await harness.store.outbox.renew([row.claimToken], { leaseMs: 120_000, claimTimeoutMs: 300_000 });
      expect(held).toEqual(new Set([row.id]));
      expect((await harness.outboxRows())[0]?.leaseInMs).toBeGreaterThan(100_000);

      await harness.store.outbox.renew([row.claimToken], { leaseMs: 120_000, claimTimeoutMs: 50_000 });
      expect((await harness.outboxRows())[0]?.leaseInMs).toBeLessThanOrEqual(50_000);

      const other = randomUUID() as ClaimToken;
      expect(await harness.store.outbox.renew([other], { leaseMs: 1, claimTimeoutMs: 1 })).toEqual(new Set());
      expect((await harness.outboxRows())[0]?.leaseInMs).toBeGreaterThan(1000);
    });

    test("a row whose lease has run out is pending again, with its attempts unchanged; a live one stays", async () => {
      await using harness = await open();
      await claimOne(harness);
      await harness.expireLeases();
      await claimOne(harness);

      expect(await harness.store.outbox.reclaim(10, 300_000)).toBe(1);

      expect(await harness.outboxRows()).toMatchObject([
        { state: "pending", attempt: 0, claimToken: null, leaseInMs: null },
        { state: "processing" },
      ]);
    });

    test("reclaiming takes at most its limit", async () => {
      await using harness = await open();
      for (let n = 0; n < 3; n += 1) await claimOne(harness);
      await harness.expireLeases();

      expect(await harness.store.outbox.reclaim(2, 300_000)).toBe(2);
      expect(await harness.store.outbox.reclaim(2, 300_000)).toBe(1);
    });

    test("the backlog counts what waits, its age, and the keys that wait for a retry", async () => {
      await using harness = await open();
      expect(await harness.store.outbox.backlog()).toEqual({
        pending: 0,
        oldestPendingAgeMs: null,
        blockedKeys: 0,
        byDestination: new Map(),
        parked: 0,
      });
      await harness.insertOutbox([{ key: "a" }, { key: "a" }, { key: "b" }]);
      const { rows } = await harness.store.outbox.claim(claimRequest({ limit: 1 }));
      await harness.store.outbox.settle(rows.map((row) => failed(row)));

      const backlog = await harness.store.outbox.backlog();

      expect(backlog).toMatchObject({ pending: 3, blockedKeys: 1, parked: 0 });
      expect(backlog.oldestPendingAgeMs).toBeGreaterThanOrEqual(0);
    });

    test("the backlog is counted by destination: what waits, also for a retry, what is in processing, and the age of what is due", async () => {
      await using harness = await open();
      const [early, keyed] = await harness.insertOutbox([
        { topic: "a" },
        { topic: "a", key: "k" },
        { topic: "a" },
        { topic: "A", dueInMs: 600_000 },
      ]);
      const { rows } = await harness.store.outbox.claim(claimRequest({ queues: queuesOf(["a"]) }));
      const first = rows.filter(({ id }) => id === early || id === keyed);
      await harness.store.outbox.settle(first.map((row) => failed(row, 600_000)));
      await harness.insertOutbox([{ topic: "b", key: "k" }, { topic: "b" }, { topic: "nobody's" }]);

      const { byDestination, ...totals } = await harness.store.outbox.backlog();

      expect(totals).toEqual({ pending: 6, oldestPendingAgeMs: expect.any(Number), blockedKeys: 1, parked: 0 });
      const totalsOnly = await harness.store.outbox.backlog({ totalsOnly: true });
      expect(totalsOnly).toEqual({ ...totals, oldestPendingAgeMs: expect.any(Number), byDestination: new Map() });
      const age = expect.any(Number);
      expect(Object.fromEntries(byDestination)).toEqual({
        a: { pending: 2, due: 0, processing: 1, oldestPendingAgeMs: null, blockedKeys: 1, parked: 0 },
        A: { pending: 1, due: 0, processing: 0, oldestPendingAgeMs: null, blockedKeys: 0, parked: 0 },
        b: { pending: 2, due: 2, processing: 0, oldestPendingAgeMs: age, blockedKeys: 0, parked: 0 },
        "": { pending: 1, due: 1, processing: 0, oldestPendingAgeMs: age, blockedKeys: 0, parked: 0 },
      });
    });
  });
}
