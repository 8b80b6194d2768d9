import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { InterruptedError, NotInListError, Replay } from "../../src/core/operations/replay.ts";
import type { ReplayRequest } from "../../src/core/operations/replayRequest.ts";
import { deliveryId } from "../../src/model/deliveries.ts";
import { type MessageId, PARKED_UNTIL } from "../../src/model/rows.ts";
import type { RetentionPolicy, RetentionRange } from "../../src/ports/finishedRows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimSome, queuesOf, released } from "../conformance/store/harness.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { insertExpanded } from "../support/lists.ts";
import {
  DEFAULT_NAMES,
  databaseCopies,
  migratedDatabase,
  postgresStore,
  withStoreOn,
} from "../support/postgresHarness.ts";
import { recordingAudit, silentLog } from "../support/recorders.ts";

/** Replay, retention and parked rows, of messages that go to several destinations. */

const copy = databaseCopies();
let database: TestDatabase;
let store: Store;
beforeAll(async () => {
  database = await migratedDatabase();
  store = postgresStore(database);
  await store.schema.checkColumns();
});
afterAll(async () => {
  await store.close();
  await database.drop();
});
failOnLeaks("block");
beforeEach(() => database.query("TRUNCATE outbox, outbox_history RESTART IDENTITY"));

const NEVER = new AbortController().signal;
const HOUR = 3_600_000;

/** Replays in batches of two. Messages of `orders` go to three destinations. */
const replayOf = (replayed: Store["replay"] = store.replay, batchSize = 2) =>
  new Replay({
    inbox: {} as never,
    store: replayed,
    destinationOf: ({ topic, destination }) => destination ?? (topic === "bills" ? "billing" : undefined),
    listOf: (topic) => (topic === "orders" ? ["billing", "audit", "fraud"] : undefined),
    onMoved: () => {},
    redact: (text) => text,
    audit: recordingAudit().audit,
    log: silentLog,
    batchSize,
    wait: async () => {},
  });
const run = (request: ReplayRequest) => replayOf().run(request, "alice", NEVER);

/** Destination and state of each row, in the order of sequence; of a message row its list. */
async function rows(): Promise<readonly string[]> {
  const found = await database.query<{ row: string }>(
    "SELECT concat_ws(' ', coalesce(expanded_to, destination, topic), state) AS row FROM outbox ORDER BY sequence",
  );
  return found.map(({ row }) => row);
}

const plainRow = (state: string) =>
  database.query(
    `INSERT INTO outbox (topic, payload, state, updated_at) VALUES ('bills', '1', $1, now() - interval '1 hour')`,
    [state],
  );

describe("a replay", () => {
  test("moves and counts deliveries, each to its destination, and no message rows", async () => {
    await insertExpanded(database, { deliveries: { billing: "sent", audit: "dead" } });
    await plainRow("dead");
    await insertExpanded(database, { deliveries: { billing: "pending", audit: "sent" } });

    expect(await replayOf().preview({ topics: ["orders", "bills"] }, 9, NEVER)).toMatchObject({ count: 4 });
    expect(await run({ destination: "audit", topic: "orders" })).toEqual({ moved: 2 });

    const list = '["billing","audit"] sent';
    expect(await rows()).toEqual([
      list,
      "billing sent",
      "audit pending",
      "bills dead",
      list,
      "billing pending",
      "audit pending",
    ]);
    expect(await run({ state: "sent" })).toEqual({ moved: 1 });
    expect(
      await database.query("SELECT DISTINCT attempt, routes, payload FROM outbox WHERE message_sequence > 0"),
    ).toEqual([{ attempt: 0, routes: null, payload: null }]);
  });

  test("of a message replays its finished deliveries, of a delivery that one", async () => {
    const first = await insertExpanded(database, { deliveries: { billing: "sent", audit: "dead", fraud: "pending" } });
    const second = await insertExpanded(database, { deliveries: { billing: "sent", audit: "sent" } });
    const ids = [first, deliveryId(second, "audit")];

    expect((await replayOf().preview({ ids }, 9, NEVER)).sample.map(({ id }) => id)).toEqual([
      deliveryId(first, "billing"),
      deliveryId(first, "audit"),
      deliveryId(second, "audit"),
    ]);
    expect(await run({ ids, state: "dead" })).toEqual({ moved: 1 });
    expect(await run({ ids, toDestination: "standby" })).toEqual({ moved: 2 });

    expect((await rows()).slice(1, 4)).toEqual(["standby pending", "audit pending", "fraud pending"]);
    expect((await rows()).slice(5)).toEqual(["billing sent", "standby pending"]);
  });
});

