import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { pullStatements } from "../../src/adapters/stores/postgres/pullSql.ts";
import { quoteNames } from "../../src/adapters/stores/sql/names.ts";
import { INBOX_COLUMNS } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claim, ids, pullRequest, receive } from "../conformance/store/pullSupport.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";

failOnLeaks();

/** A store on tables of the test's own, which `prepare` may change before it looks at them. */
async function open(prepare: (database: TestDatabase) => Promise<unknown> = async () => {}, names = DEFAULT_NAMES) {
  const database = await createDatabase();
  const migrating = postgresStore(database);
  await migrating.schema.migrate();
  await migrating.close();
  await prepare(database);
  const store = postgresStore(database, names);
  await store.schema.checkColumns();
  return {
    database,
    store,
    async [Symbol.asyncDispose]() {
      await store.close();
      await database.drop();
    },
  };
}

const A = { aggregateId: "a" };
const claimed = async (store: Store, overrides = {}) => ids((await store.pull.claim(pullRequest(overrides))).rows);

describe("rows that another transaction looks at", () => {
  test("are skipped, and hold back their aggregate until it is decided what becomes of them", async () => {
    await using inbox = await open();
    const { store, database } = inbox;
    const [first, second, free] = ids(await receive(inbox, [A, A, {}]));
    const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await other.connect();
    try {
      await other.query("BEGIN");
      await other.query("SELECT id FROM inbox WHERE id = $1 FOR NO KEY UPDATE", [first]);

      expect(await claimed(store)).toEqual([free]);

      await other.query("ROLLBACK");
    } finally {
      await other.end();
    }
    expect(await claimed(store)).toEqual([first, second]);
  });
});

test("the lease of a claim that waited for a lock is whole", async () => {
  await using inbox = await open();
  const { store, database } = inbox;
  await receive(inbox, [A]);
  const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await other.connect();
  try {
    await other.query("BEGIN");
    await other.query("LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE");
    const waiting = claimed(store);
    await eventually(async () => {
      const waits = await database.query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
      );
      expect(waits).toHaveLength(1);
    });
    const [{ at }] = (await other.query("SELECT clock_timestamp()::text AS at")).rows;
    await other.query("COMMIT");
    expect(await waiting).toHaveLength(1);
    expect(
      await database.query(
        "SELECT lease_expires_at >= $1::timestamptz + interval '30 seconds' AS is_whole FROM inbox",
        [at],
      ),
    ).toEqual([{ is_whole: true }]);
  } finally {
    await other.end();
  }
});

describe("rows that were scheduled ahead", () => {
  const ahead = (database: TestDatabase, id: string | undefined) =>
    database.query("UPDATE inbox SET scheduled_at = now() + interval '1 hour' WHERE id = $1", [id]);
  const due = (database: TestDatabase) => database.query("UPDATE inbox SET scheduled_at = now()");

  test("hold nobody back, and take their place when they are due", async () => {
    await using inbox = await open();
    const { store, database } = inbox;
    const [scheduled, second, third] = ids(await receive(inbox, [A, A, A]));
    await ahead(database, scheduled);
    expect(await claimed(store, { limit: 1 })).toEqual([second]);
    await database.query("UPDATE inbox SET state = 'processed' WHERE id = $1", [second]);

    await due(database);

    expect(await claimed(store)).toEqual([scheduled, third]);
  });

  test("wait, once they are due, for the one client that works on their aggregate", async () => {
    await using inbox = await open();
    const { store, database } = inbox;
    const [scheduled, second] = ids(await receive(inbox, [A, A]));
    await ahead(database, scheduled);
    const held = await claim(inbox);
    await due(database);

    expect(await claimed(store)).toEqual([]);
    expect(await store.pull.extend(held, 30_000)).toEqual([second]);
    expect(await store.pull.acknowledge(held)).toEqual([second]);
    expect(await claimed(store)).toEqual([scheduled]);
  });
});

