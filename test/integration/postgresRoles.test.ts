import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { PostgresPool } from "../../src/adapters/stores/postgres/pool.ts";
import { ConfigError } from "../../src/model/errors.ts";
import { claimRequest, inboxRow, relayRequest } from "../conformance/store/harness.ts";
import { START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { createDatabase, onServer, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { describeWithPgbouncer } from "../support/describeWithPgbouncer.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { startPgbouncer } from "../support/pgbouncer.ts";
import { connectionTo, DEFAULT_NAMES, databaseCopies, postgresStore, withStoreOn } from "../support/postgresHarness.ts";
import { ManualClock, recordingLog, silentLog } from "../support/recorders.ts";
import { migrationsFrom, problemsOf, withStore } from "../support/schemaChecks.ts";

failOnLeaks();
const openMigrated = databaseCopies();

type Reachable = Parameters<typeof postgresStore>[0];

/** What the start of a process does with its tables. @returns the migrations applied, or why it stops; and its warnings */
async function start(database: Reachable) {
  const { log, lines } = recordingLog();
  const end = await withStore(postgresStore(database, DEFAULT_NAMES, new ManualClock(), log), async (store) => {
    try {
      const applied = await store.schema.migrate();
      await store.schema.checkColumns();
      return applied;
    } catch (error) {
      return problemsOf(error);
    }
  });
  return { end, warnings: lines.filter(({ level }) => level === "warn") };
}

const settingOf = async (database: TestDatabase, setting: string) =>
  await database.query(`ALTER DATABASE ${pg.escapeIdentifier(database.name)} SET ${setting}`);

describe("a schema that comes before that of the tables in the search path", () => {
  const ofUser = async (database: TestDatabase) =>
    await database.query(`CREATE SCHEMA ${pg.escapeIdentifier(database.user)}`);

  test("leaves the tables in use that are there, and gets no others", async () => {
    await using database = await openMigrated();
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.inbox.insert([inboxRow({ idempotencyKey: "before" })]));
    await ofUser(database);

    expect(await start(database)).toEqual({ end: [], warnings: [] });

    expect(await database.query("SELECT FROM pg_class WHERE relname = 'inbox'")).toHaveLength(1);
    await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      expect(await store.inbox.insert([inboxRow({ idempotencyKey: "before" })])).toEqual([{ kind: "duplicate" }]);
      await store.inbox.relay(relayRequest());
      expect((await store.outbox.claim(claimRequest())).rows).toHaveLength(1);
    });
  });

  test("gets the later migrations of those", async () => {
    await using database = await openMigrated();
    await database.query("DROP TABLE outbox_cell");
    await database.query("DELETE FROM svc_migrations WHERE version > 14");
    await ofUser(database);

    expect(await start(database)).toEqual({ end: migrationsFrom(15), warnings: [] });

    expect(await database.query("SELECT to_regclass('public.outbox_cell')::text AS made")).toEqual([
      { made: "outbox_cell" },
    ]);
  });
});

