import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { CellMap } from "../../src/core/cells/cellMap.ts";
import { CellReceipts } from "../../src/core/receipt/cellReceipts.ts";
import { bucketOf } from "../../src/model/cells.ts";
import type { NewInboxRow } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { sleep } from "../../src/time/wait.ts";
import { claimRequest, inboxRow, sent } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import {
  deliver,
  inBucket,
  NEVER,
  newToken,
  states,
  type TestCell,
  TOPICS,
  toB,
  useCells,
  watch,
} from "../support/movedCells.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { recordingLog, silentLog } from "../support/recorders.ts";
import { databaseConfig, ordersTo, useServices } from "../support/service.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";

const setUp = useCells();
const services = useServices();
failOnLeaks();

test("of live traffic, moves there and back lose, repeat and reorder nothing of a key", async () => {
  await using setup = await setUp();
  const { cells, a, b, map } = setup;
  const keys = Array.from({ length: 12 }, (_, n) => `key-${n}`);
  const receipts = new CellReceipts({
    cells: new Map(
      cells.map(({ name, store }) => [
        name,
        { receipts: undefined as never, insert: (rows) => store.inbox.insert(rows) },
      ]),
    ),
    buckets: map,
    clock: systemClock,
    wait: (ms) => sleep(ms),
  });
  let isOver = false;
  let isSending = true;
  const accepted = new Map<string, number>();
  const delivered: string[] = [];
  /** Senders do not outrun the deliveries, as they would on a slow machine. */
  const isAhead = () => [...accepted.values()].reduce((sum, n) => sum + n, 0) > delivered.length + 100;
  const repeated: string[] = [];
  /** Sends the messages of a key one after the other, and the last one again now and then. */
  const sendKey = async (key: string): Promise<void> => {
    let last: NewInboxRow | undefined;
    for (let n = 0; !isOver; ) {
      if (n > 0) await eventually(() => isOver || !isAhead(), { timeoutMs: 60_000, intervalMs: 2 });
      const row = inboxRow({ aggregateId: key, idempotencyKey: `${key}/${n}`, payload: `${key}/${n}` });
      const [outcome] = await receipts.insert([row]);
      if (outcome?.kind === "unavailable") continue;
      expect(outcome?.kind).toBe("stored");
      n += 1;
      accepted.set(key, n);
      if (n % 3 === 0 && last !== undefined) {
        const [again] = await receipts.insert([{ ...last, id: randomUUID() as NewInboxRow["id"] }]);
        repeated.push(String(again?.kind));
      }
      last = row;
    }
  };
  /** The relay and the poller of a cell, until nothing is left. */
  const work = async ({ store }: TestCell): Promise<void> => {
    for (let idle = 0; isSending || idle < 3; ) {
      const { relayed } = await store.inbox.relay(TOPICS);
      const { rows } = await store.outbox.claim(claimRequest({ limit: 10 }));
      for (const { payload } of rows) delivered.push(payload ?? "");
      await store.outbox.settle(rows.map(sent));
      idle = !isSending && relayed + rows.length === 0 ? idle + 1 : 0;
    }
  };
  const sending = keys.map(sendKey);
  const working = cells.map(work);
  try {
    const buckets = keys.map(bucketOf);
    for (let round = 0; round < 4; round += 1) {
      const [from, to] = round % 2 === 0 ? ["a", "b"] : ["b", "a"];
      const plan = buckets.map((bucket) => ({ bucket, from, to: to as string }));
      const moved = await setup.mover({ chunk: 5, waitMs: 5000 }).move(plan, NEVER);
      expect(moved.map(({ outcome, reason }) => [outcome, reason])).toEqual(buckets.map(() => ["moved", undefined]));
    }
  } finally {
    isOver = true;
    await Promise.all(sending);
    isSending = false;
    await Promise.all(working);
  }
  expect(repeated.filter((kind) => kind !== "duplicate" && kind !== "unavailable")).toEqual([]);
  expect(repeated.length).toBeGreaterThan(10);
  for (const key of keys) {
    const count = accepted.get(key) ?? 0;
    expect(count).toBeGreaterThan(3);
    expect(delivered.filter((payload) => payload.startsWith(`${key}/`))).toEqual(
      Array.from({ length: count }, (_, n) => `${key}/${n}`),
    );
  }
  // The rows of both cells were delivered.
  for (const { database } of [a, b]) {
    expect(await database.query("SELECT count(*)::int > 0 AS some FROM outbox")).toEqual([{ some: true }]);
  }
});

