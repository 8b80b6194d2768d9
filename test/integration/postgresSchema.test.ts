import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { migrationsDirectory } from "../../src/adapters/stores/sql/migrations.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { MIGRATIONS, problemsOf, withStore } from "../support/schemaChecks.ts";

failOnLeaks();

/** Runs `body` with a store on the database and closes it. */
const withStoreOn = <T>(
  database: TestDatabase,
  names: typeof DEFAULT_NAMES,
  body: (store: Store) => Promise<T>,
): Promise<T> => withStore(postgresStore(database, names), body);

describe("migrations", () => {
  test("ten replicas that start at once apply each file once", async () => {
    await using database = await createDatabase();
    const stores = Array.from({ length: 10 }, () => postgresStore(database));

    const applied = await Promise.all(stores.map((store) => store.schema.migrate()));

    await Promise.all(stores.map((store) => store.close()));
    expect(applied.flat().sort()).toEqual(MIGRATIONS.map(({ version, name }) => `${version} ${name}`));
    const history = await database.query(
      "SELECT version::int, name FROM svc_migrations WHERE version > 0 ORDER BY version",
    );
    expect(history).toEqual(MIGRATIONS);
  });

  test("a second start finds nothing to do", async () => {
    await using database = await createDatabase();
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());

    expect(await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).toEqual([]);
  });

  test("a file that was changed after it was applied stops the migration and changes nothing", async () => {
    await using database = await createDatabase();
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());
    await database.query("UPDATE svc_migrations SET md5 = 'other' WHERE version = 1");

    await expect(withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).rejects.toThrow(/MD5/i);
  });

  test("tables go into the schema that currentSchema names, and are used there", async () => {
    await using database = await createDatabase();
    await database.query('CREATE SCHEMA "Relay"');
    const names = { ...DEFAULT_NAMES, schema: "Relay" };

    await withStoreOn(database, names, async (store) => {
      await store.schema.migrate();
      await store.schema.checkColumns();
      await store.inbox.insert([inboxRow()]);
    });

    expect(await database.query('SELECT count(*)::int AS n FROM "Relay".inbox')).toEqual([{ n: 1 }]);
    expect(await database.query("SELECT to_regclass('public.inbox') AS t")).toEqual([{ t: null }]);
  });

  test("a schema that does not exist is named", async () => {
    await using database = await createDatabase();

    const failure = await withStoreOn(database, { ...DEFAULT_NAMES, schema: "nowhere" }, (store) =>
      store.schema.migrate().catch((error: unknown) => error),
    );

    expect(problemsOf(failure)).toContain('"nowhere" does not exist');
  });
});

