import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { ClaimToken, MessageId } from "../../../src/model/rows.ts";
import type { PullClaim } from "../../../src/ports/pullStore.ts";
import { inboxRow, type StoreHarness } from "./harness.ts";
import { exercisePullOrder } from "./pullOrder.ts";
import { claim, ids, pullRequest, receive } from "./pullSupport.ts";

export function exercisePull(open: () => Promise<StoreHarness>): void {
  exercisePullClaims(open);
  exercisePullClosing(open);
  exercisePullOrder(open);
}

function exercisePullClaims(open: () => Promise<StoreHarness>): void {
  describe("pull claims", () => {
    test("give the pending pull rows of one source, oldest first, under token and lease, and count the attempt", async () => {
      await using harness = await open();
      const rows = await receive(harness, [{}, {}]);
      await harness.store.inbox.insert([
        inboxRow({ consumption: "push" }),
        inboxRow({ source: "payments", consumption: "pull" }),
        inboxRow({ consumption: "pull", state: "dead", lastError: "no JSON" }),
      ]);
      const request = pullRequest({ leaseMs: 10_000 });

      const { token, rows: claimed, dead } = await harness.store.pull.claim(request);

      expect(ids(claimed)).toEqual(ids(rows));
      expect(claimed.map((row) => row.attempt)).toEqual([1, 1]);
      expect(dead).toEqual([]);
      const records = await harness.inboxRows();
      expect(records.filter((row) => row.claimToken === token).map((row) => row.id)).toEqual(ids(rows));
      for (const record of records.filter((row) => row.claimToken !== null)) {
        expect(record).toMatchObject({ state: "pending", attempt: 1, processed: false });
        expect(record.leaseInMs).toBeGreaterThan(5000);
        expect(record.leaseInMs).toBeLessThanOrEqual(10_000);
      }
    });

    test("bring everything that was received, the payload byte for byte", async () => {
      await using harness = await open();
      const payload = ' {"n":12345678901234567890, "b":1.0,"a":"\\u0000\\ud800 é \u2028"}\n';
      const [row] = await receive(harness, [
        { payload, headers: { "X-Tag": "one, two", __proto__x: "p" }, aggregateId: "a-1", eventType: null },
      ]);

      const { rows } = await harness.store.pull.claim(pullRequest());

      expect(rows).toEqual([
        {
          id: row?.id,
          aggregateId: "a-1",
          eventType: null,
          idempotencyKey: row?.idempotencyKey,
          correlationId: row?.correlationId,
          attempt: 1,
          createdAt: expect.any(Date),
          headers: { "X-Tag": "one, two", __proto__x: "p" },
          tooLarge: null,
          payload,
        },
      ]);
    });

    test("stop at the row limit and at the byte limit, but always take the first row", async () => {
      await using harness = await open();
      const payload = `"${"x".repeat(98)}"`;
      const rows = ids(
        await receive(
          harness,
          Array.from({ length: 8 }, () => ({ payload })),
        ),
      );

      expect(ids((await harness.store.pull.claim(pullRequest({ limit: 2 }))).rows)).toEqual(rows.slice(0, 2));
      expect(ids((await harness.store.pull.claim(pullRequest({ maxBytes: 201 }))).rows)).toEqual(rows.slice(2, 5));
      expect(ids((await harness.store.pull.claim(pullRequest({ maxBytes: 200 }))).rows)).toEqual(rows.slice(5, 7));
      expect(ids((await harness.store.pull.claim(pullRequest({ maxBytes: 1 }))).rows)).toEqual(rows.slice(7));
    });

    test("leave a claimed row alone until its lease has run out, and count again then", async () => {
      await using harness = await open();
      const rows = await receive(harness, [{}]);
      const other = await harness.replica();
      await harness.store.pull.claim(pullRequest());

      expect((await other.pull.claim(pullRequest())).rows).toEqual([]);

      await harness.expirePullLeases();
      const { rows: again } = await other.pull.claim(pullRequest());
      expect(again.map(({ id, attempt }) => [id, attempt])).toEqual([[rows[0]?.id, 2]]);
    });

    test("find at once what comes in after claims that found nothing", async () => {
      await using harness = await open();
      for (let look = 0; look < 3; look += 1) {
        expect(await harness.store.pull.claim(pullRequest())).toMatchObject({ rows: [], dead: [] });
      }

      const rows = await receive(harness, [{}]);

      expect(ids((await harness.store.pull.claim(pullRequest())).rows)).toEqual(ids(rows));
    });

    test("make a row dead that was claimed as often as it may be, and say so on the row", async () => {
      await using harness = await open();
      const [row, fresh] = ids(await receive(harness, [{}, {}]));
      for (let attempt = 1; attempt <= 2; attempt += 1) {
        await harness.store.pull.claim(pullRequest({ limit: 1 }));
        await harness.expirePullLeases();
      }

      const { rows, dead } = await harness.store.pull.claim(pullRequest({ maxAttempts: 2 }));

      expect(dead).toEqual([row]);
      expect(ids(rows)).toEqual([fresh]);
      expect((await harness.inboxRows())[0]).toMatchObject({
        state: "dead",
        processed: true,
        attempt: 2,
        claimToken: null,
        leaseInMs: null,
        lastError: "claimed 2 times without being acknowledged",
      });
      await harness.expirePullLeases();
      expect((await harness.store.pull.claim(pullRequest())).dead).toEqual([]);
    });

    test("keep the reason of an earlier rejection when a row dies", async () => {
      await using harness = await open();
      await receive(harness, [{}]);
      const first = await claim(harness);
      await harness.store.pull.reject(first, { delayMs: 0, reason: "status 500", maxAttempts: 2 });
      await claim(harness);
      await harness.expirePullLeases();

      await harness.store.pull.claim(pullRequest({ maxAttempts: 2 }));

      expect((await harness.inboxRows())[0]?.lastError).toBe(
        "claimed 2 times without being acknowledged; last reason: status 500",
      );
    });
  });
}

