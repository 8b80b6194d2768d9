import { expect, test } from "@jest/globals";
import { storedKey } from "../../src/core/receipt/attributes.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES } from "../support/postgresHarness.ts";
import { MIGRATIONS, problemsOf, withStore } from "../support/schemaChecks.ts";
import { describeWithSqlServer } from "../support/sqlServer.ts";
import { createSqlServerDatabase, type SqlServerDatabase } from "../support/sqlServerDatabases.ts";
import { sqlServerStore } from "../support/sqlServerHarness.ts";

failOnLeaks();

/** Runs `body` with a store on the database and closes it. */
const withStoreOn = <T>(
  database: SqlServerDatabase,
  names: typeof DEFAULT_NAMES,
  body: (store: Store) => Promise<T>,
): Promise<T> => withStore(sqlServerStore(database, names), body);

const migrated = (database: SqlServerDatabase) =>
  withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.migrate());

const statementsOf = (failure: unknown): readonly string[] =>
  (problemsOf(failure).match(/^ {6}.*;$/gm) ?? []).map((line) => line.trim());

const checkFailure = (database: SqlServerDatabase) =>
  withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.checkColumns().catch((error: unknown) => error));

describeWithSqlServer("migrations of SQL Server", () => {
  test("ten replicas that start at once apply each file once", async () => {
    await using database = await createSqlServerDatabase();
    const stores = Array.from({ length: 10 }, () => sqlServerStore(database));

    const applied = await Promise.all(stores.map((store) => store.schema.migrate()));

    await Promise.all(stores.map((store) => store.close()));
    expect(applied.flat().toSorted()).toEqual(MIGRATIONS.map(({ version, name }) => `${version} ${name}`).toSorted());
    const history = await database.query(
      "SELECT CONVERT(int, version) AS version, name FROM svc_migrations WHERE version > 0 ORDER BY version",
    );
    expect(history).toEqual(MIGRATIONS);
  });

  test("a second start finds nothing to do", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);

    expect(await migrated(database)).toEqual([]);
  });

  test("a file that was changed after it was applied stops the migration and changes nothing", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query("UPDATE svc_migrations SET md5 = 'other' WHERE version = 1");

    await expect(migrated(database)).rejects.toThrow(/MD5/i);
  });

  test("a migration that fails names its step, and resumes there at the next start", async () => {
    await using database = await createSqlServerDatabase();
    await database.query("CREATE TABLE outbox (note int NULL)");

    await expect(migrated(database)).rejects.toThrow(/^migrate CREATE TABLE outbox: /);

    await database.query("DROP TABLE outbox");
    expect(await migrated(database)).toHaveLength(MIGRATIONS.length - 1);
  });

  test("an application inserts a topic and a payload, and nothing else", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query("INSERT INTO outbox (topic, payload) VALUES (N'orders.created', N'not json')");

    const { rows } = await withStoreOn(database, DEFAULT_NAMES, (store) => store.outbox.claim(claimRequest()));

    expect(rows).toMatchObject([
      { topic: "orders.created", payload: "not json", key: null, attempt: 0, maxAttempts: 5, headers: {} },
    ]);
  });
});