describe("migrations of tables in use", () => {
  /** Tables of the first release with rows in them. */
  async function oldTables(database: TestDatabase): Promise<void> {
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());
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
  const pending = MIGRATIONS.filter(({ version }) => version > 2).map(({ version, name }) => `${version} ${name}`);

  test("hold up no writer, also while they wait for a transaction that has written before", async () => {
    await using database = await createDatabase();
    await oldTables(database);
    await whileMigrationWaits(database, async (migrating, commit, store) => {
      await database.query("SET lock_timeout = '10s'; INSERT INTO outbox (topic, key, payload) VALUES ('t', 'x', '2')");
      await store.inbox.insert([inboxRow({ aggregateId: "a" })]);
      expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
      const { rows } = await store.outbox.claim(claimRequest());
      expect(rows.map((row) => row.key)).toEqual(["x", "a"]);
      expect((await store.outbox.settle(rows.map(sent))).size).toBe(2);
      await commit();
      expect(await migrating).toEqual(pending);
    });
    expect(await invalid(database)).toEqual([]);
    expect(await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate())).toEqual([]);
  });

  test("go on after one that was broken off, and leave no index unfinished", async () => {
    await using database = await createDatabase();
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

  test("of replicas that start at once run once", async () => {
    await using database = await createDatabase();
    await oldTables(database);
    const stores = Array.from({ length: 4 }, () => postgresStore(database));
    const applied = await Promise.all(stores.map((store) => store.schema.migrate()));
    await Promise.all(stores.map((store) => store.close()));
    expect(applied.flat()).toEqual(pending);
  });
});

describe("the column check", () => {
  test("a missing table is named with what to do", async () => {
    await using database = await createDatabase();

    const failure = await withStoreOn(database, DEFAULT_NAMES, (store) =>
      store.schema.checkColumns().catch((e: unknown) => e),
    );

    expect(problemsOf(failure)).toMatch(/database\.inboxTableName: the table "inbox" does not exist.*svc migrate/);
    expect(problemsOf(failure)).toMatch(/database\.outboxTableName: the table "outbox" does not exist/);
  });

  test("every missing column comes with the statement that adds it, and the statement works", async () => {
    await using database = await createDatabase();
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());
    await database.query("ALTER TABLE inbox DROP COLUMN headers, DROP COLUMN attempt");
    await database.query("ALTER TABLE outbox DROP COLUMN claim_token, DROP COLUMN sequence");

    const failure = await withStoreOn(database, DEFAULT_NAMES, (store) =>
      store.schema.checkColumns().catch((e: unknown) => e),
    );
    const statements = problemsOf(failure).match(/ALTER TABLE .*;/g) ?? [];

    expect(statements).toHaveLength(4);
    expect(statements.join("\n")).toContain('ALTER TABLE "inbox" ADD COLUMN "headers" jsonb');
    for (const statement of statements) await database.query(statement);
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.checkColumns());
  });

  test("renamed tables and columns are used under their own names", async () => {
    await using database = await createDatabase();
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());
    await database.query("ALTER TABLE inbox RENAME TO messages_in");
    await database.query('ALTER TABLE messages_in RENAME COLUMN payload TO "Body"');
    await database.query("ALTER TABLE outbox RENAME TO messages_out");
    await database.query("ALTER TABLE messages_out RENAME COLUMN key TO partition_key");
    const names = {
      ...DEFAULT_NAMES,
      inboxTable: "messages_in",
      outboxTable: "messages_out",
      inbox: { ...DEFAULT_NAMES.inbox, payload: "Body" },
      outbox: { ...DEFAULT_NAMES.outbox, key: "partition_key" },
    } as typeof DEFAULT_NAMES;

    const delivered = await withStoreOn(database, names, async (store) => {
      await store.schema.checkColumns();
      await store.inbox.insert([inboxRow({ aggregateId: "a", payload: "[1]" })]);
      await store.inbox.relay(relayRequest());
      const { rows } = await store.outbox.claim(claimRequest());
      await store.outbox.settle(rows.map(sent));
      return rows;
    });

    expect(delivered).toMatchObject([{ key: "a", payload: "[1]" }]);
    expect(await database.query("SELECT state FROM messages_out")).toEqual([{ state: "sent" }]);
  });
});