describe("an addition", () => {
  test("makes the missing deliveries, due now and in the order of the messages, none twice", async () => {
    const messages: MessageId[] = [];
    for (const key of ["a", "b", "c", "d", "e"])
      messages.push(await insertExpanded(database, { key, deliveries: { billing: "sent" } }));
    await insertExpanded(database, { deliveries: { billing: "sent", fraud: null } });
    await insertExpanded(database, { deliveries: {} });
    await plainRow("sent");
    await database.query("UPDATE outbox SET expires_at = now() WHERE key = 'a'");

    expect(await replayOf().preview({ topic: "orders", add: "fraud" }, 9, NEVER)).toMatchObject({
      count: 6,
      groups: [{ destination: "fraud", topic: "orders", count: 6 }],
    });
    expect(await run({ topic: "orders", add: "fraud" })).toEqual({ moved: 6 });
    expect(await run({ topic: "orders", add: "fraud" })).toEqual({ moved: 0 });

    const made = await database.query(
      `SELECT d.id, d.key, d.topic, d.payload, d.headers, d.state, d.attempt, d.max_attempts, d.expires_at, d.routes,
         d.created_at = m.created_at AND d.scheduled_at <> d.created_at AND d.scheduled_at <= now() AS is_due
       FROM outbox d JOIN outbox m ON m.sequence = d.message_sequence WHERE d.destination = 'fraud' ORDER BY d.sequence LIMIT 5`,
    );
    const facts = { topic: "orders", payload: null, headers: null, state: "pending", attempt: 0, max_attempts: 7 };
    const expected = messages.map((id, n) => ({ id: deliveryId(id, "fraud"), key: "abcde"[n], ...facts }));
    expect(made).toEqual(expected.map((row) => ({ ...row, expires_at: null, routes: null, is_due: true })));
    const lists = await database.query("SELECT expanded_to::jsonb AS list FROM outbox WHERE expanded_to IS NOT NULL");
    expect(lists.map(({ list }) => list)).toEqual([...Array(6).fill(["billing", "fraud"]), ["fraud"]]);
  });

  test("takes named messages, also beside another addition", async () => {
    const [first, second, third] = [
      await insertExpanded(database, { deliveries: { billing: "sent" } }),
      await insertExpanded(database, { deliveries: { billing: "sent" } }),
      await insertExpanded(database, { deliveries: { billing: "sent" } }),
    ] as const;
    expect(await run({ ids: [first, deliveryId(second, "billing")], add: "audit" })).toEqual({ moved: 1 });

    const request = { topic: "orders", add: "fraud" };
    expect(await run({ ids: [second], add: "fraud" })).toEqual({ moved: 1 });
    const all = await Promise.all([run(request), run({ ...request, add: "audit" })]);
    expect(all).toEqual([{ moved: 2 }, { moved: 2 }]);

    for (const id of [first, second, third]) {
      const own = ["billing", "audit", "fraud"].map((name) => deliveryId(id, name));
      expect(await database.query("SELECT id FROM outbox WHERE id = ANY ($1::uuid[])", [own])).toHaveLength(3);
      const [{ list } = {}] = await database.query("SELECT expanded_to::jsonb AS list FROM outbox WHERE id = $1", [id]);
      expect((list as string[]).toSorted()).toEqual(["audit", "billing", "fraud"]);
    }
  });

  test("names the topic whose list has no such destination", async () => {
    await insertExpanded(database, { deliveries: { billing: "sent" } });
    await insertExpanded(database, { topic: "former", deliveries: { billing: "sent" } });
    const request = { createdAfter: "2020-01-01T00:00:00.000000Z", add: "fraud" };
    await expect(replayOf().preview(request, 1, NEVER)).rejects.toThrow(NotInListError);
    const added = run(request);
    await expect(added).rejects.toThrow(InterruptedError);
    await expect(added).rejects.toMatchObject({
      done: { moved: 1 },
      cause: { message: expect.stringMatching(/^the topic "former" has no route with a list .* names "fraud"/) },
    });
  });
});

const byAge = (maxAgeMs: number): RetentionPolicy => ({ table: "outbox", kind: "AGE", maxAgeMs });

/** One sweep. @returns the number of rows deleted */
async function sweep(policy: RetentionPolicy, limit = 100, swept = store): Promise<number> {
  let sum = 0;
  for (const range of await swept.retention.plan(policy)) {
    for (let left: RetentionRange | null = range; left !== null; ) {
      const { deleted, rest } = await swept.retention.deleteBatch(left, limit);
      sum += deleted;
      left = rest;
    }
  }
  return sum;
}