describeWithSqlServer("the column check of SQL Server", () => {
  test("a missing table is named with what to do", async () => {
    await using database = await createSqlServerDatabase();

    const failure = await checkFailure(database);

    expect(problemsOf(failure)).toMatch(/database\.inboxTableName: the table \[inbox\] does not exist.*svc migrate/);
    expect(problemsOf(failure)).toMatch(/database\.outboxTableName: the table \[outbox\] does not exist/);
  });

  test("every missing column comes with the statement that adds it, and with each the tables can be used", async () => {
    await using database = await createSqlServerDatabase();
    for (const table of ["inbox", "outbox"]) {
      await database.query(`CREATE TABLE ${table} (note int NULL); INSERT INTO ${table} (note) VALUES (1), (2);`);
    }

    const statements = statementsOf(await checkFailure(database));
    expect(statements).toHaveLength(35);
    expect(statements).toContain("ALTER TABLE [inbox] ADD [headers] nvarchar(max) NULL DEFAULT N'{}';");
    for (const statement of statements) await database.query(statement);
    await database.query("ALTER TABLE inbox ADD UNIQUE NONCLUSTERED (source, idempotency_key)");

    const row = inboxRow({ payload: "[1]" });
    const delivered = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      expect(await store.inbox.insert([row])).toEqual([{ kind: "stored" }]);
      expect(await store.inbox.insert([row])).toEqual([{ kind: "duplicate" }]);
      await store.inbox.relay(relayRequest());
      return (await store.outbox.claim(claimRequest())).rows;
    });
    // The rows that were there are history.
    expect(delivered.map(({ payload }) => payload)).toEqual(["[1]"]);
  });

  test("columns that would take different texts for the same, or lose the order of rows, are refused with their ALTER", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query(`DROP INDEX outbox_destination_idx ON outbox; DROP INDEX outbox_retries_idx ON outbox;
DROP INDEX outbox_delivery_idx ON outbox; DROP INDEX outbox_order_idx ON outbox; DROP INDEX inbox_relay_order_idx ON inbox;
ALTER TABLE inbox DROP CONSTRAINT inbox_scheduled_at_default;
ALTER TABLE outbox ALTER COLUMN destination varchar(400) NULL; ALTER TABLE outbox ALTER COLUMN routes nvarchar(16) COLLATE Latin1_General_CI_AS NULL;
ALTER TABLE inbox ALTER COLUMN scheduled_at datetimeoffset(3) NOT NULL;`);

    const failure = await checkFailure(database);

    expect(problemsOf(failure)).toContain(
      'column "destination" of type varchar, which the service cannot work with: use nvarchar',
    );
    expect(statementsOf(failure)).toEqual([
      "ALTER TABLE [inbox] ALTER COLUMN [scheduled_at] datetimeoffset(7) NOT NULL;",
      "ALTER TABLE [outbox] ALTER COLUMN [routes] nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL;",
    ]);
    for (const statement of statementsOf(failure)) await database.query(statement);
    expect(statementsOf(await checkFailure(database))).toEqual([]);
  });

  test("renamed tables and columns are used under their own names, in the letter case the database allows", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query("EXEC sp_rename N'inbox.payload', N'Body', N'COLUMN'");
    await database.query("EXEC sp_rename N'inbox', N'messages_in', N'OBJECT'");
    await database.query("EXEC sp_rename N'outbox.key', N'partition_key', N'COLUMN'");
    await database.query("EXEC sp_rename N'outbox', N'messages_out', N'OBJECT'");
    const [caseless] = await database.query<{ answer: number }>(
      "SELECT CASE WHEN N'a' = N'A' THEN 1 ELSE 0 END AS answer",
    );
    const names = {
      ...DEFAULT_NAMES,
      inboxTable: "messages_in",
      outboxTable: "messages_out",
      inbox: { ...DEFAULT_NAMES.inbox, payload: caseless?.answer === 1 ? "BODY" : "Body" },
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

  test("views, INSTEAD OF triggers and computed columns are refused", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query("EXEC sp_rename 'inbox', 'kept'");
    await database.query("CREATE VIEW inbox AS SELECT * FROM kept");
    await database.query("CREATE TRIGGER instead_of_it ON outbox INSTEAD OF UPDATE AS RETURN");
    await database.query("CREATE TRIGGER after_it ON outbox AFTER UPDATE AS RETURN");
    await database.query("ALTER TABLE outbox DROP COLUMN last_error");
    await database.query("ALTER TABLE outbox ADD last_error AS topic");

    const failure = problemsOf(await checkFailure(database));
    for (const obstacle of ["[inbox] is not a table", "the trigger instead_of_it", "the column last_error"]) {
      expect(failure).toContain(obstacle);
    }
    expect(failure).not.toContain("after_it");
  });

  test("an inbox without a unique key on source and idempotency key is refused, and the statement mends it", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query("ALTER TABLE inbox DROP CONSTRAINT inbox_source_idempotency_key_key");

    const [statement = ""] = problemsOf(await checkFailure(database)).match(/ALTER TABLE .*;/g) ?? [];
    await database.query(statement);

    await withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.checkColumns());
  });
});