describe("an owner's tables with other column types", () => {
  async function ownTables(database: TestDatabase, payload: string): Promise<void> {
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());
    await database.query(`ALTER TABLE inbox ALTER COLUMN payload TYPE ${payload} USING payload::${payload}`);
    await database.query(`ALTER TABLE outbox ALTER COLUMN payload TYPE ${payload} USING payload::${payload}`);
    await database.query("ALTER TABLE outbox ALTER COLUMN headers DROP DEFAULT, ALTER COLUMN headers TYPE text");
  }

  test.each(["json", "jsonb"])("payloads go in and out of a %s column", async (type) => {
    await using database = await createDatabase();
    await ownTables(database, type);

    const rows = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      await store.inbox.insert([inboxRow({ payload: '{"a": 1}' })]);
      await store.inbox.relay(relayRequest());
      return (await store.outbox.claim(claimRequest())).rows;
    });

    expect(rows.map((row) => row.payload)).toEqual(['{"a": 1}']);
    expect(rows[0]?.headers["x-source"]).toBe("orders");
  });

  test("a payload that the column cannot hold is refused alone; the rest of its batch is stored", async () => {
    await using database = await createDatabase();
    await ownTables(database, "jsonb");
    const rows = Array.from({ length: 9 }, (_, n) =>
      inboxRow({ payload: n === 4 ? '{"nul":"\\u0000 secret"}' : "{}" }),
    );

    const outcomes = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      return await store.inbox.insert(rows);
    });

    expect(outcomes.map((outcome) => outcome.kind)).toEqual(rows.map((_, n) => (n === 4 ? "refused" : "stored")));
    expect(JSON.stringify(outcomes[4])).not.toContain("secret");
  });

  test("a message that the outbox table refuses becomes dead with the reason; the others are relayed in order", async () => {
    await using database = await createDatabase();
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());
    await database.query("ALTER TABLE outbox ALTER COLUMN topic TYPE varchar(10)");
    const rows = Array.from({ length: 9 }, (_, n) => inboxRow({ eventType: n === 4 ? "much-too-long" : `t${n}` }));

    const result = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      await store.inbox.insert(rows);
      return await store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));
    });

    expect(result.relayed).toBe(8);
    expect(result.dead).toEqual([
      { id: rows[4]?.id, source: "orders", reason: expect.stringMatching(/refuses this message.*varying\(10\)/) },
    ]);
    expect(await database.query("SELECT topic FROM outbox ORDER BY sequence")).toEqual(
      [0, 1, 2, 3, 5, 6, 7, 8].map((n) => ({ topic: `t${n}` })),
    );
  });

  test("a reason that does not fit the owner's last_error column does not keep the row from being settled", async () => {
    await using database = await createDatabase();
    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());
    await database.query("ALTER TABLE outbox ALTER COLUMN last_error TYPE varchar(40)");
    await database.query("INSERT INTO outbox (topic, payload) VALUES ('a', '1'), ('b', '2')");

    const closed = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      const { rows } = await store.outbox.claim(claimRequest());
      const [first, second] = rows;
      if (first === undefined || second === undefined) throw new Error("two rows expected");
      const reason = "x".repeat(100);
      return await store.outbox.settle([{ ...sent(first), kind: "dead", attempted: true, reason }, sent(second)]);
    });

    expect(closed.size).toBe(2);
    expect(await database.query("SELECT state FROM outbox ORDER BY sequence")).toEqual([
      { state: "dead" },
      { state: "sent" },
    ]);
  });
});

describe("the wait for the database at start", () => {
  test("ends with the last reason when no database answers in time", async () => {
    await using database = await createDatabase();
    const port = await freePort();
    const store = postgresStore({ ...database, port });

    await expect(store.waitUntilReady(300, new AbortController().signal)).rejects.toThrow(
      /no database answered within 300 ms: .*ECONNREFUSED/,
    );
    await store.close();
  });

  test("ends at once when the process is told to stop", async () => {
    await using database = await createDatabase();
    const port = await freePort();
    const store = postgresStore({ ...database, port });
    const stopping = new AbortController();
    const waiting = store.waitUntilReady(60_000, stopping.signal);

    stopping.abort(new Error("stopping"));

    await expect(waiting).rejects.toThrow("stopping");
    await store.close();
  });
});

describe("wakes between processes", () => {
  test("a relay in one process wakes a poller in another", async () => {
    await using database = await createDatabase();
    const [one, other] = [postgresStore(database), postgresStore(database)];
    let woken = (): void => {};
    const listening = new Promise<void>((resolve) => {
      woken = resolve;
    });
    await other.onOutboxWake(() => woken());
    await listening;
    const wake = new Promise<void>((resolve) => {
      woken = resolve;
    });

    one.announceOutbox();

    await wake;
    await one.close();
    await other.close();
  });
});
