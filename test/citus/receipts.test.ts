import { afterEach, beforeEach, expect, test } from "@jest/globals";
import type { Store } from "../../src/ports/store.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

const copy = databaseCopies();
let database: TestDatabase;
let store: Store;

beforeEach(async () => {
  database = await copy();
  store = postgresStore(database, DEFAULT_NAMES, new ManualClock());
  await store.schema.checkColumns();
});

afterEach(async () => {
  await store.close();
  await database.drop();
});

failOnLeaks();

test("receipts leave their rows to the relay", () => {
  expect(store.inbox.insertRelayed).toBeUndefined();
});