const endLease = ({ database }: TestCell) =>
  database.query("UPDATE outbox_bucket SET lease_until = now() - interval '1 second' WHERE state = 'moving'");

/** What keeps a mover waiting at a step: in which cell, by what, and words of the statement that waits. */
const STEPS = {
  "copying rows": { cell: "b", lock: "LOCK TABLE inbox IN SHARE MODE", waits: "INSERT INTO" },
  "closing buckets": { cell: "a", lock: "LOCK TABLE outbox_bucket IN ROW SHARE MODE", waits: "LOCK TABLE" },
  // The table must be free until then.
  "leaving the old cell": { cell: "a", lock: "SELECT pg_advisory_xact_lock(7)", waits: "'left'" },
  "noting its copies in the new cell": {
    cell: "b",
    lock: "LOCK TABLE outbox_bucket IN SHARE MODE",
    waits: "'arriving'",
  },
  "opening in the new cell": { cell: "b", lock: "SELECT pg_advisory_xact_lock(7)", waits: "'open'" },
} as const;
const HOLD = `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.state = TG_ARGV[0] THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END $$`;

describe("a mover that is killed", () => {
  test.each([...Object.keys(STEPS), "waiting for rows"])(
    "while %s leaves its buckets to the next one",
    async (step) => {
      await using setup = await setUp();
      const { a, b, map } = setup;
      const bucket = bucketOf("k");
      const first = inboxRow({ aggregateId: "k", idempotencyKey: "first" });
      await a.store.inbox.insert([inBucket(first)]);
      await deliver(a);
      const held = STEPS[step as keyof typeof STEPS] as (typeof STEPS)[keyof typeof STEPS] | undefined;
      const cell = held?.cell === "b" ? b : a;
      const client = new pg.Client({ connectionString: cell.database.url, application_name: TEST_APPLICATION_NAME });
      await client.connect();
      const waitsAt = async (words: string) =>
        await eventually(async () => {
          const rows = await cell.database.query<{ query: string }>(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'svc'",
          );
          expect(rows.filter(({ query }) => query.includes(words))).not.toEqual([]);
        });
      try {
        for (const { database, state } of [
          { ...a, state: "left" },
          { ...b, state: "open" },
        ]) {
          await database.query(HOLD);
          await database.query(
            `CREATE TRIGGER hold BEFORE UPDATE ON outbox_bucket FOR EACH ROW EXECUTE FUNCTION hold('${state}')`,
          );
        }
        if (held === undefined)
          await a.database.query("INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', '')");
        else await client.query(`BEGIN; ${held.lock}`);
        const mover = services.processes.svc([
          "cells",
          "move",
          "--key",
          "k",
          "--to",
          "b",
          "--wait",
          "20s",
          "--config",
          configOf(a, b),
        ]);
        if (held === undefined) await eventually(async () => expect(await states(a, bucket)).toBe("moving 1"));
        else await waitsAt(held.waits);
        mover.kill("SIGKILL");
        await mover.exited;
      } finally {
        await client.query("ROLLBACK");
        await client.end();
      }
      // What was sent before its end may still be done.
      await eventually(async () => {
        const rows = await a.database.query(
          "SELECT FROM pg_stat_activity WHERE application_name = 'svc' AND state <> 'idle' AND datname IN ($1, $2)",
          [a.database.name, b.database.name],
        );
        expect(rows).toEqual([]);
      });
      await endLease(a);
      await deliver(a);
      await map.refresh();
      await map.refresh();
      const place = map.cellOf(bucket);
      // The end of the process may reset the connection before the server has read the commit of what waited.
      const left = { "opening in the new cell": ["b"], "leaving the old cell": ["a", "b"] }[step] ?? ["a"];
      expect(left).toContain("cell" in place ? place.cell : place.reason);
      const store = "cell" in place && place.cell === "b" ? b.store : a.store;
      const again = () => [first, inboxRow({ aggregateId: "k" })].map((row) => inBucket({ ...row, id: inboxRow().id }));
      expect((await store.inbox.insert(again())).map(({ kind }) => kind)).toEqual(["duplicate", "stored"]);
      await deliver({ store });
      if (store === a.store) expect(await setup.mover().move(toB(bucket), NEVER)).toMatchObject([{ outcome: "moved" }]);
      expect([await states(a, bucket), await states(b, bucket)]).toEqual(["left 2", "open 2"]);
      expect((await b.store.inbox.insert(again())).map(({ kind }) => kind)).toEqual(["duplicate", "stored"]);
    },
  );
});

