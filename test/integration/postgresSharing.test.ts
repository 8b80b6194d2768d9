import { describe, expect, test } from "@jest/globals";
import type { Config } from "../../src/config/types.ts";
import type { Store } from "../../src/ports/store.ts";
import { openStores } from "../../src/setup/stores.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { assertNoConnections, failOnLeaks } from "../support/leaks.ts";
import { silentLog } from "../support/recorders.ts";
import { load } from "../unit/config/support.ts";

failOnLeaks();

const CELLS = ["a", "b"];

/** A configuration of two cells, schemas of a database. @param more further cells */
function configOf({ jdbcUrl, user, password }: TestDatabase, more: readonly object[] = []): Config {
  const cells = [...CELLS.map((name) => ({ name, schema: name })), ...more];
  const database = { url: jdbcUrl, username: user, password, cells };
  return load(JSON.stringify({ database })).config;
}

/** Stores of the cells in one process, and for each how often it was woken. The last store is that of `database.url`. */
async function open(database: TestDatabase, sharesWatch: boolean) {
  const config = configOf(database);
  const { control, stores } = await openStores(config, config.database.cells, silentLog);
  const wakes = CELLS.map(() => 0);
  for (const [n, { store }] of stores.entries()) {
    await store.schema.migrate();
    await store.onOutboxWake(() => {
      wakes[n] = (wakes[n] ?? 0) + 1;
    }, sharesWatch);
  }
  const all = [...stores.map(({ store }) => store), control] as [Store, Store, Store];
  return { stores: all, wakes };
}

const listeners = (database: TestDatabase) =>
  database.query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'",
  );

const locks = async (database: TestDatabase) =>
  (
    await database.query(
      `SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    )
  ).length;

describe("the stores of one database in one process", () => {
  test("have one listening connection, each its own channel, and again after it was lost", async () => {
    await using database = await createDatabase();
    for (const name of CELLS) await database.query(`CREATE SCHEMA ${name}`);
    const { stores, wakes } = await open(database, false);
    const announced = async (n: 0 | 1) => {
      const before = [...wakes];
      stores[n].announceOutbox();
      await eventually(() => expect(wakes[n]).toBeGreaterThan(before[n] ?? 0));
      expect(wakes[1 - n]).toBe(before[1 - n]);
    };
    const [session, ...more] = await listeners(database);
    expect(more).toEqual([]);
    await announced(0);
    await announced(1);

    const before = [...wakes];
    await database.query("SELECT pg_terminate_backend($1)", [session?.pid]);
    // Each looks once when it listens again.
    await eventually(() => expect(wakes).toEqual(before.map((count) => count + 1)));
    expect(await listeners(database)).toHaveLength(1);
    await stores[0].close();
    await announced(1);
    await expect(stores[0].ping()).rejects.toThrow("closed");
    await stores[1].close();
    await stores[2].close();
    await assertNoConnections(database);
  });

  test("hold their locks in it, and free only their own", async () => {
    await using database = await createDatabase();
    for (const name of CELLS) await database.query(`CREATE SCHEMA ${name}`);
    const here = await open(database, true);
    await eventually(async () => expect(await locks(database)).toBe(CELLS.length));
    const there = await open(database, true);
    await eventually(() => expect(there.stores.map((store) => store.isOutboxWatched())).toEqual([true, true, false]));

    await here.stores[0].leaveOutboxWatch();

    expect(await locks(database)).toBe(1);
    const glances = await Promise.all(there.stores.slice(0, 2).map((store) => store.glanceAtOutbox(500)));
    expect(glances).toMatchObject([{ isWatched: false }, { isWatched: true }]);
    for (const store of [...here.stores, ...there.stores]) await store.close();
  });

  test("share their connections, but with no store of another database", async () => {
    await using database = await createDatabase();
    const config = configOf(database, [{ name: "c", url: "jdbc:postgresql://127.0.0.1:1/other" }]);
    const { control, stores } = await openStores(config, config.database.cells, silentLog);
    const [a, b, c] = stores.map(({ store }) => store.connections);
    expect([a, b]).toEqual([control.connections, control.connections]);
    expect(c).not.toBe(a);
    for (const store of [control, ...stores.map((each) => each.store)]) await store.close();
  });
});