describe("retention", () => {
  test("by age deletes deliveries, and a message behind its last one", async () => {
    await insertExpanded(database, { deliveries: { billing: "sent", audit: "sent" } });
    const held = await insertExpanded(database, { deliveries: { billing: "sent", audit: "pending" } });
    await insertExpanded(database, { deliveries: { billing: "dead" } });
    await insertExpanded(database, { finishedMsAgo: 1000, deliveries: { billing: "sent" } });
    await insertExpanded(database, { deliveries: {} });

    // The last delivery of the third message dies behind the sent rows.
    expect(await sweep(byAge(HOUR / 2))).toBe(6);
    expect(await rows()).toEqual([
      '["billing","audit"] sent',
      "audit pending",
      '["billing"] sent',
      '["billing"] sent',
      "billing sent",
    ]);
    expect(await sweep(byAge(HOUR / 2))).toBe(1);
    await database.query("UPDATE outbox SET state = 'dead' WHERE id = $1", [deliveryId(held, "audit")]);
    expect(await sweep(byAge(HOUR / 2))).toBe(1);
    expect(await sweep(byAge(HOUR / 2))).toBe(1);
    expect(await rows()).toEqual(['["billing"] sent', "billing sent"]);
  });

  test("by count keeps the newest rows, and older messages that have a delivery", async () => {
    await insertExpanded(database, { deliveries: { billing: "sent" } });
    await insertExpanded(database, { finishedMsAgo: 2000, deliveries: { billing: "pending" } });
    await insertExpanded(database, { finishedMsAgo: 1000, deliveries: { billing: "sent" } });
    expect(await sweep({ table: "outbox", kind: "COUNT", maxCount: 1 })).toBe(2);
    expect(await rows()).toEqual(['["billing"] sent', "billing pending", '["billing"] sent', "billing sent"]);
  });
});

test("tables without the columns are replayed and swept as before", async () => {
  await using own = { database: await copy(), [Symbol.asyncDispose]: () => own.database.drop() };
  const { query } = own.database;
  await query("ALTER TABLE outbox DROP COLUMN message_sequence CASCADE, DROP COLUMN expanded_to");
  await query(
    "INSERT INTO outbox (topic, payload, state, updated_at) SELECT 'bills', '1', 'sent', now() - interval '1 hour' FROM generate_series(1, 3)",
  );
  await withStoreOn(own.database, DEFAULT_NAMES, async (swept) => {
    await swept.schema.checkColumns();
    const [{ id } = {}] = await query("SELECT id FROM outbox LIMIT 1");
    const replay = replayOf(swept.replay);
    expect(await replay.run({ ids: [id as MessageId] }, "alice", NEVER)).toEqual({ moved: 1 });
    expect(await replay.run({ topic: "bills", add: "fraud" }, "alice", NEVER)).toEqual({ moved: 0 });
    expect(await swept.replay.add([id as MessageId], "fraud")).toEqual({ changed: 0 });
    expect(await sweep(byAge(1000), 100, swept)).toBe(2);
  });
});

test("a parked delivery blocks its key at its destination until it is discarded, and an added one has the place of its message", async () => {
  const queues = queuesOf(["billing", "audit"]);
  const claimed = async () => {
    const { rows } = await claimSome(store, { queues });
    await store.outbox.settle(rows.map(released));
    return rows.map(({ id, key, payload }) => `${id} ${key} ${payload}`);
  };
  const line = (message: MessageId, destination: string, key: string) =>
    `${deliveryId(message, destination)} ${key} {"n":1}`;
  const first = await insertExpanded(database, { key: "k", deliveries: { billing: "pending" } });
  const second = await insertExpanded(database, { key: "k", deliveries: { billing: "pending", audit: "pending" } });
  const other = await insertExpanded(database, { key: "l", deliveries: { billing: "pending" } });
  const parked = deliveryId(first, "billing");
  await database.query("UPDATE outbox SET attempt = 5, scheduled_at = $2 WHERE id = $1", [parked, PARKED_UNTIL]);

  expect(await claimed()).toEqual([line(second, "audit", "k"), line(other, "billing", "l")]);
  expect(await store.replay.add([first], "audit")).toEqual({ changed: 1 });
  const others = [line(first, "audit", "k"), line(second, "audit", "k"), line(other, "billing", "l")];
  expect(await claimed()).toEqual(others);
  expect(await store.parked.discard([parked], "alice", "no")).toEqual({ changed: 1 });
  expect((await claimed()).toSorted()).toEqual([...others, line(second, "billing", "k")].toSorted());
});

test("parked deliveries are listed, retried and discarded like other rows", async () => {
  const message = await insertExpanded(database, {
    key: "k",
    deliveries: { billing: "pending", audit: "pending", fraud: "pending" },
  });
  const idOf = (destination: string) => deliveryId(message, destination);
  const parked = [idOf("billing"), idOf("audit")];
  await database.query("UPDATE outbox SET attempt = 5, scheduled_at = $2 WHERE id = ANY ($1::uuid[])", [
    parked,
    PARKED_UNTIL,
  ]);

  expect(await store.parked.list({ key: "k" }, null, 9)).toMatchObject([
    { id: idOf("billing"), topic: "orders", key: "k", destination: "billing", isPinned: true },
    { id: idOf("audit"), topic: "orders", key: "k", destination: "audit", isPinned: true },
  ]);
  expect(await store.parked.retry([idOf("billing"), message], "alice")).toEqual({ changed: 1 });
  expect(await store.parked.discard([idOf("audit"), message], "alice", "no")).toEqual({ changed: 1 });
  expect(await rows()).toEqual(['["billing","audit","fraud"] sent', "billing pending", "audit dead", "fraud pending"]);
});