function exercisePullClosing(open: () => Promise<StoreHarness>): void {
  describe("pull claims are closed", () => {
    test("by an acknowledgement: the rows are processed", async () => {
      await using harness = await open();
      const rows = ids(await receive(harness, [{}, {}, {}]));
      const held = await claim(harness);

      expect(await harness.store.pull.acknowledge({ ...held, ids: rows.slice(1, 2) })).toEqual(rows.slice(1, 2));
      expect(await harness.store.pull.acknowledge(held)).toEqual([rows[0], rows[2]]);

      for (const record of await harness.inboxRows()) {
        expect(record).toMatchObject({ state: "processed", processed: true, claimToken: null, leaseInMs: null });
      }
      expect(await harness.store.pull.acknowledge(held)).toEqual([]);
    });

    test.each<[string, (held: PullClaim) => PullClaim]>([
      ["another token", (held) => ({ ...held, token: randomUUID() as ClaimToken })],
      ["another source", (held) => ({ ...held, source: "payments" })],
      ["ids of no row", (held) => ({ ...held, ids: [randomUUID() as MessageId] })],
    ])("never under %s", async (_, changed) => {
      await using harness = await open();
      await receive(harness, [{}]);
      const held = await claim(harness);
      const before = await harness.inboxRows();
      const { pull } = harness.store;

      expect(await pull.acknowledge(changed(held))).toEqual([]);
      expect(await pull.extend(changed(held), 60_000)).toEqual([]);
      expect(await pull.reject(changed(held), REJECTION)).toEqual({ retried: [], dead: [], released: [] });

      const settled = ({ leaseInMs: _lease, dueInMs: _due, ...rest }: (typeof before)[number]) => rest;
      expect((await harness.inboxRows()).map(settled)).toEqual(before.map(settled));
    });

    test("also late, as long as nobody has taken the rows over", async () => {
      await using harness = await open();
      const [first, second] = ids(await receive(harness, [{}, {}]));
      const late = await claim(harness);
      await harness.expirePullLeases();
      const other = await claim(harness, { limit: 1 });

      expect(await harness.store.pull.acknowledge(late)).toEqual([second]);
      expect(await harness.store.pull.reject(late, REJECTION)).toEqual({ retried: [], dead: [], released: [] });
      expect(await harness.store.pull.acknowledge(other)).toEqual([first]);
    });

    test("by a rejection: a row is due again after the delay, with the reason", async () => {
      await using harness = await open();
      const rows = ids(await receive(harness, [{}, {}]));
      const held = await claim(harness);

      const rejection = await harness.store.pull.reject({ ...held, ids: rows.slice(0, 1) }, REJECTION);

      expect(rejection).toEqual({ retried: rows.slice(0, 1), dead: [], released: [] });
      const [rejected, kept] = await harness.inboxRows();
      expect(rejected).toMatchObject({ state: "pending", attempt: 1, claimToken: null, lastError: "status 500" });
      expect(rejected?.dueInMs).toBeGreaterThan(30_000);
      expect(rejected?.dueInMs).toBeLessThanOrEqual(60_000);
      expect(kept).toMatchObject({ claimToken: held.token, lastError: null });
      expect((await harness.store.pull.claim(pullRequest())).rows).toEqual([]);
      await harness.makeInboxDue();
      expect((await harness.store.pull.claim(pullRequest())).rows.map((row) => row.attempt)).toEqual([2]);
    });

    test("by a rejection of a row whose attempts are used up: it is dead", async () => {
      await using harness = await open();
      const rows = ids(await receive(harness, [{}]));
      const first = await claim(harness);
      await harness.store.pull.reject(first, { ...REJECTION, delayMs: 0 });
      const second = await claim(harness);

      const rejection = await harness.store.pull.reject(second, { ...REJECTION, reason: null, maxAttempts: 2 });

      expect(rejection).toEqual({ retried: [], dead: rows, released: [] });
      expect((await harness.inboxRows())[0]).toMatchObject({
        state: "dead",
        processed: true,
        attempt: 2,
        claimToken: null,
        lastError: "status 500",
      });
    });

    test("by an extension only later, while the lease runs", async () => {
      await using harness = await open();
      const rows = ids(await receive(harness, [{}, {}]));
      const held = await claim(harness);

      expect(await harness.store.pull.extend({ ...held, ids: rows.slice(0, 1) }, 300_000)).toEqual(rows.slice(0, 1));

      const [extended, kept] = await harness.inboxRows();
      expect(extended?.leaseInMs).toBeGreaterThan(200_000);
      expect(kept?.leaseInMs).toBeLessThanOrEqual(30_000);
      await harness.expirePullLeases();
      expect(await harness.store.pull.extend(held, 30_000)).toEqual([]);
      expect(ids((await harness.store.pull.claim(pullRequest())).rows)).toEqual(rows);
    });
  });
}

const REJECTION = { delayMs: 60_000, reason: "status 500", maxAttempts: 5 };
