import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, failed, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

failOnLeaks();

const MARK_AGE_MS = 1001;
/** The relay's, while nothing waits for it. */
const IDLE_MARK_AGE_MS = 5001;
const INSERT = "INSERT INTO outbox (topic, key, payload) VALUES ('t', $1, $2)";
const INSERT_RECEIVED = `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, created_at)
  VALUES ('orders', $1, 'a', $1, now() - $2::interval)`;

describe("low-water marks", () => {
  let database: TestDatabase;
  let clock: ManualClock;
  let store: Store;
  const connections: pg.Client[] = [];

  beforeEach(async () => {
    database = await createDatabase();
    clock = new ManualClock();
    store = postgresStore(database, DEFAULT_NAMES, clock);
    await store.schema.migrate();
  });

  afterEach(async () => {
    for (const connection of connections.splice(0)) await connection.end();
    await store.close();
    await database.drop();
  });

  /** A transaction on a connection of its own that the database has numbered. */
  async function beginTransaction(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    connections.push(client);
    await client.connect();
    await client.query("BEGIN");
    await client.query("SELECT pg_current_xact_id()");
    return client;
  }

  const claimed = async (limit?: number) => {
    const { rows } = await store.outbox.claim(claimRequest(limit === undefined ? {} : { limit }));
    return rows;
  };
  const payloads = async () => (await claimed()).map((row) => row.payload);

  /** Time for three marks, of which each finds nothing that is free. */
  async function letMarksSettle(): Promise<void> {
    for (let look = 0; look < 3; look += 1) {
      clock.advance(IDLE_MARK_AGE_MS);
      expect(await claimed()).toEqual([]);
      expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 0 });
    }
  }

  test("rows of one key that one transaction inserts around another key's row go out in their order", async () => {
    const application = await beginTransaction();
    await application.query(INSERT, ["k", "1"]);
    await database.query(INSERT, ["x", "2"]);
    const rows = await claimed();
    expect(rows.map((row) => row.payload)).toEqual(["2"]);
    await store.outbox.settle(rows.map((row) => failed(row)));
    // The lowest unfinished row that can be seen is that of the key x, however often one looks.
    await letMarksSettle();
    await application.query(INSERT, ["k", "3"]);
    await application.query("COMMIT");

    expect(await payloads()).toEqual([]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["1", "3"]);
  });

  test("a row of the newest transaction that runs is not overtaken, although its sequence lies below one that is committed", async () => {
    const older = await beginTransaction();
    const newest = await beginTransaction();
    await newest.query(INSERT, ["k", "1"]);
    await older.query(INSERT, ["x", "2"]);
    await older.query("COMMIT");
    const rows = await claimed();
    expect(rows.map((row) => row.payload)).toEqual(["2"]);
    await store.outbox.settle(rows.map((row) => failed(row)));
    await letMarksSettle();
    await newest.query("COMMIT");
    await database.query(INSERT, ["k", "3"]);

    expect(await payloads()).toEqual([]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["1", "3"]);
  });

  test("a sequence that starts anew, as after a restore, is followed", async () => {
    const insert = (count: number) =>
      database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', n::text FROM generate_series(1, $1) n",
        [count],
      );
    await insert(100);
    for (let pass = 0; pass < 3; pass += 1) {
      await store.outbox.settle((await claimed(30)).map(sent));
      clock.advance(MARK_AGE_MS);
    }
    await database.query("TRUNCATE outbox RESTART IDENTITY");
    await insert(3);
    clock.advance(MARK_AGE_MS);

    expect(await payloads()).toEqual(["1", "2", "3"]);
  });

  test("messages of one aggregate are relayed in their order although the first was received long before its commit", async () => {
    const slow = await beginTransaction();
    await slow.query(INSERT_RECEIVED, ["first", "1 minute"]);
    await database.query(INSERT_RECEIVED, ["another", "0 seconds"]);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    await store.outbox.settle((await claimed()).map(sent));
    // The marks pass by what cannot be seen yet.
    await letMarksSettle();
    await slow.query("COMMIT");
    await database.query(INSERT_RECEIVED, ["second", "0 seconds"]);

    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 2 });
    const relayed = await database.query("SELECT payload FROM outbox WHERE state = 'pending' ORDER BY sequence");
    expect(relayed.map((row) => row.payload)).toEqual(["first", "second"]);
  });

  test("a message that is set back to pending by hand is relayed, however old it is", async () => {
    await database.query(INSERT_RECEIVED, ["again", "1 day"]);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    await store.outbox.settle((await claimed()).map(sent));
    await letMarksSettle();
    await database.query("DELETE FROM outbox");
    await database.query("UPDATE inbox SET state = 'pending'");
    clock.advance(IDLE_MARK_AGE_MS);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    expect(await database.query("SELECT payload FROM outbox")).toEqual([{ payload: "again" }]);
  });
});
