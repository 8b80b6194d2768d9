import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { retentionStatements } from "../../src/adapters/stores/postgres/finishedSql.ts";
import { quoteNames } from "../../src/adapters/stores/sql/names.ts";
import type { RetentionPolicy, RetentionRange } from "../../src/ports/finishedRows.ts";
import type { Store } from "../../src/ports/store.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";

failOnLeaks();

const OLDER_THAN_A_MINUTE: RetentionPolicy = { table: "outbox", kind: "AGE", maxAgeMs: 60_000 };
const INBOX_OLDER_THAN_A_MINUTE: RetentionPolicy = { table: "inbox", kind: "AGE", maxAgeMs: 60_000 };

interface Setup extends AsyncDisposable {
  readonly database: TestDatabase;
  readonly store: Store;
  /** A connection of the test's own, for transactions that stay open. */
  readonly client: pg.Client;
}

async function setUp(names = DEFAULT_NAMES, prepare: (database: TestDatabase) => Promise<unknown> = async () => {}) {
  const database = await createDatabase();
  await prepare(database);
  const store = postgresStore(database, names);
  const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await client.connect();
  const setup: Setup = {
    database,
    store,
    client,
    async [Symbol.asyncDispose]() {
      await client.end();
      await store.close();
      await database.drop();
    },
  };
  return setup;
}

/** Sent outbox rows and processed inbox rows that finished an hour ago, one a millisecond, in no order on the disk. */
async function fill(database: TestDatabase, count: number): Promise<void> {
  const finishedAt = "now() - interval '1 hour' + n * interval '1 millisecond'";
  await database.query(
    `INSERT INTO outbox (topic, payload, state, updated_at)
     SELECT 't', n::text, 'sent', ${finishedAt} FROM generate_series(1, $1::int) n ORDER BY md5(n::text)`,
    [count],
  );
  await database.query(
    `INSERT INTO inbox (source, idempotency_key, payload, state, created_at)
     SELECT 's', n::text, n::text, 'processed', ${finishedAt} FROM generate_series(1, $1::int) n ORDER BY md5(n::text)`,
    [count],
  );
}

async function onlyRange(store: Store, policy: RetentionPolicy): Promise<RetentionRange> {
  const [range, ...others] = await store.retention.plan(policy);
  if (range === undefined || others.length > 0) throw new Error("expected one range");
  return range;
}

describe("retention on PostgreSQL", () => {
  test("leaves out rows that another transaction holds, without waiting, and takes them in the next sweep", async () => {
    await using setup = await setUp();
    const { database, store, client } = setup;
    await store.schema.migrate();
    await fill(database, 5);
    await client.query("BEGIN");
    await client.query("UPDATE outbox SET last_error = 'held' WHERE payload IN ('2', '3')");
    await client.query("SELECT id FROM inbox WHERE payload = '5' FOR NO KEY UPDATE");

    const outbox = await store.retention.deleteBatch(await onlyRange(store, OLDER_THAN_A_MINUTE), 100);
    const inbox = await store.retention.deleteBatch(await onlyRange(store, INBOX_OLDER_THAN_A_MINUTE), 100);

    expect(outbox.deleted).toBe(3);
    expect(inbox).toEqual({ deleted: 4, rest: null, refused: 0 });
    expect(await database.query("SELECT payload FROM outbox ORDER BY payload")).toEqual(
      ["2", "3"].map((payload) => ({ payload })),
    );
    await client.query("ROLLBACK");
    expect(await store.retention.deleteBatch(await onlyRange(store, OLDER_THAN_A_MINUTE), 100)).toEqual({
      deleted: 2,
      rest: null,
      refused: 0,
    });
  });

  test("tells rows a microsecond apart, whatever date style and time zone the server has", async () => {
    await using setup = await setUp(DEFAULT_NAMES, async ({ name, query }) => {
      await query(`ALTER DATABASE "${name}" SET datestyle = 'SQL, DMY'`);
      await query(`ALTER DATABASE "${name}" SET timezone = 'Asia/Kolkata'`);
    });
    const { database, store } = setup;
    await store.schema.migrate();
    await database.query(
      `INSERT INTO outbox (topic, payload, state, updated_at)
       SELECT 't', n::text, 'sent', '2024-02-01T23:59:59.999990Z'::timestamptz + n * interval '1 microsecond'
       FROM generate_series(1, 20) n ORDER BY n DESC`,
    );

    let range: RetentionRange | null = await onlyRange(store, { table: "outbox", kind: "COUNT", maxCount: 14 });
    for (let batch = 1; range !== null; batch += 1) {
      expect([batch, await database.query("SELECT min(payload::int) AS oldest FROM outbox")]).toEqual([
        batch,
        [{ oldest: batch }],
      ]);
      range = (await store.retention.deleteBatch(range, 1)).rest;
    }

    expect(await database.query("SELECT count(*)::int AS kept, min(payload::int) AS oldest FROM outbox")).toEqual([
      { kept: 14, oldest: 7 },
    ]);
  });

  test("a batch at the end of a sweep reads no deleted row, also while an old snapshot keeps them", async () => {
    expect.assertions(2);
    await using setup = await setUp();
    const { database, store, client } = setup;
    await store.schema.migrate();
    await fill(database, 6000);
    await database.query("VACUUM ANALYZE");
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await client.query("SELECT count(*) FROM outbox");

    for (const [policy, statement] of [
      [OLDER_THAN_A_MINUTE, SQL.batches.sent.page],
      [INBOX_OLDER_THAN_A_MINUTE, SQL.batches.inbox.page],
    ] as const) {
      let range: RetentionRange | null = await onlyRange(store, policy);
      for (let batch = 1; range !== null; batch += 1) {
        // A block a row, unless the visibility map spares it, and some of the index; the deleted rows before are 5,800.
        if (batch === 59) expect(await blocksRead(database, statement.text, range)).toBeLessThan(200);
        range = (await store.retention.deleteBatch(range, 100)).rest;
      }
    }
    await client.query("ROLLBACK");
  });
});

const SQL = retentionStatements(quoteNames(DEFAULT_NAMES, (name) => `"${name}"`));

/** How many blocks a batch of 100 rows touches; it is rolled back. */
async function blocksRead(database: TestDatabase, text: string, range: RetentionRange): Promise<number> {
  const from = range.from ?? ["-infinity", range.table === "outbox" ? "0" : "00000000-0000-0000-0000-000000000000"];
  const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await client.connect();
  try {
    await client.query("BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off");
    const explained = await client.query<{ "QUERY PLAN": readonly [{ readonly Plan: Record<string, number> }] }>(
      `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
      [...from, ...range.until, 100],
    );
    await client.query("ROLLBACK");
    const plan = explained.rows[0]?.["QUERY PLAN"][0].Plan ?? {};
    return Number(plan["Shared Hit Blocks"]) + Number(plan["Shared Read Blocks"]);
  } finally {
    await client.end();
  }
}
