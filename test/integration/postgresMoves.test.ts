import { describe, expect, test } from "@jest/globals";
import { CellMap } from "../../src/core/cells/cellMap.ts";
import { Copies } from "../../src/core/cells/copies.ts";
import { BUCKETS, bucketOf } from "../../src/model/cells.ts";
import type { NewInboxRow } from "../../src/model/rows.ts";
import type { BucketStore } from "../../src/ports/bucketStore.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, parked } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { deliver, inBucket, NEVER, states, TOPICS, toB, useCells, watch } from "../support/movedCells.ts";
import { ManualClock, silentLog } from "../support/recorders.ts";

failOnLeaks();
const setUp = useCells();

const kinds = async (store: Store, ...rows: readonly NewInboxRow[]) =>
  (await store.inbox.insert(rows.map(inBucket))).map(({ kind }) => kind).join();

test("the first cell takes all buckets at first, however many processes look at once", async () => {
  await using setup = await setUp();
  const { cells, a, b } = setup;
  await Promise.all(Array.from({ length: 5 }, () => new CellMap({ cells, log: silentLog }).refresh()));
  // Nor does one that is listed first later.
  await new CellMap({ cells: [b, a], log: silentLog }).refresh();
  const { rows, server } = await a.store.buckets.all();
  expect(rows).toHaveLength(BUCKETS);
  expect((await b.store.buckets.all()).rows).toEqual([]);
  expect(setup.map.cellOf(1023)).toEqual({ cell: "a", server });
});

test("a copying pass begins anew when the clock was set back: what is received then may be older than any position", async () => {
  await using setup = await setUp();
  const { a, b } = setup;
  const bucket = bucketOf("k");
  let hour = 0;
  // No clock of a test's server can be set back.
  const shifted = new Proxy(a.store.buckets, {
    get: (target, name: keyof BucketStore) =>
      name !== "positionBefore"
        ? target[name]
        : async (ms: number) => {
            const { position, nowMs } = await target.positionBefore(ms);
            return { position, nowMs: nowMs + hour * 3_600_000 };
          },
  });
  const copies = new Copies(shifted, new ManualClock(), () => {});
  const targets = new Map([[bucket, b.store.buckets]]);
  const receive = (key: string) =>
    a.database.query(
      `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, state, created_at)
       VALUES ('orders', $1, 'k', '', 'processed', now() - interval '1 hour')`,
      [key],
    );
  const pass = async () => {
    await copies.mark(NEVER);
    return await copies.pass(targets, NEVER);
  };
  await receive("first");
  expect(await pass()).toBe(1);
  await receive("before the position");
  expect(await pass()).toBe(0);
  hour = -1;
  expect(await pass()).toBe(2);
  expect(await b.database.query("SELECT idempotency_key FROM inbox ORDER BY 1")).toEqual([
    { idempotency_key: "before the position" },
    { idempotency_key: "first" },
  ]);
});

