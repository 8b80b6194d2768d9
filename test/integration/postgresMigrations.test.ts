import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { onlineStatements } from "../../src/adapters/stores/postgres/migrations.ts";
import { migrationsDirectory } from "../../src/adapters/stores/sql/schema.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { claimed } from "../support/looseTables.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore, withStoreOn } from "../support/postgresHarness.ts";
import { recordingLog } from "../support/recorders.ts";
import { MIGRATIONS, migrationsFrom, problemsOf, withStore } from "../support/schemaChecks.ts";

failOnLeaks();
const openMigrated = databaseCopies();

/** Migrates while a transaction reads the outbox, which keeps the locks of `ALTER TABLE` away. */
async function migratedBesideReport(database: TestDatabase) {
  const report = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await report.connect();
  await report.query("BEGIN; LOCK TABLE outbox IN ACCESS SHARE MODE");
  const { log, lines } = recordingLog();
  const applied = await withStore(postgresStore(database, DEFAULT_NAMES, undefined, log), (store) =>
    store.schema.migrate(),
  );
  await report.end();
  return { applied, lines };
}

describe("migrations", () => {
  test("ten replicas that start at once apply each file once", async () => {
    await using database = await createDatabase();
    const stores = Array.from({ length: 10 }, () => postgresStore(database));

    const applied = await Promise.all(stores.map((store) => store.schema.migrate()));

    await Promise.all(stores.map((store) => store.close()));
    expect(applied.flat().toSorted()).toEqual(MIGRATIONS.map(({ version, name }) => `${version} ${name}`).toSorted());
    const history = await database.query(
      "SELECT version::int, name FROM svc_migrations WHERE version > 0 ORDER BY version",
    );
    expect(history).toEqual(MIGRATIONS);
  });

  test("a second start finds nothing to do", async () => {
    await using database = await openMigrated();

    expect(await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).toEqual([]);
  });

  test("a file that was changed after it was applied stops the migration and changes nothing", async () => {
    await using database = await openMigrated();
    await database.query("UPDATE svc_migrations SET md5 = 'other' WHERE version = 1");

    await expect(withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).rejects.toThrow(/MD5/i);
  });

  test("tables go into the schema that currentSchema names, which is made, and are used there", async () => {
    await using database = await createDatabase();
    const names = { ...DEFAULT_NAMES, schema: "Relay" };

    await withStoreOn(database, names, async (store) => {
      await store.schema.migrate();
      await store.schema.checkColumns();
      await store.inbox.insert([inboxRow()]);
    });

    expect(await database.query('SELECT count(*)::int AS n FROM "Relay".inbox')).toEqual([{ n: 1 }]);
    expect(await database.query("SELECT to_regclass('public.inbox') AS t")).toEqual([{ t: null }]);
  });

  test("a user who may not create the schema gets the statement that makes it", async () => {
    await using database = await createDatabase();
    const user = `svc_${database.name}`;
    await database.query(`CREATE ROLE ${user} LOGIN PASSWORD 'p'`);
    try {
      const migrate = () =>
        withStoreOn({ ...database, user, password: "p" }, { ...DEFAULT_NAMES, schema: "Relay" }, (store) =>
          store.schema.migrate().catch(problemsOf),
        );
      const create = `CREATE SCHEMA "Relay" AUTHORIZATION ${user};`;
      expect(await migrate()).toBe(
        `database.username: the schema "Relay" does not exist, and this user may not create it: let the owner of the database run one of\n      ${create}\n      GRANT CREATE ON DATABASE ${database.name} TO ${user};`,
      );
      await database.query(create);
      expect(await migrate()).toHaveLength(MIGRATIONS.length);
    } finally {
      await database.query(`DROP OWNED BY ${user} CASCADE; DROP ROLE ${user}`);
    }
  });
});