describe("an owner's table", () => {
  test("with other names and column types serves pull clients too", async () => {
    const names = {
      ...DEFAULT_NAMES,
      inboxTable: "messages",
      inbox: { ...INBOX_COLUMNS, claimToken: "Token", state: "status" },
    } as typeof DEFAULT_NAMES;
    await using inbox = await open(async (database) => {
      await database.query("ALTER TABLE inbox RENAME TO messages");
      await database.query('ALTER TABLE messages RENAME COLUMN claim_token TO "Token"');
      await database.query("ALTER TABLE messages RENAME COLUMN state TO status");
      await database.query("ALTER TABLE messages ALTER COLUMN payload TYPE jsonb USING payload::jsonb");
      await database.query("ALTER TABLE messages ALTER COLUMN headers DROP DEFAULT, ALTER COLUMN headers TYPE text");
    }, names);
    const { store } = inbox;
    await receive(inbox, [{ payload: '{"a": 1}', headers: { "X-Tag": "t" } }]);
    const request = pullRequest();

    const { rows } = await store.pull.claim(request);

    expect(rows).toMatchObject([{ payload: '{"a": 1}', headers: { "X-Tag": "t" } }]);
    const held = { source: "orders", token: request.token, ids: null };
    expect(await store.pull.extend(held, 1000)).toEqual(ids(rows));
    expect((await store.pull.reject(held, { delayMs: 0, reason: "x", maxAttempts: 5 })).retried).toEqual(ids(rows));
    expect(await store.pull.acknowledge(await claim(inbox))).toEqual(ids(rows));
  });

  test("whose headers column holds what is no object gives the message without headers", async () => {
    await using inbox = await open();
    await receive(inbox, [{}]);
    await inbox.database.query(`UPDATE inbox SET headers = '["x"]'`);

    expect((await inbox.store.pull.claim(pullRequest())).rows).toMatchObject([{ headers: {} }]);
  });
});

test("with old statistics every statement finds its rows by the indexes made for it", async () => {
  await using inbox = await open();
  const { database } = inbox;
  await database.query("ANALYZE inbox");
  await database.query(
    `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, consumption, state)
     SELECT 'orders', n::text, (n / 4)::text, '{}', CASE WHEN n % 3 = 0 THEN 'push' ELSE 'pull' END,
       CASE WHEN n % 2 = 0 THEN 'processed' ELSE 'pending' END
     FROM generate_series(1, 20000) n`,
  );
  const sql = pullStatements(
    quoteNames(DEFAULT_NAMES, (name) => `"${name}"`),
    "text",
  );
  const { token } = await claim(inbox);
  const looked = await explained(database, [
    [sql.claim.text, ["orders", 100, 1_000_000, token, 1000, 5]],
    [sql.acknowledge.text, ["orders", token, null]],
    [sql.extend.text, ["orders", token, null, 1000]],
    [sql.reject.text, ["orders", token, null, 5, 1000, null]],
  ]);

  const own = [
    "inbox_pkey",
    "inbox_pull_aggregate_idx",
    "inbox_pull_claim_idx",
    "inbox_pull_delay_idx",
    "inbox_pull_idx",
  ];
  expect([...new Set(looked.map(({ index }) => index))].sort()).toEqual(own);
  // A claim of 100 rows looks at few more than these and at the 100 rows claimed before.
  expect(Math.max(...looked.map(({ rows }) => rows))).toBeLessThan(500);
});

interface Scan {
  readonly index: string;
  /** Rows read, those filtered away included. */
  readonly rows: number;
}

/** The scans of the table that the statements did, under the settings and the generic plans with which the service runs them. */
async function explained(
  database: TestDatabase,
  statements: readonly (readonly [text: string, values: readonly unknown[]])[],
): Promise<readonly Scan[]> {
  const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await client.connect();
  try {
    await client.query(
      "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan",
    );
    const scans: Scan[] = [];
    for (const [text, values] of statements) {
      await client.query("BEGIN");
      const { rows } = await client.query(`EXPLAIN (ANALYZE, FORMAT JSON) ${text}`, [...values]);
      await client.query("ROLLBACK");
      collectScans(rows[0]["QUERY PLAN"][0].Plan, scans);
    }
    return scans;
  } finally {
    await client.end();
  }
}

interface PlanNode {
  readonly "Relation Name"?: string;
  readonly "Node Type": string;
  readonly "Index Name"?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly Plans?: readonly PlanNode[];
}

function collectScans(node: PlanNode, scans: Scan[]): void {
  if (node["Relation Name"] === "inbox" && node["Node Type"].endsWith("Scan")) {
    const each = node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0);
    scans.push({ index: node["Index Name"] ?? node["Node Type"], rows: each * node["Actual Loops"] });
  }
  for (const child of node.Plans ?? []) collectScans(child, scans);
}
