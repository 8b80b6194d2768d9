import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, failed, relayRequest, sent } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

/** Longer than a position is kept. */
const POSITION_AGE_MS = 5001;
const INSERT = "INSERT INTO outbox (topic, key, payload) VALUES ('t', $1, $2)";
const RECEIVE = `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, created_at, scheduled_at)
  SELECT 'orders', $1, $2, $1, t.at, t.at FROM (SELECT now() - $3::interval AS at) t`;

const copy = databaseCopies();
let database: TestDatabase;
let clock: ManualClock;
let store: Store;
const connections: pg.Client[] = [];

beforeEach(async () => {
  database = await copy();
  clock = new ManualClock();
  store = postgresStore(database, DEFAULT_NAMES, clock);
});

afterEach(async () => {
  for (const connection of connections.splice(0)) await connection.end();
  await store.close();
  await database.drop();
});

failOnLeaks();

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  connections.push(client);
  await client.connect();
  return client;
}

const claim = async () => (await store.outbox.claim(claimRequest())).rows;
const payloads = async () => (await claim()).map((row) => row.payload);
const relay = async () => (await store.inbox.relay(relayRequest())).relayed;

/** Time for several looks that find nothing. */
async function letPass(): Promise<void> {
  for (let look = 0; look < 4; look += 1) {
    clock.advance(POSITION_AGE_MS);
    expect(await claim()).toEqual([]);
    expect(await relay()).toBe(0);
  }
}

/** A row of another key that waits for its retry: the lowest unfinished row that can be seen. */
async function failRowOfAnotherKey(): Promise<void> {
  await database.query(INSERT, ["x", "other"]);
  const rows = await claim();
  expect(rows.map((row) => row.payload)).toEqual(["other"]);
  await store.outbox.settle(rows.map((row) => failed(row)));
  await letPass();
}

describe("a row that is committed late", () => {
  test("is claimed, before the later row of its key", async () => {
    const application = await connect();
    await application.query("BEGIN");
    await application.query(INSERT, ["k", "1"]);
    await failRowOfAnotherKey();
    await application.query("COMMIT");
    await database.query(INSERT, ["k", "2"]);

    expect(await payloads()).toEqual([]);
    clock.advance(POSITION_AGE_MS);
    expect(await payloads()).toEqual(["1", "2"]);
  });

  test("is relayed, before the later message of its aggregate", async () => {
    const application = await connect();
    await application.query("BEGIN");
    await application.query(RECEIVE, ["1", "a", "10 seconds"]);
    await database.query(RECEIVE, ["other", "b", "9 seconds"]);
    expect(await relay()).toBe(1);
    await store.outbox.settle((await claim()).map(sent));
    await letPass();
    await application.query("COMMIT");
    await database.query(RECEIVE, ["2", "a", "8 seconds"]);

    clock.advance(POSITION_AGE_MS);
    expect(await relay()).toBe(2);
    expect(await payloads()).toEqual(["1", "2"]);
  });
});
