import { afterAll, beforeAll, beforeEach, expect, test } from "@jest/globals";
import pg from "pg";
import { addParkedCommands } from "../../src/cli/parked.ts";
import { addReplayCommand } from "../../src/cli/replay.ts";
import { type MessageId, PARKED_UNTIL } from "../../src/model/rows.ts";
import type { Changed } from "../../src/ports/finishedRows.ts";
import type { Store } from "../../src/ports/store.ts";
import { runCommand } from "../support/commands.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, migratedDatabase, withStoreOn } from "../support/postgresHarness.ts";
import { databaseConfig, ordersTo, useServices } from "../support/service.ts";

/** Changes of outbox rows on request, beside triggers that refuse a row and sessions that lock one. */

const services = useServices("block");
failOnLeaks("block");

let database: TestDatabase;
beforeAll(async () => {
  database = await migratedDatabase();
  await database.query(
    `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       IF OLD.topic = 'null' THEN RETURN NULL; END IF;
       IF OLD.topic = 'old' THEN RETURN OLD; END IF;
       IF OLD.topic = 'raise' THEN RAISE EXCEPTION 'hands off'; END IF;
       RETURN NEW;
     END $$`,
  );
  await database.query("CREATE TRIGGER hold BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION hold()");
});
afterAll(() => database.drop());
beforeEach(() => database.query("TRUNCATE outbox, outbox_history, outbox_audit RESTART IDENTITY"));

const PARKED = `5, 'pending', '${PARKED_UNTIL}'`;
const WAITING = "5, 'pending', now() + interval '1 hour'";
const CHANGES: Record<string, { readonly as: string; run(store: Store, ids: readonly MessageId[]): Promise<Changed> }> =
  {
    replay: {
      as: "5, 'dead', now()",
      run: async ({ replay }, ids) => await replay.move(await replay.begin(), ids, "alice"),
    },
    retry: { as: PARKED, run: ({ parked }, ids) => parked.retry(ids, "alice") },
    discard: { as: PARKED, run: ({ parked }, ids) => parked.discard(ids, "alice", "no") },
    "retry of rows that wait": { as: WAITING, run: ({ parked }, ids) => parked.retry(ids, "alice") },
  };

async function insert(as: string, ...topics: readonly string[]): Promise<readonly MessageId[]> {
  const rows = await database.query(
    `INSERT INTO outbox (topic, payload, attempt, state, scheduled_at) SELECT t, '1', ${as} FROM unnest($1::text[]) t RETURNING id`,
    [topics],
  );
  return rows.map(({ id }) => id as MessageId);
}
const noted = async () => (await database.query("SELECT outbox_id AS id FROM outbox_history")).map(({ id }) => id);

test.each(Object.keys(CHANGES))(
  "a %s leaves refused and dropped rows, says why, and notes the others",
  async (name) => {
    const { as, run } = CHANGES[name] as (typeof CHANGES)[string];
    const ids = await insert(as, "a", "null", "raise", "old", "b");
    await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      expect(await run(store, ids)).toEqual({ changed: 2, refusal: expect.stringContaining("hands off") });
    });
    expect((await noted()).toSorted()).toEqual([ids[0], ids[4]].toSorted());
  },
);

test.each(["replay", "retry"])(
  "a %s changes nothing while another session locks a row, and all behind it",
  async (name) => {
    const { as, run } = CHANGES[name] as (typeof CHANGES)[string];
    const ids = await insert(as, "a", "b");
    const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await other.connect();
    try {
      await withStoreOn(database, DEFAULT_NAMES, async (store) => {
        await store.schema.checkColumns();
        await other.query("BEGIN; SELECT FROM outbox WHERE topic = 'b' FOR UPDATE");
        await expect(run(store, ids)).rejects.toMatchObject({ code: "contention" });
        expect(await noted()).toEqual([]);
        await other.query("ROLLBACK");
        expect(await run(store, ids)).toEqual({ changed: 2 });
      });
    } finally {
      await other.end();
    }
  },
);

test("a command says why rows were left, and fails if it changed none", async () => {
  const file = services.configFile(ordersTo({ url: "http://127.0.0.1:9" }, { database: databaseConfig(database) }));
  await insert(PARKED, "a", "raise");
  const retry = () => runCommand(addParkedCommands, ["parked", "retry", "--all", "--config", file]);
  expect((await retry()).stdout).toMatch(/^1 row is due again; others are unchanged: parked.retry: hands off/);
  expect(String((await retry()).error)).toMatch(/0 rows are due again; others are unchanged: .*hands off/);
  await insert("5, 'dead', now()", "b", "raise");
  const replay = () => runCommand(addReplayCommand, ["replay", "--state", "dead", "--config", file]);
  expect((await replay()).stdout).toMatch(/^1 row moved to pending; others are unchanged: .*hands off/m);
});
