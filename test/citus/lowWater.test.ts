import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { BUNDLED_TYPES } from "../../src/adapters/stores/postgres/columns.ts";
import { type MarkStatements, markBound, PostgresLowWater } from "../../src/adapters/stores/postgres/lowWater.ts";
import { type Statement, valuesInOrder } from "../../src/adapters/stores/postgres/statement.ts";
import { tableStatements } from "../../src/adapters/stores/postgres/statements.ts";
import { quoteNames } from "../../src/adapters/stores/sql/names.ts";
import type { Values } from "../../src/adapters/stores/sql/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, failed, relayRequest, sent } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

/** Longer than any mark is kept. */
const MARK_AGE_MS = 5001;
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

/** Time for several marks, of which each finds nothing that is free. */
async function letMarksSettle(): Promise<void> {
  for (let look = 0; look < 4; look += 1) {
    clock.advance(MARK_AGE_MS);
    expect(await claim()).toEqual([]);
    expect(await relay()).toBe(0);
  }
}

/** A row of another key that waits for its retry: the lowest unfinished one that can be seen. */
async function failRowOfAnotherKey(): Promise<void> {
  await database.query(INSERT, ["x", "other"]);
  const rows = await claim();
  expect(rows.map((row) => row.payload)).toEqual(["other"]);
  await store.outbox.settle(rows.map((row) => failed(row)));
  await letMarksSettle();
}

/**
 * Begins an insert that stays on the coordinator: the first of its rows has its position, and the node that holds the
 * table knows of none.
 *
 * @param insert of two rows `n`, the second of which waits for `waited`
 * @returns lets it go on, and waits for its commit
 */
async function insertSlowly(insert: (waited: string) => string): Promise<() => Promise<void>> {
  const [gate, writer] = [await connect(), await connect()];
  await gate.query("SELECT pg_advisory_lock(1)");
  const inserting = writer.query(insert("(SELECT '' FROM (SELECT pg_advisory_xact_lock(n)) AS w WHERE n = 1)"));
  await eventually(async () => {
    expect(await database.query("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")).toHaveLength(1);
  });
  return async () => {
    await gate.query("SELECT pg_advisory_unlock(1)");
    await inserting;
  };
}

describe("the marks", () => {
  const statements = tableStatements(
    quoteNames(DEFAULT_NAMES, (name) => `"${name}"`),
    BUNDLED_TYPES,
    true,
  );
  const run = (statement: Statement, values: Values = {}) =>
    database.query(statement.text, valuesInOrder(statement, values));
  const marksOf = (which: MarkStatements) =>
    new PostgresLowWater({ run, lostConnections: 0 }, which, new ManualClock());
  let lowWater: PostgresLowWater;
  beforeEach(() => {
    lowWater = marksOf(statements.outbox);
  });

  const readThrice = async (of = lowWater, values: Values = {}) => {
    for (let read = 0; read < 3; read += 1) await of.refreshIfDue(0, values);
    return of.marks;
  };

  async function insertFinished(): Promise<void> {
    await database.query("INSERT INTO outbox (topic, payload) SELECT 't', n FROM generate_series(1, 20) n");
    await database.query("UPDATE outbox SET state = 'sent' WHERE sequence <= 15");
  }

  test("come to be stable where nothing is open, and count on the node that holds the table", async () => {
    await insertFinished();
    // Transactions of other databases on the cluster hold it back too.
    await eventually(async () => expect(await readThrice()).toMatchObject({ newest: "16", stable: "16" }));

    const [row] = await database.query(`SELECT ${markBound("$1")} AS bound FROM (SELECT FROM outbox LIMIT 1) AS here`, [
      lowWater.bound(),
    ]);
    expect(Number(row?.bound)).toBe(16);
  });

  test("of the relay count in its passes, which Citus runs in parts", async () => {
    await database.query(RECEIVE, ["1", "a", "10 seconds"]);
    const sources = ["orders"];
    const marks = marksOf(statements.relay);
    expect(Number((await readThrice(marks, { sources })).newest)).toBeGreaterThan(0);

    const rules = JSON.stringify({ topics: { orders: ["orders.", ""] }, ownKeySources: [] });
    const [pass] = await run(statements.relay.relay, {
      ...{ limit: 10, sources, rules, maxAttempts: 5, droppedNames: [], droppedPrefixes: [] },
      lowWater: marks.boundOfParts(),
    });
    expect(pass).toMatchObject({ candidates: 1 });
  });

  test("pass no position that was given after the writers of the coordinator were read", async () => {
    await insertFinished();
    await database.query("UPDATE outbox SET state = 'sent'");
    let goOn = async () => {};
    const runLate = async (statement: Statement, values: Values = {}) => {
      if (statement === statements.outbox.mark && lowWater.marks.newest === "0" && hasRead) {
        goOn = await insertSlowly(
          (waited) => `INSERT INTO outbox (topic, payload)
            SELECT 't', coalesce(${waited}, '') FROM generate_series(0, 1) n ON CONFLICT DO NOTHING`,
        );
        await database.query(INSERT, ["x", "behind"]);
      }
      hasRead = true;
      return await run(statement, values);
    };
    let hasRead = false;
    lowWater = new PostgresLowWater({ run: runLate, lostConnections: 0 }, statements.outbox, new ManualClock());

    await lowWater.refreshIfDue(0);
    expect(lowWater.marks.newest).toBe("21");
    await goOn();
  });

  test.each(["INSERT INTO outbox (topic, payload) VALUES ('t', 'late')", "LOCK TABLE outbox IN ROW EXCLUSIVE MODE"])(
    "are not stable while another session's transaction is open behind %s",
    async (statement) => {
      const application = await connect();
      await application.query("BEGIN");
      await application.query(statement);
      await insertFinished();
      expect((await readThrice()).stable).toBe("0");

      await application.query("COMMIT");
      await eventually(async () => expect((await readThrice()).stable).not.toBe("0"));
    },
  );
});