const configOf = (a: TestCell, b: TestCell): string =>
  services.configFile({
    ...ordersTo({ url: "http://127.0.0.1:9" }),
    database: {
      ...databaseConfig(a.database),
      cells: [
        { name: "a", url: a.database.directJdbcUrl },
        { name: "b", url: b.database.directJdbcUrl },
      ],
    },
  });

describe("a mover whose lease has ended", () => {
  test("gives nothing up: another has opened its buckets, which take rows again", async () => {
    await using setup = await setUp();
    const { a, b, map } = setup;
    const bucket = bucketOf("k");
    const slow = watch(
      a,
      "leave",
      async () => {
        await endLease(a);
        await map.refresh();
        expect(
          (await a.store.inbox.insert([inBucket(inboxRow({ aggregateId: "k" }))])).map(({ kind }) => kind),
        ).toEqual(["stored"]);
      },
      "before",
    );
    expect(await setup.mover({ cells: [slow, b] }).move(toB(bucket), NEVER)).toMatchObject([
      {
        outcome: "failed",
        reason: expect.stringMatching(/^its lease ended before the move did, its cell went back, or/),
      },
    ]);
    expect([await states(a, bucket), await states(b, bucket)]).toEqual(["open 1", "arriving 2"]);
  });

  test("gives nothing up where the cell was restarted since the plan: it may have gone back to before a move", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const moved = await setup.mover({ serverOf: () => "an earlier one" }).move(toB(7), NEVER);
    expect(moved).toMatchObject([
      { outcome: "failed", reason: expect.stringMatching(/^the database of a or b was restarted during the move/) },
    ]);
    expect([await states(a, 7), await states(b, 7)]).toEqual(["open 1", ""]);
  });

  test("does not give up what another mover has closed since", async () => {
    await using setup = await setUp();
    const { a, b, map } = setup;
    const bucket = bucketOf("k");
    const token = newToken();
    const slow = watch(
      a,
      "leave",
      async () => {
        await endLease(a);
        await map.refresh();
        expect(await a.store.buckets.close([bucket], "b", { token, leaseMs: 60_000 })).toEqual([bucket]);
      },
      "before",
    );
    expect(await setup.mover({ cells: [slow, b] }).move(toB(bucket), NEVER)).toMatchObject([{ outcome: "failed" }]);
    expect([await states(a, bucket), await states(b, bucket)]).toEqual(["moving 1", "arriving 2"]);
    expect(await a.store.buckets.leave([bucket], token)).toEqual([{ bucket, epoch: 2 }]);
  });
});

/** A cell behind a proxy that can hang. */
async function hanging({ name, database }: TestCell) {
  const proxy = await startTcpProxy(database);
  const store: Store = postgresStore({ ...database, port: proxy.port });
  return {
    name,
    store,
    proxy,
    async [Symbol.asyncDispose]() {
      await proxy.close();
      await store.close();
    },
  };
}