describe("migrations of tables in use", () => {
  /** Tables of the first release with rows in them. */
  async function oldTables(database: TestDatabase): Promise<void> {
    await database.query("DROP TABLE inbox, outbox");
    for (const file of ["001.do.inbox.sql", "002.do.outbox.sql"]) {
      await database.query(readFileSync(path.join(migrationsDirectory("postgresql"), file), "utf8"));
    }
    await database.query("DELETE FROM svc_migrations WHERE version > 2");
    await database.query(
      "INSERT INTO outbox (topic, payload, state) SELECT 't', '1', 'sent' FROM generate_series(1, 2000)",
    );
  }

  const waitingIndexes = (database: TestDatabase) =>
    database.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'`,
    );

  /** Runs `body` while a migration waits for a transaction that has written to the outbox, which `commit` ends. */
  async function whileMigrationWaits(
    database: TestDatabase,
    body: (migrating: Promise<readonly string[]>, commit: () => Promise<unknown>, store: Store) => Promise<void>,
  ): Promise<void> {
    const application = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await application.connect();
    try {
      await withStoreOn(database, DEFAULT_NAMES, async (store) => {
        await store.schema.checkColumns(["inbox", "outbox"]);
        await application.query("BEGIN");
        await application.query("INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', 'open')");
        const migrating = store.schema.migrate();
        migrating.catch(() => {});
        await eventually(async () => expect(await waitingIndexes(database)).toHaveLength(1));
        await body(migrating, () => application.query("COMMIT"), store);
      });
    } finally {
      await application.end();
    }
  }

  const invalid = (database: TestDatabase) =>
    database.query("SELECT indexrelid::regclass::text AS name FROM pg_index WHERE NOT indisvalid");
  const pending = migrationsFrom(3);

  test("hold up no writer, also while they wait for a transaction that has written before", async () => {
    await using database = await openMigrated();
    await oldTables(database);
    await whileMigrationWaits(database, async (migrating, commit, store) => {
      await database.query("SET lock_timeout = '10s'; INSERT INTO outbox (topic, key, payload) VALUES ('t', 'x', '2')");
      await store.inbox.insert([inboxRow({ aggregateId: "a" })]);
      expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
      const { rows } = await store.outbox.claim(claimRequest());
      expect(rows.map((row) => row.key)).toEqual(["x", "a"]);
      expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(2);
      await commit();
      expect(await migrating).toEqual(pending);
    });
    expect(await invalid(database)).toEqual([]);
    expect(await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).toEqual([]);
  });

  test("resume after a migration that was broken off, and leave no index unfinished", async () => {
    await using database = await openMigrated();
    await oldTables(database);
    await whileMigrationWaits(database, async (migrating) => {
      const [waiting] = await waitingIndexes(database);
      await database.query("SELECT pg_terminate_backend($1)", [waiting?.pid]);
      await expect(migrating).rejects.toThrow("migrate");
    });
    expect(await invalid(database)).toHaveLength(1);
    expect(await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).toEqual(pending);
    expect(await invalid(database)).toEqual([]);
  });

  test("leave a statement to the operator whose lock a long transaction keeps, and hold up no writer for it", async () => {
    await using database = await openMigrated();
    await database.query("ALTER TABLE outbox ALTER COLUMN headers SET NOT NULL");
    await database.query("DELETE FROM svc_migrations WHERE version > 5");
    const { applied, lines } = await migratedBesideReport(database);

    expect(applied).toEqual(pending.slice(3));
    const [line] = lines.filter(({ level }) => level === "warn");
    const statement = 'ALTER TABLE "public".outbox ALTER COLUMN headers DROP NOT NULL';
    expect(line?.fields).toEqual({ statement });
    await expect(
      database.query("INSERT INTO outbox (topic, payload, headers) VALUES ('a', '1', NULL)"),
    ).rejects.toThrow();
    await database.query(statement);
    await database.query("INSERT INTO outbox (topic, payload, headers) VALUES ('a', '1', NULL)");
  });

  test("rename the column for destinations of operators, also if a run breaks off behind that", async () => {
    await using database = await openMigrated();
    const undone = `DROP INDEX IF EXISTS outbox_destination_idx; ALTER TABLE outbox DROP COLUMN IF EXISTS routes; DELETE FROM svc_migrations WHERE version > 15`;
    await database.query(`${undone}; ALTER TABLE outbox RENAME COLUMN destination TO destination_override`);
    await database.query("INSERT INTO outbox (topic, payload, destination_override) VALUES ('t', '1', 'standby')");
    for (const rest of ["", undone]) {
      if (rest !== "") await database.query(rest);
      const migrate = (store: Store) => store.schema.migrate();
      expect(await withStoreOn(database, DEFAULT_NAMES, migrate)).toEqual(migrationsFrom(16));
      expect(await database.query("SELECT destination, routes FROM outbox")).toEqual([
        { destination: "standby", routes: null },
      ]);
    }
    expect(await database.query("SELECT to_regclass('outbox_destination_idx')::text AS name")).toEqual([
      { name: "outbox_destination_idx" },
    ]);
  });

  /** Takes back the migration of lists. */
  const WITHOUT_LISTS = `ALTER TABLE outbox DROP COLUMN message_sequence, DROP COLUMN expanded_to, ALTER COLUMN payload SET NOT NULL;
    CREATE INDEX IF NOT EXISTS outbox_key_idx ON outbox (key, sequence) WHERE state IN ('pending', 'processing') AND key IS NOT NULL;
    DELETE FROM svc_migrations WHERE version > 16`;

  test("make the columns and indexes of lists, wherever an earlier run has broken off", async () => {
    const file = path.join(migrationsDirectory("postgresql"), "017.do.lists.sql");
    const statements = onlineStatements(readFileSync(file, "utf8"), "public");
    await using database = await openMigrated();
    const shape = async () => [
      await database.query("SELECT indexdef FROM pg_indexes WHERE tablename = 'outbox' ORDER BY indexname"),
      await database.query(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'outbox_payload_check'",
      ),
    ];
    const migrated = await shape();
    for (let done = 0; done <= statements.length; done += 1) {
      await database.query(WITHOUT_LISTS);
      for (const { text } of statements.slice(0, done)) await database.query(text);
      expect(await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).toEqual(migrationsFrom(17));
      expect(await shape()).toEqual(migrated);
    }
    await expect(database.query("INSERT INTO outbox (topic, payload) VALUES ('t', NULL)")).rejects.toThrow(
      "outbox_payload_check",
    );
  });

  test("leave an index to the operator whose column an earlier migration has left, and those behind it", async () => {
    await using database = await openMigrated();
    await database.query(`${WITHOUT_LISTS}; ALTER TABLE outbox DROP COLUMN destination, DROP COLUMN routes`);
    const { log, lines } = recordingLog();
    const start = () =>
      withStore(postgresStore(database, DEFAULT_NAMES, undefined, log), async (store) => {
        const applied = await store.schema.migrate();
        await store.schema.checkColumns();
        await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', '1')");
        expect(await claimed(store)).toHaveLength(1);
        return applied;
      });
    expect(await start()).toEqual(migrationsFrom(17));
    const statements = lines.flatMap(({ fields: { statement } }) => (statement === undefined ? [] : String(statement)));
    expect(statements.map((statement) => /\w+_idx/.exec(statement)?.[0])).toEqual([
      "outbox_delivery_idx",
      "outbox_order_idx",
      "outbox_key_idx",
    ]);
    await database.query("ALTER TABLE outbox ADD COLUMN destination text, ADD COLUMN routes text");
    for (const statement of statements) await database.query(statement);
    await database.query("DELETE FROM outbox");
    expect(await start()).toEqual([]);
  });
});
