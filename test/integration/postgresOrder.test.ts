import { expect, test } from "@jest/globals";
import pg from "pg";
import { claimRequest, failed, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

failOnLeaks();

const MARK_AGE_MS = 1001;

test("rows of one key that one transaction inserts around another key's row go out in their order", async () => {
  await using database = await createDatabase();
  const clock = new ManualClock();
  const store = postgresStore(database, DEFAULT_NAMES, clock);
  const application = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await application.connect();
  try {
    await store.schema.migrate();
    const insert = "INSERT INTO outbox (topic, key, payload) VALUES ('t', $1, $2)";
    await application.query("BEGIN");
    await application.query(insert, ["k", "1"]);
    await database.query(insert, ["x", "2"]);
    const { rows } = await store.outbox.claim(claimRequest());
    expect(rows.map((row) => row.payload)).toEqual(["2"]);
    await store.outbox.settle(rows.map((row) => failed(row)));

    // The lowest unfinished row that can be seen is that of the key x, however often one looks.
    for (let look = 0; look < 3; look += 1) {
      clock.advance(MARK_AGE_MS);
      expect((await store.outbox.claim(claimRequest())).rows).toEqual([]);
    }
    await application.query(insert, ["k", "3"]);
    await application.query("COMMIT");

    expect((await store.outbox.claim(claimRequest())).rows).toEqual([]);
    clock.advance(MARK_AGE_MS);
    const late = await store.outbox.claim(claimRequest());
    expect(late.rows.map((row) => row.payload)).toEqual(["1", "3"]);
  } finally {
    await application.end();
    await store.close();
  }
});

test("a row of the newest transaction that runs is not overtaken, although its sequence lies below one that is committed", async () => {
  await using database = await createDatabase();
  const clock = new ManualClock();
  const store = postgresStore(database, DEFAULT_NAMES, clock);
  const connect = async () => {
    const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await client.connect();
    await client.query("BEGIN");
    await client.query("SELECT pg_current_xact_id()");
    return client;
  };
  await store.schema.migrate();
  const older = await connect();
  const newest = await connect();
  try {
    const insert = "INSERT INTO outbox (topic, key, payload) VALUES ('t', $1, $2)";
    await newest.query(insert, ["k", "1"]);
    await older.query(insert, ["x", "2"]);
    await older.query("COMMIT");
    const { rows } = await store.outbox.claim(claimRequest());
    expect(rows.map((row) => row.payload)).toEqual(["2"]);
    await store.outbox.settle(rows.map((row) => failed(row)));
    for (let look = 0; look < 3; look += 1) {
      clock.advance(MARK_AGE_MS);
      expect((await store.outbox.claim(claimRequest())).rows).toEqual([]);
    }
    await newest.query("COMMIT");
    await database.query(insert, ["k", "3"]);

    expect((await store.outbox.claim(claimRequest())).rows).toEqual([]);
    clock.advance(MARK_AGE_MS);
    const late = await store.outbox.claim(claimRequest());
    expect(late.rows.map((row) => row.payload)).toEqual(["1", "3"]);
  } finally {
    await older.end();
    await newest.end();
    await store.close();
  }
});

test("a sequence that starts anew, as after a restore, is followed", async () => {
  await using database = await createDatabase();
  const clock = new ManualClock();
  const store = postgresStore(database, DEFAULT_NAMES, clock);
  try {
    await store.schema.migrate();
    const insert = (count: number) =>
      database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', n::text FROM generate_series(1, $1) n",
        [count],
      );
    await insert(100);
    for (let pass = 0; pass < 3; pass += 1) {
      const { rows } = await store.outbox.claim(claimRequest({ limit: 30 }));
      await store.outbox.settle(rows.map(sent));
      clock.advance(MARK_AGE_MS);
    }
    await database.query("TRUNCATE outbox RESTART IDENTITY");
    await insert(3);
    clock.advance(MARK_AGE_MS);

    const { rows } = await store.outbox.claim(claimRequest());
    expect(rows.map((row) => row.payload)).toEqual(["1", "2", "3"]);
  } finally {
    await store.close();
  }
});

test("messages of one aggregate are relayed in their order although the first was received long before its commit", async () => {
  await using database = await createDatabase();
  const clock = new ManualClock();
  const store = postgresStore(database, DEFAULT_NAMES, clock);
  const slow = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await slow.connect();
  try {
    await store.schema.migrate();
    await slow.query("BEGIN");
    await slow.query(INSERT_RECEIVED, ["first", "1 minute"]);
    // The marks pass by what cannot be seen yet.
    for (let look = 0; look < 3; look += 1) {
      expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 0 });
      clock.advance(MARK_AGE_MS);
    }
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 0 });
    await slow.query("COMMIT");
    await database.query(INSERT_RECEIVED, ["second", "0 seconds"]);

    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 2 });
    const relayed = await database.query("SELECT payload FROM outbox ORDER BY sequence");
    expect(relayed.map((row) => row.payload)).toEqual(["first", "second"]);
  } finally {
    await slow.end();
    await store.close();
  }
});

test("a message that is set back to pending by hand is relayed, however old it is", async () => {
  await using database = await createDatabase();
  const clock = new ManualClock();
  const store = postgresStore(database, DEFAULT_NAMES, clock);
  try {
    await store.schema.migrate();
    await database.query(INSERT_RECEIVED, ["again", "1 day"]);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    for (let look = 0; look < 3; look += 1) {
      clock.advance(MARK_AGE_MS);
      expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 0 });
    }
    await database.query("DELETE FROM outbox");
    await database.query("UPDATE inbox SET state = 'pending'");
    clock.advance(MARK_AGE_MS);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    expect(await database.query("SELECT payload FROM outbox")).toEqual([{ payload: "again" }]);
  } finally {
    await store.close();
  }
});

const INSERT_RECEIVED = `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, created_at)
  VALUES ('orders', $1, 'a', $1, now() - $2::interval)`;