describe("a move", () => {
  test("takes the finished rows along, so that a repetition is a duplicate in the new cell, however late its first was finished", async () => {
    await using setup = await setUp();
    const { a, b, map } = setup;
    const early = inboxRow({ idempotencyKey: "early", aggregateId: "k" });
    const late = inboxRow({ idempotencyKey: "late", aggregateId: "k" });
    const other = inboxRow({ idempotencyKey: "other", aggregateId: "another key" });
    await a.store.inbox.insert([early, other].map(inBucket));
    await deliver(a);
    // Its process does not relay.
    await setup.another(a).inbox.insert([late].map(inBucket));
    // As if the relay had been away for an hour: no pass that begins two minutes ago reads it.
    await a.database.query(
      "UPDATE inbox SET created_at = now() - interval '1 hour', scheduled_at = now() - interval '1 hour' WHERE state = 'pending'",
    );
    const bucket = bucketOf("k");
    // The relay runs once the first pass has been.
    const watched = watch(a, "close", async () => void (await deliver({ store: setup.another(a) })));
    const moved = await setup.mover({ cells: [watched, b] }).move(toB(bucket), NEVER);
    expect(moved).toEqual([{ bucket, from: "a", to: "b", outcome: "moved", reason: undefined }]);
    expect([await states(a, bucket), await states(b, bucket)]).toEqual(["left 2", "open 2"]);
    await map.refresh();
    expect(map.cellOf(bucket)).toMatchObject({ cell: "b" });
    const again = [early, late].map((row) => ({ ...row, id: inboxRow().id }));
    expect(await kinds(b.store, ...again, inboxRow({ aggregateId: "k" }))).toBe("duplicate,duplicate,stored");
    // Nothing is taken along that does not belong to it.
    expect(await b.database.query("SELECT FROM inbox WHERE idempotency_key = 'other'")).toEqual([]);
    await expect(kinds(a.store, inboxRow({ aggregateId: "k" }))).rejects.toMatchObject({ code: "elsewhere" });
  });

  test("waits for what is on its way, and takes receipts in again where that takes too long", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const bucket = bucketOf("k");
    await a.store.inbox.insert([inboxRow({ aggregateId: "k" })].map(inBucket));
    expect(await setup.mover({ waitMs: 200 }).move(toB(bucket), NEVER)).toMatchObject([
      { outcome: "held", reason: "1 row waits for the relay" },
    ]);
    expect([await states(a, bucket), await states(b, bucket)]).toEqual(["open 1", ""]);
    expect(await kinds(a.store, inboxRow({ aggregateId: "k" }))).toBe("stored");
    const watched = watch(a, "close", async () => void setTimeout(() => void deliver(a), 100));
    expect(await setup.mover({ cells: [watched, b], waitMs: 5000 }).move(toB(bucket), NEVER)).toMatchObject([
      { outcome: "moved" },
    ]);
  });

  test("lets each bucket leave as soon as nothing of it waits, and waits longer for one whose rows keep leaving", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const [idle, steady, stuck] = ["idle", "steady", "stuck"].map(bucketOf) as [number, number, number];
    for (const key of [...Array.from({ length: 20 }, () => "steady"), "stuck"])
      await a.database.query("INSERT INTO outbox (topic, key, payload) VALUES ('t', $1, '')", [key]);
    const clock = new ManualClock();
    const seen: string[] = [];
    let isClosed = false;
    const watched = watch(
      watch(a, "close", async () => {
        isClosed = true;
      }),
      "unfinished",
      async () => {
        if (!isClosed) return;
        seen.push(await states(a, idle, steady, stuck));
        clock.advance(100);
        await a.database.query(
          `UPDATE outbox SET state = 'sent' WHERE id IN
             (SELECT id FROM outbox WHERE key = 'steady' AND state = 'pending' ORDER BY sequence LIMIT 1)`,
        );
      },
    );
    const moved = await setup.mover({ cells: [watched, b], clock, waitMs: 1000 }).move(toB(idle, steady, stuck), NEVER);
    const outcomes = [idle, steady, stuck].map((bucket) => moved.find((each) => each.bucket === bucket));
    expect(outcomes).toMatchObject([
      { outcome: "moved" },
      { outcome: "moved" },
      { outcome: "held", reason: "1 row waits for its delivery" },
    ]);
    const byBucket = (of: Readonly<Record<number, string>>) =>
      [idle, steady, stuck].toSorted((x, y) => x - y).map((bucket) => of[bucket]);
    const all = { [idle]: "moving 1", [steady]: "moving 1", [stuck]: "moving 1" };
    expect(new Set(seen)).toEqual(
      new Set([
        byBucket(all).join(),
        byBucket({ ...all, [idle]: "left 2" }).join(),
        byBucket({ ...all, [idle]: "left 2", [stuck]: "open 1" }).join(),
      ]),
    );
    expect(await states(a, stuck)).toBe("open 1");
  });

  test("closes no bucket with a row that is parked, retried later, scheduled ahead or pulled, nor one of the same key of an application", async () => {
    await using setup = await setUp();
    const { a } = setup;
    await a.store.inbox.insert([inboxRow({ aggregateId: "parked" }), inboxRow({ aggregateId: "retry" })].map(inBucket));
    while ((await a.store.inbox.relay(TOPICS)).relayed > 0);
    const { rows } = await a.store.outbox.claim(claimRequest());
    await a.store.outbox.settle(
      rows.map((row) =>
        row.key === "parked"
          ? parked(row)
          : { id: row.id, claimToken: row.claimToken, kind: "retry", delayMs: 60_000, reason: "" },
      ),
    );
    await a.store.inbox.insert(
      [
        inboxRow({ aggregateId: "ahead", schedule: { delayMs: 60_000, publishedAt: null, notBefore: null } }),
        inboxRow({ aggregateId: "pull", consumption: "pull" }),
      ].map(inBucket),
    );
    await a.database.query(
      "INSERT INTO outbox (topic, key, payload, scheduled_at) VALUES ('t', 'own:app', '', now() + interval '1 hour')",
    );
    const keys = ["parked", "retry", "ahead", "pull", "app"];
    const watched = watch(a, "close", async () => {
      throw new Error("it was to close a bucket");
    });
    const moved = await setup.mover({ cells: [watched, setup.b] }).move(toB(...keys.map(bucketOf)), NEVER);
    const reasonOf = (key: string) => moved.find(({ bucket }) => bucket === bucketOf(key));
    expect(keys.map(reasonOf)).toMatchObject([
      { outcome: "held", reason: "1 row is parked" },
      { outcome: "held", reason: "1 row waits for a retry" },
      { outcome: "held", reason: "1 row is scheduled ahead" },
      { outcome: "held", reason: "1 row waits for a pull client" },
      { outcome: "held", reason: "1 row is scheduled ahead" },
    ]);
  });

  test("checks again behind its last pass: a row that was replayed meanwhile keeps the bucket", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await a.store.inbox.insert([inboxRow({ aggregateId: "k" })].map(inBucket));
    await deliver(a);
    let closed = false;
    const watched = watch(
      watch(a, "close", async () => {
        closed = true;
      }),
      "finished",
      async () => {
        if (closed) await a.database.query("UPDATE outbox SET state = 'pending', attempt = 0, scheduled_at = now()");
      },
    );
    const bucket = bucketOf("k");
    expect(await setup.mover({ cells: [watched, b] }).move(toB(bucket), NEVER)).toMatchObject([
      { outcome: "held", reason: "1 row waits for its delivery" },
    ]);
    expect([await states(a, bucket), await states(b, bucket)]).toEqual(["open 1", ""]);
  });

  test("goes there and back under rising epochs", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await setup.mover().move(toB(1, 2), NEVER);
    await setup.mover().move([{ bucket: 1, from: "b", to: "a" }], NEVER);
    expect([await states(a, 1, 2), await states(b, 1, 2)]).toEqual(["open 3,left 2", "left 3,open 2"]);
    await setup.map.refresh();
    expect([1, 2].map((bucket) => setup.map.cellOf(bucket))).toMatchObject([{ cell: "a" }, { cell: "b" }]);
  });

  test("of two movers at once takes each bucket once", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const buckets = Array.from({ length: 20 }, (_, n) => n);
    const two = await Promise.all([1, 2].map(() => setup.mover({ chunk: 3 }).move(toB(...buckets), NEVER)));
    for (const bucket of buckets) {
      const outcomes = two.map((moved) => moved.find((each) => each.bucket === bucket));
      expect(outcomes.filter((each) => each?.outcome === "moved")).toHaveLength(1);
      expect(outcomes.find((each) => each?.outcome !== "moved")).toMatchObject({
        outcome: "failed",
        reason: expect.stringMatching(/^it was not open: another move may be under way, or/),
      });
    }
    const openIn = async ({ store }: typeof a) =>
      (await store.buckets.all()).rows.filter(({ state }) => state === "open").map(({ bucket }) => bucket);
    expect((await openIn(b)).toSorted((x, y) => x - y)).toEqual(buckets);
    expect(await openIn(a)).toHaveLength(BUCKETS - buckets.length);
  });

  test("of a signal opens what is closed again, and leaves the rest", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const stopping = new AbortController();
    const watched = watch(a, "close", async () => stopping.abort(new Error("stopped")));
    const moved = await setup.mover({ cells: [watched, b], chunk: 1 }).move(toB(1, 2), stopping.signal);
    expect(moved).toMatchObject([
      { outcome: "failed", reason: "stopped" },
      { outcome: "failed", reason: "stopped" },
    ]);
    expect([await states(a, 1, 2), await states(b, 1, 2)]).toEqual(["open 1,open 1", ""]);
  });
});
