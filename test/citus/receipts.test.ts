import { afterEach, beforeEach, expect, test } from "@jest/globals";
import pg from "pg";
import { BUNDLED_TYPES } from "../../src/adapters/stores/postgres/columns.ts";
import { tableStatements } from "../../src/adapters/stores/postgres/statements.ts";
import { quoteNames } from "../../src/adapters/stores/sql/names.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingLog } from "../support/recorders.ts";

const copy = databaseCopies();
const { log, lines } = recordingLog();
let database: TestDatabase;
let store: Store;

beforeEach(async () => {
  database = await copy();
  store = postgresStore(database, DEFAULT_NAMES, new ManualClock(), log);
  await store.schema.checkColumns();
});

afterEach(async () => {
  await store.close();
  await database.drop();
});

failOnLeaks();

test("receipts leave their rows to the relay, without trying", async () => {
  await store.inbox.relay(relayRequest());
  const claim = { request: claimRequest(), onClaimed: () => {} };
  expect(store.inbox.insertsInTurn).toBe(false);
  expect(await store.inbox.insert([inboxRow()])).toEqual([{ kind: "stored" }]);
  expect(await store.inbox.insert([inboxRow()], claim)).toEqual([{ kind: "stored" }]);
  expect(await database.query("SELECT state FROM inbox")).toEqual([{ state: "pending" }, { state: "pending" }]);
  expect(await database.query("SELECT FROM outbox")).toEqual([]);
  expect(lines.filter(({ message }) => /receipts/.test(message))).toEqual([]);
});

test("a pass of the relay waits for no receipt that relays", async () => {
  const names = quoteNames(DEFAULT_NAMES, (name) => `"${name}"`);
  const { first } = tableStatements(names, BUNDLED_TYPES, true).relayedReceipt.insertRelayed;
  const receipt = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await receipt.connect();
  try {
    await receipt.query("BEGIN");
    expect((await receipt.query(String(first))).rows).toEqual([{ set_config: "true" }]);
    await store.inbox.insert([inboxRow()]);
    let isOver = false;
    const pass = store.inbox.relay(relayRequest()).finally(() => {
      isOver = true;
    });
    let waits = 0;
    while (!isOver) {
      const waiting = await database.query(
        `SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
          WHERE l.locktype = 'advisory' AND NOT l.granted`,
      );
      waits += waiting.length;
    }
    expect(await pass).toMatchObject({ relayed: 1 });
    expect(waits).toBe(0);
  } finally {
    await receipt.end();
  }
});
