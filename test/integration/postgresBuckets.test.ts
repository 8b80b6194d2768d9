import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { StoreError } from "../../src/model/errors.ts";
import type { ClaimToken, InsertResult, NewInboxRow } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, silentLog } from "../support/recorders.ts";

failOnLeaks();
const openMigrated = databaseCopies();

const lease = (leaseMs = 60_000) => ({ token: randomUUID() as ClaimToken, leaseMs });
const at = (...buckets: readonly number[]) => buckets.map((bucket) => ({ bucket, epoch: 1 }));
const SCHEDULE = { delayMs: 60_000, publishedAt: null, notBefore: null };

/** Stores on one database, closed at the end with it. */
async function setUp({ stores: count = 1, names = DEFAULT_NAMES } = {}) {
  const database = await openMigrated();
  const stores = Array.from({ length: count }, () => postgresStore(database, names, new ManualClock(), silentLog));
  for (const store of stores) await store.schema.checkColumns();
  const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await client.connect();
  return {
    database,
    stores,
    store: stores[0] as Store,
    /** Another session. */
    client,
    async [Symbol.asyncDispose]() {
      await client.end();
      for (const store of stores) await store.close();
      await database.drop();
    },
  };
}

const codeOf = (error: unknown) => (error instanceof StoreError ? error.code : error);
const outcome = (receipt: Promise<readonly InsertResult[]>) =>
  receipt.then((outcomes) => outcomes.map(({ kind }) => kind).join(), codeOf);

/** Sessions of the store that wait for a lock. */
const waiting = async (database: TestDatabase, count: number) =>
  await eventually(async () => {
    const [row] = await database.query<{ n: number }>(
      "SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'svc' AND wait_event_type = 'Lock'",
    );
    expect(row?.n).toBe(count);
  });

