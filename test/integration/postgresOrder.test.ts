import { expect, test } from "@jest/globals";
import pg from "pg";
import { claimRequest, failed, sent } from "../conformance/store/harness.ts";
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