describeWithSqlServer("an owner's tables in SQL Server", () => {
  test("tables with triggers are claimed from, settled, relayed and replayed", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query("CREATE TABLE audit (note nvarchar(100) NOT NULL)");
    for (const table of ["inbox", "outbox"]) {
      await database.query(
        `CREATE TRIGGER ${table}_audit ON ${table} AFTER INSERT, UPDATE, DELETE AS INSERT INTO audit (note) VALUES (N'${table}')`,
      );
    }

    const moved = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.inbox.insert([inboxRow(), inboxRow()]);
      await store.inbox.relay(relayRequest());
      const { rows } = await store.outbox.claim(claimRequest());
      expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(2);
      return await store.replay.move(
        await store.replay.begin(),
        rows.map((row) => row.id),
        "alice",
      );
    });

    expect(moved).toMatchObject({ changed: 2 });
    const [audit] = await database.query<{ notes: number }>("SELECT COUNT(*) AS notes FROM audit");
    expect(audit?.notes).toBeGreaterThanOrEqual(6);
  });

  test("an aggregate id that the column cannot hold is refused alone; the rest of its batch is stored", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    const secret = `secret-${"x".repeat(800)}`;
    const rows = Array.from({ length: 9 }, (_, n) => inboxRow({ aggregateId: n === 4 ? secret : "a" }));

    const outcomes = await withStoreOn(database, DEFAULT_NAMES, (store) => store.inbox.insert(rows));

    expect(outcomes.map((outcome) => outcome.kind)).toEqual(rows.map((_, n) => (n === 4 ? "refused" : "stored")));
    expect(JSON.stringify(outcomes[4])).not.toContain("secret");
  });

  test("keys that differ by letter case, an accent or a space at the end are different messages", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    const keys = ["key", "KEY", "kéy", "key ", "key  "].map(storedKey);
    const rows = keys.map((idempotencyKey) => inboxRow({ idempotencyKey }));

    const outcomes = await withStoreOn(database, DEFAULT_NAMES, async (store) => [
      ...(await store.inbox.insert(rows)),
      ...(await store.inbox.insert(keys.map((idempotencyKey) => inboxRow({ idempotencyKey })))),
    ]);

    expect(outcomes.map((outcome) => outcome.kind)).toEqual([
      ...keys.map(() => "stored"),
      ...keys.map(() => "duplicate"),
    ]);
  });

  test("a message that the outbox table refuses becomes dead with the reason; the others are relayed in order", async () => {
    await using database = await createSqlServerDatabase();
    await migrated(database);
    await database.query("ALTER TABLE outbox ALTER COLUMN topic nvarchar(10)");
    const rows = Array.from({ length: 9 }, (_, n) => inboxRow({ eventType: n === 4 ? "much-too-long" : `t${n}` }));

    const result = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.inbox.insert(rows);
      return await store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));
    });

    expect(result.relayed).toBe(8);
    expect(result.dead).toEqual([
      { id: rows[4]?.id, source: "orders", reason: expect.stringMatching(/refuses this message/) },
    ]);
    expect(JSON.stringify(result.dead)).not.toContain("much-too-long");
    expect(await database.query("SELECT topic FROM outbox ORDER BY sequence")).toEqual(
      [0, 1, 2, 3, 5, 6, 7, 8].map((n) => ({ topic: `t${n}` })),
    );
  });
});