describe("a role without the right to create tables", () => {
  /** A login of its own that may do with the tables what the service does. */
  async function restricted(database: TestDatabase): Promise<Reachable & AsyncDisposable> {
    const user = `restricted_${database.name.slice(-12)}`;
    await database.query(`CREATE ROLE ${user} LOGIN PASSWORD 'restricted'`);
    await database.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    for (const { name } of await database.query<{ name: string }>(
      "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind = 'r' AND relname ~ '^(in|out)box'",
    )) {
      await database.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON ${name} TO ${user}`);
    }
    const { host, port, name } = database;
    return {
      ...{ host, port, name, user, password: "restricted" },
      [Symbol.asyncDispose]: async () => void (await database.query(`DROP OWNED BY ${user}; DROP ROLE ${user}`)),
    };
  }

  test("starts with nothing to migrate if it may read what is applied", async () => {
    await using database = await openMigrated();
    await using role = await restricted(database);

    expect((await start(role)).end).toMatch(
      /^database\.username: .*permission denied.*svc_migrations.*`svc migrate` as the owner.*database\.migrate: false/,
    );

    await database.query(`GRANT SELECT ON svc_migrations TO ${role.user}`);
    expect(await start(role)).toEqual({ end: [], warnings: [] });
  });

  test("gets an error that names who migrates when something is left to do", async () => {
    await using database = await openMigrated();
    await database.query("DELETE FROM svc_migrations WHERE version > 2");
    await using role = await restricted(database);
    await database.query(`GRANT SELECT ON svc_migrations TO ${role.user}`);

    expect((await start(role)).end).toMatch(
      /^database\.username: .*(permission denied|must be owner).*`svc migrate` as the owner.*database\.migrate: false/,
    );
  });
});

describe("time limits of the role", () => {
  const LIMITS = ["statement_timeout", "transaction_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];

  async function limit(database: TestDatabase): Promise<void> {
    for (const name of LIMITS) await settingOf(database, `${name} = '300ms'`);
  }

  /** Runs `body` in a transaction, which ends once the migration has waited for it far longer than the limits. */
  async function whileMigrationWaits(database: TestDatabase, sql: string): Promise<readonly string[]> {
    const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await other.connect();
    try {
      for (const name of LIMITS) await other.query(`SET ${name} = 0`);
      await other.query(`BEGIN; ${sql}`);
      return await withStoreOn(database, DEFAULT_NAMES, async (store) => {
        const migrating = store.schema.migrate();
        const waited = eventually(async () => {
          const rows = await database.query(
            `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
             AND clock_timestamp() - query_start > interval '1 second'`,
          );
          expect(rows).toHaveLength(1);
        });
        await Promise.race([waited, migrating]);
        await other.query("COMMIT");
        return await migrating;
      });
    } finally {
      await other.end();
    }
  }

  test("end no migration that waits for another process", async () => {
    await using database = await createDatabase();
    await limit(database);

    const applied = await whileMigrationWaits(
      database,
      "SELECT pg_advisory_xact_lock(hashtextextended('svc migrations', 0))",
    );

    expect(applied).toEqual(migrationsFrom(1));
  });

  test("end no migration of tables in use, and leave no index unfinished", async () => {
    await using database = await openMigrated();
    await database.query("DROP INDEX outbox_replay_idx");
    await database.query("DELETE FROM svc_migrations WHERE version > 2");
    await limit(database);

    const applied = await whileMigrationWaits(database, "INSERT INTO outbox (topic, payload) VALUES ('t', '1')");

    expect(applied).toEqual(migrationsFrom(3));
    expect(await database.query("SELECT FROM pg_index WHERE NOT indisvalid")).toEqual([]);
  });
});

describeWithPgbouncer("time limits of the role behind PgBouncer", () => {
  test(
    "stop a migration of tables in use before it begins, with what to do; without one the process starts",
    async () => {
      await using database = await openMigrated();
      await settingOf(database, "statement_timeout = '700ms'");
      await using pooler = await startPgbouncer(database);
      const pooled = { ...database, host: pooler.host, port: pooler.port };
      expect(await start(pooled)).toEqual({ end: [], warnings: [] });
      await database.query("DELETE FROM svc_migrations WHERE version > 14");

      expect((await start(pooled)).end).toMatch(
        /^database\.url: statement_timeout is 700 ms for this user.*`svc migrate` past the pooler/,
      );

      expect((await start(database)).end).toEqual(migrationsFrom(15));
    },
    START_TIMEOUT_MS,
  );
});

describe("settings of the role that the statements need otherwise", () => {
  test.each([
    ["array_nulls", "off"],
    ["enable_indexscan", "off"],
    ["default_transaction_read_only", "on"],
    ["default_transaction_isolation", "serializable"],
  ])(
    "%s = %s stops the start, with and without migrations, and the statement that it prints mends it",
    async (name, value) => {
      await using database = await openMigrated();
      await settingOf(database, `${name} = '${value}'`);

      const { end } = await start(database);
      expect(end).toMatch(new RegExp(`^database\\.username: ${name} is ${value} for this user`));
      await expect(withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.checkColumns())).rejects.toThrow(
        ConfigError,
      );

      const [remedy = ""] = /ALTER ROLE .*;/.exec(String(end)) ?? [];
      await onServer(remedy.replace("<user>", pg.escapeIdentifier(database.user)));
      expect(await start(database)).toEqual({ end: [], warnings: [] });
    },
  );

  test("read-only transactions are named as the reason at the only server, whichever way leads to it", async () => {
    await using database = await createDatabase();
    await database.query("CREATE TABLE things (n int)");
    await settingOf(database, "default_transaction_read_only = on");
    const { host, port } = database;
    // The server has no TLS, as another refuses connections without.
    const endpoints = [
      { host, port, tls: false as const },
      { host, port, tls: { rejectUnauthorized: false } },
    ];
    const insert = { name: "insert", text: "INSERT INTO things VALUES (1)" };
    const pool = new PostgresPool({ ...connectionTo(database), endpoints, poolSize: 2 }, silentLog);
    for (let tries = 0; tries < 3; tries += 1) {
      await expect(pool.run(insert)).rejects.toThrow(/read-only transaction/);
      expect(await pool.run({ name: "one", text: "SELECT 1 AS n" })).toEqual([{ n: 1 }]);
    }
    await pool.close();
    const primary = new PostgresPool(
      { ...connectionTo(database), endpoints, poolSize: 2, primaryOnly: true },
      silentLog,
    );
    await expect(primary.run(insert)).rejects.toThrow(/takes no writes/);
    await expect(primary.connections.dedicated()).rejects.toThrow(/takes no writes/);
    await primary.close();
  });
});