describe("a row that is committed late, below the newest mark,", () => {
  test("is claimed, before the later row of its key", async () => {
    const application = await connect();
    await application.query("BEGIN");
    await application.query(INSERT, ["k", "1"]);
    await failRowOfAnotherKey();
    await application.query("COMMIT");
    await database.query(INSERT, ["k", "2"]);

    expect(await payloads()).toEqual([]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["1", "2"]);
  });

  test("is claimed before the later row of its key also where only the coordinator knew of it", async () => {
    const goOn = await insertSlowly(
      (waited) => `INSERT INTO outbox (topic, key, payload)
        SELECT 't', 'k' || n, n || coalesce(${waited}, '') FROM generate_series(0, 1) n ON CONFLICT DO NOTHING`,
    );
    await failRowOfAnotherKey();
    await goOn();
    await database.query(INSERT, ["k0", "2"]);

    // The row that waited took its position last.
    expect(await payloads()).toEqual(["1"]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["0", "2"]);
  });

  test("is relayed, before the later message of its aggregate", async () => {
    const application = await connect();
    await application.query("BEGIN");
    await application.query(RECEIVE, ["1", "a", "10 seconds"]);
    await database.query(RECEIVE, ["other", "b", "9 seconds"]);
    expect(await relay()).toBe(1);
    await store.outbox.settle((await claim()).map(sent));
    await letMarksSettle();
    await application.query("COMMIT");
    await database.query(RECEIVE, ["2", "a", "8 seconds"]);

    clock.advance(MARK_AGE_MS);
    expect(await relay()).toBe(2);
    expect(await payloads()).toEqual(["1", "2"]);
  });

  test("is relayed also where only the coordinator knew of it", async () => {
    const goOn = await insertSlowly(
      (waited) => `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, created_at, scheduled_at)
        SELECT 'orders', n, 'a', n || coalesce(${waited}, ''), t.at, t.at
        FROM generate_series(0, 1) n, (SELECT now() - interval '10 seconds' AS at) t ON CONFLICT DO NOTHING`,
    );
    await database.query(RECEIVE, ["other", "b", "9 seconds"]);
    expect(await relay()).toBe(1);
    await store.outbox.settle((await claim()).map(sent));
    await letMarksSettle();
    await goOn();
    await database.query(RECEIVE, ["2", "a", "8 seconds"]);

    clock.advance(MARK_AGE_MS);
    expect(await relay()).toBe(3);
    expect(await payloads()).toEqual(expect.arrayContaining(["0", "1", "2"]));
  });
});