/** The ways in which a store takes rows. */
type Way = (store: Store, rows: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>;
const WAYS: readonly Way[] = [
  (store, rows) => store.inbox.insert(rows),
  (store, rows) => store.inbox.insert(rows.map((row, n) => ({ ...row, source: `source-${n}` }))),
  (store, rows) => store.inbox.insert(rows.map((row) => ({ ...row, schedule: SCHEDULE }))),
  (store, rows) => store.inbox.insertAllOrNone(rows),
  // The second one is a duplicate: the others are stored one by one.
  (store, rows) => store.inbox.insert([...rows, ...rows.map((row) => ({ ...row, id: randomUUID() as typeof row.id }))]),
  (store, rows) => store.inbox.insert(rows, { request: claimRequest(), onClaimed: () => {} }),
];
const TOPICS = relayRequest({ topics: { orders: ["orders.", ""] } });

describe("a receipt into buckets", () => {
  test("no row of a bucket is stored after it was closed, whatever runs at the same time", async () => {
    await using setup = await setUp({ stores: 4 });
    const { database, stores } = setup;
    const closer = postgresStore(database);
    const buckets = [0, 1, 2, 3, 4, 5];
    await closer.buckets.open(at(...buckets));
    let isOver = false;
    const ends = new Map<string, number>();
    const receive = async (store: Store, seed: number): Promise<void> => {
      for (let n = seed; !isOver; n += 1) {
        if (n % 3 === 0) await store.inbox.relay(TOPICS).catch(() => {});
        const of = [n % buckets.length, (n * 7 + seed) % buckets.length, (n * 5 + 1) % buckets.length];
        const rows = of.map((bucket) => inboxRow({ bucket, aggregateId: `bucket-${bucket}` }));
        const end = await outcome((WAYS[n % WAYS.length] as Way)(store, rows));
        ends.set(String(end), (ends.get(String(end)) ?? 0) + 1);
      }
    };
    const receiving = stores.flatMap((store, n) => [receive(store, n), receive(store, n + 17)]);
    const stored = async () =>
      await database.query(
        "SELECT aggregate_id, count(*)::int AS n FROM inbox WHERE aggregate_id = ANY ($1) GROUP BY 1 ORDER BY 1",
        [closed.map((bucket) => `bucket-${bucket}`)],
      );
    let closed: readonly number[] = [];
    try {
      for (let round = 0; round < 25; round += 1) {
        const holder = lease();
        const wanted = [round % buckets.length, (round + 2) % buckets.length];
        closed = await closer.buckets.close(wanted, "b", holder);
        expect(closed.toSorted()).toEqual(wanted.toSorted());
        const before = await stored();
        const refusals = ends.get("elsewhere") ?? 0;
        // Receipts go on meanwhile: some are refused, others stored.
        await eventually(() => (ends.get("elsewhere") ?? 0) > refusals + 5);
        expect(await stored()).toEqual(before);
        await closer.buckets.reopen(closed, holder.token);
      }
    } finally {
      isOver = true;
      await Promise.all(receiving);
      await closer.close();
    }
    // Nothing but a refusal comes of it.
    expect(
      [...ends.keys()].filter((end) => !/^(elsewhere|(stored|duplicate)(,(stored|duplicate))*)$/.test(end)),
    ).toEqual([]);
    expect(ends.get("stored,stored,stored")).toBeGreaterThan(0);
  });

  test.each(WAYS.map((way, n) => [n, way] as const))(
    "a receipt that waits for a close sees it (way %i)",
    async (_, way) => {
      await using setup = await setUp();
      const { database, store, client } = setup;
      await store.buckets.open(at(1, 2, 3));
      await store.inbox.relay(TOPICS);
      await client.query("BEGIN");
      await client.query("LOCK TABLE outbox_bucket IN EXCLUSIVE MODE");
      await client.query("UPDATE outbox_bucket SET state = 'moving' WHERE bucket = 2");
      const receipt = outcome(way(store, [inboxRow({ bucket: 1 }), inboxRow({ bucket: 2 })]));
      await waiting(database, 1);
      await client.query("COMMIT");
      expect(await receipt).toBe("elsewhere");
      expect(await database.query("SELECT FROM inbox")).toEqual([]);
    },
  );

  test("a close waits for a receipt that is held up, for a second, and then closes nothing", async () => {
    await using setup = await setUp();
    const { database, store, client } = setup;
    await store.buckets.open(at(1, 2));
    await client.query("BEGIN");
    await client.query("INSERT INTO inbox (source, idempotency_key, payload) VALUES ('orders', 'held', '')");
    const receipt = outcome(store.inbox.insert([inboxRow({ bucket: 1, idempotencyKey: "held" })]));
    await waiting(database, 1);
    const close = store.buckets.close([1, 2], "b", lease());
    await waiting(database, 2);
    // One that comes now waits for the close, not for ever.
    const later = outcome(store.inbox.insert([inboxRow({ bucket: 2 })]));
    expect(await close.catch(codeOf)).toBe("contention");
    expect(await later).toBe("stored");
    expect(await store.buckets.awaitReceipts()).toBe(false);
    const again = store.buckets.close([1], "b", lease());
    await waiting(database, 2);
    await client.query("ROLLBACK");
    expect([await receipt, await again]).toEqual(["stored", [1]]);
    expect(await store.buckets.awaitReceipts()).toBe(true);
    expect(await outcome(store.inbox.insert([inboxRow({ bucket: 1 })]))).toBe("elsewhere");
  });
});

test("close goes on beside a dump, which has every table open, and receipts write no row of the buckets", async () => {
  await using setup = await setUp();
  const { database, store, client } = setup;
  await store.buckets.open(at(1));
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
  await client.query("LOCK TABLE outbox_bucket IN ACCESS SHARE MODE");
  await store.inbox.insert([inboxRow({ bucket: 1 })]);
  expect(await database.query("SELECT xmax::text FROM outbox_bucket")).toEqual([{ xmax: "0" }]);
  expect(await store.buckets.close([1], "b", lease())).toEqual([1]);
  await client.query("ROLLBACK");
});

test("what a trigger raises is never taken for a bucket that is elsewhere", async () => {
  await using setup = await setUp();
  const { database, store } = setup;
  await store.buckets.open(at(1));
  await database.query(
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       IF NEW.event_type = 'bad' THEN PERFORM width_bucket(1, 0, 1, 0); END IF; RETURN NEW; END $$`,
  );
  await database.query("CREATE TRIGGER refuse BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION refuse()");
  const outcomes = await store.inbox.insert([inboxRow({ bucket: 1, eventType: "bad" }), inboxRow({ bucket: 1 })]);
  expect(outcomes.map(({ kind }) => kind)).toEqual(["refused", "stored"]);
});

test("without the table everything else works, and cells are told which statement makes it", async () => {
  await using setup = await setUp({
    names: { ...DEFAULT_NAMES, operations: { ...DEFAULT_NAMES.operations, bucket: "Cells_bucket" } },
  });
  const { database, store } = setup;
  expect(await outcome(store.inbox.insert([inboxRow()]))).toBe("stored");
  expect(await outcome(store.inbox.insert([inboxRow({ bucket: 1 })]))).toBe("schema");
  const failure = await store.buckets.all().catch((error: unknown) => error);
  expect(codeOf(failure)).toBe("schema");
  const [, remedy = ""] = (failure as StoreError).message.split("\n");
  expect(remedy).toContain('CREATE TABLE "Cells_bucket"');
  await database.query(remedy);
  await store.buckets.open(at(1));
  expect(await outcome(store.inbox.insert([inboxRow({ bucket: 1 })]))).toBe("stored");
});

test("a refusal is no reason to leave later rows to the relay", async () => {
  await using setup = await setUp();
  const { store } = setup;
  await store.buckets.open(at(1, 2));
  await store.buckets.close([2], "b", lease());
  await store.inbox.relay(TOPICS);
  expect(await outcome(store.inbox.insert([inboxRow({ bucket: 2 })]))).toBe("elsewhere");
  expect(store.inbox.insertsInTurn).toBe(true);
  expect(await store.inbox.insert([inboxRow({ bucket: 1 })])).toEqual([{ kind: "stored", relayed: "pending" }]);
});

test("an owner's columns of other types are read and copied as they are, whatever style times have", async () => {
  await using from = await ownersTables("SQL, DMY");
  await using to = await ownersTables("ISO, MDY");
  const keys = Array.from({ length: 5 }, (_, n) => String(n + 8));
  await from.store.inbox.insert(keys.map((key) => inboxRow({ bucket: 1, aggregateId: key, payload: '{"n": 1}' })));
  await from.store.inbox.relay(TOPICS);
  const waiting: string[] = [];
  const finished: NewInboxRow["id"][] = [];
  for (let after: string | undefined; ; ) {
    const { rows, next } = await from.store.buckets.unfinished(after, 2);
    waiting.push(...rows.map(({ key, received }) => `${key} ${received?.aggregateId}`));
    if (next === undefined) break;
    after = next;
  }
  for (let position: string | undefined; ; ) {
    const { rows, next } = await from.store.buckets.finished(position, 2);
    finished.push(...rows.map(({ id }) => id));
    if (next === undefined) break;
    position = next;
  }
  // In the order of numbers.
  expect(waiting).toEqual(keys.map((key) => `${key} ${key}`));
  expect(finished).toHaveLength(5);
  expect(await to.store.buckets.copy(await from.store.buckets.read(finished))).toEqual({
    stored: 5,
    refused: new Map(),
  });
  const all = "SELECT * FROM inbox ORDER BY id";
  expect(await to.database.query(all)).toEqual(await from.database.query(all));
  expect((await to.store.buckets.finished(undefined, 10)).rows.map(({ id }) => id)).toEqual(finished);
});

/** A store on tables with columns of types that an owner may choose. */
async function ownersTables(style: string) {
  const setup = await setUp();
  const { database, store, stores } = setup;
  await database.query(`ALTER DATABASE ${pg.escapeIdentifier(database.name)} SET datestyle = '${style}'`);
  await database.query(`ALTER DATABASE ${pg.escapeIdentifier(database.name)} SET timezone = 'Asia/Kathmandu'`);
  const types = [
    "source TYPE varchar(100)",
    "idempotency_key TYPE varchar(255)",
    "payload TYPE jsonb USING payload::jsonb",
  ];
  const times = ["created_at TYPE timestamp", "scheduled_at TYPE timestamp"];
  const columns = [...types, "headers DROP DEFAULT", "headers TYPE text", ...times];
  await database.query(
    `ALTER TABLE inbox DROP COLUMN expires_at, ${columns.map((column) => `ALTER ${column}`).join(", ")}`,
  );
  await database.query("ALTER TABLE outbox ALTER key TYPE bigint USING key::bigint");
  await store.close();
  const own = postgresStore(database, DEFAULT_NAMES, new ManualClock(), silentLog);
  stores.push(own);
  await own.schema.checkColumns();
  await own.buckets.open(at(1));
  return { ...setup, store: own };
}