describe("a cell that hangs", () => {
  test("in the middle of a move, the new one: the buckets are open in the old one again, within a moment", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await using far = await hanging(b);
    await a.store.inbox.insert([inBucket(inboxRow({ aggregateId: "k" }))]);
    await deliver(a);
    const bucket = bucketOf("k");
    // It has copied what there was, and a row came since.
    const near = watch(a, "close", async () => {
      far.proxy.setMode("held");
      await a.database.query(
        "INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, state) VALUES ('orders', 'late', 'k', '', 'processed')",
      );
    });
    const startedAt = performance.now();
    const moved = await setup.mover({ cells: [near, far], waitMs: 500 }).move(toB(bucket), NEVER);
    expect(moved).toMatchObject([{ outcome: "failed", reason: expect.stringContaining("timed out") }]);
    expect(performance.now() - startedAt).toBeLessThan(8000);
    expect([await states(a, bucket), await states(b, bucket)]).toEqual(["open 1", ""]);
  });

  test("in the middle of a move, the old one: its buckets are open again when it answers and the lease has ended", async () => {
    await using setup = await setUp();
    const { a, b, map } = setup;
    await using far = await hanging(a);
    const bucket = bucketOf("k");
    const holding = watch(far, "close", async () => far.proxy.setMode("held"));
    const startedAt = performance.now();
    const moved = await setup.mover({ cells: [holding, b], waitMs: 500 }).move(toB(bucket), NEVER);
    expect(moved).toMatchObject([{ outcome: "failed", reason: expect.stringContaining("timed out") }]);
    expect(performance.now() - startedAt).toBeLessThan(11_000);
    await map.refresh();
    expect(map.cellOf(bucket)).toEqual({ reason: `the bucket ${bucket} is moving from the cell a to b` });
    await endLease(a);
    await map.refresh();
    expect(map.cellOf(bucket)).toMatchObject({ cell: "a" });
    expect((await a.store.inbox.insert([inBucket(inboxRow({ aggregateId: "k" }))])).map(({ kind }) => kind)).toEqual([
      "stored",
    ]);
    far.proxy.setMode("cut");
  });

  test("is waited for once: then what was known of it counts, until it answers", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await setup.mover().move(toB(7), NEVER);
    await using far = await hanging(a);
    const { log, lines } = recordingLog();
    const map = new CellMap({ cells: [far, b], log, answerMs: 300 });
    await map.refresh();
    far.proxy.setMode("held");
    // A bucket on its way there waits too.
    const lease = { token: newToken(), leaseMs: 60_000 };
    await b.store.buckets.close([7], "a", lease);
    const { server } = await a.store.buckets.all();
    await a.store.buckets.expect([{ bucket: 7, epoch: 3 }], { from: "b", token: lease.token, server });
    await b.store.buckets.leave([7], lease.token);
    await map.refresh();
    expect(map.cells()[0]?.trouble).toBe("it does not answer");
    const startedAt = performance.now();
    await map.refresh();
    expect(performance.now() - startedAt).toBeLessThan(250);
    expect([map.cellOf(7), map.cellOf(8)]).toMatchObject([{ reason: expect.anything() }, { cell: "a" }]);
    far.proxy.setMode("open");
    await eventually(async () => {
      await map.refresh();
      expect(map.cellOf(7)).toMatchObject({ cell: "a" });
    });
    expect(lines.map(({ message }) => message)).toEqual([
      "the cell is away: where its buckets are is as it was known last",
      "the cell answers again",
      "buckets have arrived",
    ]);
  });

  test("from the start, leaves open where its buckets are, and takes none by chance", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await using far = await hanging(a);
    far.proxy.setMode("held");
    const map = new CellMap({ cells: [far, b], log: silentLog, answerMs: 300 });
    await map.refresh();
    expect(map.cellOf(7)).toEqual({ reason: "where the bucket 7 is, is unknown: the cell a has not answered yet" });
    expect((await b.store.buckets.all()).rows).toEqual([]);
    far.proxy.setMode("cut");
  });
});
