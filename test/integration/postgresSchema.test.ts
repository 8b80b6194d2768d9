import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, MessageId } from "../../src/model/rows.ts";
import type { ClaimQueues, Store } from "../../src/ports/store.ts";
import { claimRequest, died, failed, inboxRow, queuesOf, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore, withStoreOn } from "../support/postgresHarness.ts";
import { recordingLog } from "../support/recorders.ts";
import { problemsOf, withStore } from "../support/schemaChecks.ts";

failOnLeaks();
const openMigrated = databaseCopies();

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
    await using database = await openMigrated();
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

  test("an outbox need not have the columns for destinations, which its statements add", async () => {
    await using database = await openMigrated();
    await database.query("ALTER TABLE outbox DROP COLUMN destination");
    await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('a', 'k', '1'), ('b', 'k', '2')");

    const { log, lines } = recordingLog();
    const remedy = await withStore(postgresStore(database, DEFAULT_NAMES, undefined, log), async (store) => {
      await store.schema.checkColumns();
      const { rows } = await store.outbox.claim(claimRequest({ limit: 1, queues: queuesOf(["a"]) }));
      expect(rows).toMatchObject([{ topic: "a", destination: null, isPinned: false }]);
      await store.outbox.settle(rows.map((row) => died(row)));
      const ids = rows.map(({ id }) => id);
      expect(await store.replay.find(await store.replay.begin(), {}, ids)).toMatchObject([{ topic: "a" }]);
      expect(await store.replay.move(await store.replay.begin(), ids, "alice")).toMatchObject({ changed: 1 });
      expect((await store.messages.outboxPage({ destination: "a" }, null, 10)).rows).toHaveLength(1);
      expect((await store.outbox.backlog()).byDestination.get("a")).toMatchObject({ pending: 1 });
      expect(await store.operations.deadRows(10)).toEqual([]);
      expect(await store.operations.blockedKeys(10, 10)).toEqual([]);
      expect(await store.parked.list({}, null, 10)).toEqual([]);
      return store.replay.destinationRemedy ?? "";
    });

    expect(remedy).toBe('ALTER TABLE "outbox" ADD COLUMN "destination" text;');
    expect(lines.filter(({ level }) => level === "warn")).toEqual([
      {
        level: "warn",
        fields: { remedy },
        message: expect.stringContaining("a slow destination can delay the others"),
      },
    ]);
    await database.query(remedy);
    await database.query(`CREATE INDEX ON outbox (destination, sequence) WHERE state = 'pending'`);
    await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      expect(store.replay.destinationRemedy).toBeUndefined();
    });
  });

  const [WITHOUT_COLUMNS, WITH_COLUMNS] = [
    "ALTER TABLE outbox DROP COLUMN message_sequence, DROP COLUMN expanded_to",
    'ALTER TABLE "outbox" ADD COLUMN "message_sequence" bigint; ALTER TABLE "outbox" ADD COLUMN "expanded_to" text;',
  ];
  const [WITHOUT_NULL, WITH_NULL] = [
    "ALTER TABLE outbox ALTER COLUMN payload SET NOT NULL",
    'ALTER TABLE "outbox" ALTER COLUMN "payload" DROP NOT NULL;',
  ];

  test.each([
    ["with neither", [WITHOUT_COLUMNS, WITHOUT_NULL], [WITH_COLUMNS, WITH_NULL]],
    [
      "without any column of lists or destinations",
      [WITHOUT_COLUMNS, "ALTER TABLE outbox DROP COLUMN destination, DROP COLUMN routes"],
      [
        'ALTER TABLE "outbox" ADD COLUMN "destination" text; ALTER TABLE "outbox" ADD COLUMN "routes" text;',
        WITH_COLUMNS,
      ],
    ],
  ])("an outbox %s starts without lists, and with them once its statements ran", async (_, changes, remedies) => {
    await using database = await openMigrated();
    for (const change of changes) await database.query(change);
    await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('a', 'k', '1')");
      const { rows } = await store.outbox.claim(claimRequest());
      expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(1);
    });

    const withLists = (body: (store: Store) => Promise<unknown> = async () => {}) =>
      withStoreOn(database, DEFAULT_NAMES, async (store) => {
        await store.schema.checkColumns(undefined, { lists: true });
        return await body(store);
      });
    const problem = problemsOf(await withLists().catch((error: unknown) => error));
    expect(problem).toMatch(/^database\.columnMapping\.outbox\.messageSequence: the table "outbox" cannot hold/);
    expect(problem.match(/ALTER TABLE .*;/g)).toEqual(remedies);
    for (const remedy of remedies) await database.query(remedy);
    await withLists(async (store) => {
      const [message] = await database.query<{ id: MessageId }>(
        "INSERT INTO outbox (topic, key, payload) VALUES ('list', 'k', '2') RETURNING id",
      );
      const id = message?.id as MessageId;
      const deliveries = ["a", "b"].map((destination) => ({ destination, isDead: false, reason: null }));
      expect(await store.outbox.expand([{ id, deliveries, skipped: [] }])).toMatchObject({ expanded: 1 });
      const { rows } = await store.outbox.claim(claimRequest());
      expect(rows).toMatchObject([
        { destination: "a", payload: "2", messageId: id },
        { destination: "b", payload: "2", messageId: id },
      ]);
    });
  });

  test("a state that is added makes no history pending, and new rows still are", async () => {
    await using database = await createDatabase();
    await database.query("CREATE TABLE outbox (topic text)");
    await database.query("CREATE TABLE inbox (note text)");
    await database.query("INSERT INTO outbox VALUES ('old')");
    await database.query("INSERT INTO inbox VALUES ('old')");

    const failure = await checkFailure(database);
    for (const statement of problemsOf(failure).match(/ALTER TABLE .*;/g) ?? []) await database.query(statement);
    await database.query('ALTER TABLE inbox ADD UNIQUE ("source", "idempotency_key")');
    await database.query("INSERT INTO outbox (topic, payload) VALUES ('new', '1')");

    const rows = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      expect(await store.inbox.relay(relayRequest({ topics: { "": ["a"] } }))).toMatchObject({ relayed: 0 });
      return (await store.outbox.claim(claimRequest())).rows;
    });

    expect(rows.map(({ topic }) => topic)).toEqual(["new"]);
    expect(await database.query("SELECT topic, state FROM outbox WHERE topic = 'old'")).toEqual([
      { topic: "old", state: "sent" },
    ]);
  });

  test("an inbox need not be there for who only reads the outbox", async () => {
    await using database = await openMigrated();
    await database.query("DROP TABLE inbox");
    await database.query("INSERT INTO outbox (topic, payload) VALUES ('a', '1')");

    const { rows } = await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns(["outbox"]);
      return await store.outbox.claim(claimRequest());
    });

    expect(rows).toHaveLength(1);
    expect(problemsOf(await checkFailure(database))).toMatch(/"inbox" does not exist.*svc poller retention/);
  });

  test("an inbox without the unique key on source and idempotency key is refused, and the statement mends it", async () => {
    await using database = await openMigrated();
    await database.query("ALTER TABLE inbox DROP CONSTRAINT inbox_source_idempotency_key_key");
    await database.query("CREATE UNIQUE INDEX ON inbox (source, idempotency_key) WHERE state = 'pending'");

    const [statement] = problemsOf(await checkFailure(database)).match(/ALTER TABLE .*;/g) ?? [];
    await database.query(String(statement));

    await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      expect(await store.inbox.insert([inboxRow()])).toEqual([{ kind: "stored" }]);
    });
  });

  test("missing indexes and keys are warned of", async () => {
    await using database = await openMigrated();
    await database.query("CREATE TABLE bare (LIKE outbox INCLUDING DEFAULTS INCLUDING IDENTITY)");
    const names = { ...DEFAULT_NAMES, outboxTable: "bare" };
    const check = async () => {
      const { log, lines } = recordingLog();
      await withStore(postgresStore(database, names, undefined, log), (store) => store.schema.checkColumns());
      return lines.map(({ fields }) => fields);
    };

    expect(await check()).toEqual([
      { remedy: 'ALTER TABLE "bare" ADD UNIQUE ("id");' },
      { column: "sequence" },
      { column: "key" },
      { column: "destination" },
    ]);
    for (const columns of ["id", "sequence", "key, sequence", "destination, sequence"])
      await database.query(`CREATE INDEX ON bare (${columns})`);
    expect(await check()).toEqual([]);
  });

  test("renamed tables and columns are used under their own names", async () => {
    await using database = await openMigrated();
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

const checkFailure = (database: TestDatabase) =>
  withStoreOn(database, DEFAULT_NAMES, (store) => store.schema.checkColumns().catch((error: unknown) => error));

describe("types of columns", () => {
  /** The bundled tables with one column of another type, and what a fresh row has in it. */
  async function retyped(database: TestDatabase, column: string, type: string): Promise<void> {
    await database.query("CREATE EXTENSION IF NOT EXISTS citext").catch(() => {});
    await database.query("CREATE TYPE outbox_state AS ENUM ('pending', 'processing', 'sent', 'dead')");
    await database.query("CREATE TYPE kind AS ENUM ('orders', 'created')");
    await database.query("CREATE DOMAIN positive AS int CHECK (VALUE >= 0)");
    await database.query("CREATE DOMAIN small_positive AS positive");
    // Predicates of indexes and checks would have to be written anew; an owner's table has others.
    for (const { name } of await database.query<{ name: string }>(
      `SELECT indexrelid::regclass::text AS name FROM pg_index WHERE indrelid = 'outbox'::regclass AND indpred IS NOT NULL`,
    )) {
      await database.query(`DROP INDEX ${name}`);
    }
    await database.query("ALTER TABLE outbox DROP CONSTRAINT outbox_state_check");
    const identity = column === "sequence";
    const drop = identity ? "DROP IDENTITY IF EXISTS" : "DROP DEFAULT";
    await database.query(`ALTER TABLE outbox ALTER COLUMN ${column} ${drop}`);
    await database.query(`ALTER TABLE outbox ALTER COLUMN ${column} TYPE ${type} USING ${column}::text::${type}`);
  }

  /** Everything that the service does with an outbox row; NULL if the row is to be left out. */
  async function work(store: Store, database: TestDatabase, column: string, value: string): Promise<void> {
    const values: Record<string, string> = {
      id: "gen_random_uuid()",
      sequence: "1",
      state: "'pending'",
      topic: "'orders'",
      payload: "'[1]'",
      headers: "'{}'",
      attempt: "0",
      max_attempts: "5",
      scheduled_at: "now()",
      created_at: "now()",
      updated_at: "now()",
      [column]: value,
    };
    if (column !== "sequence") delete values.sequence;
    const insert = `INSERT INTO outbox (${Object.keys(values).join(", ")}) VALUES (${Object.values(values).join(", ")})`;
    await database.query(insert);
    const claim = async (queues?: ClaimQueues) => {
      const { rows } = await store.outbox.claim(claimRequest({ queues }));
      expect(rows).toHaveLength(1);
      return rows[0] as ClaimedRow;
    };
    const first = await claim();
    expect(await store.outbox.renew([first.claimToken], { leaseMs: 1000, claimTimeoutMs: 2000 })).toContain(first.id);
    expect((await store.outbox.settle([failed(first, 0)])).closed).toContain(first.id);
    expect(await store.outbox.reclaim(10, 1000)).toBe(0);
    const topics = first.topic === null ? [] : [first.topic];
    const second = await claim(queuesOf(topics));
    expect(second.attempt).toBe(1);
    expect((await store.outbox.settle([sent(second)])).closed).toContain(first.id);
    await store.outbox.backlog();
    const scope = await store.replay.begin();
    expect((await store.replay.page(scope, { topics }, null, 10)).rows).toHaveLength(1);
    expect(await store.replay.find(scope, { topics }, [first.id])).toHaveLength(1);
    expect(await store.replay.move(scope, [first.id], "alice")).toMatchObject({ changed: 1 });
    expect(await store.replay.untried([first.id])).toBe(1);
    const third = await claim();
    await store.outbox.settle([died(third)]);
    const [range] = await store.retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 0 });
    if (range === undefined) throw new Error("a range expected");
    expect(await store.retention.deleteBatch(range, 10)).toMatchObject({ deleted: 1 });
  }

  test.each([
    ["topic", "varchar(40)", "'orders'"],
    ["topic", "kind", "'orders'"],
    ["key", "uuid", "gen_random_uuid()"],
    ["key", "bigint", "12345678901234567"],
    ["key", "int", "7"],
    ["key", "char(20)", "'a'"],
    ["aggregate_type", "kind", "'orders'"],
    ["payload", "json", "'[1]'"],
    ["payload", "jsonb", "'[1]'"],
    ["headers", "text", "'{}'"],
    ["headers", "json", "'{}'"],
    ["state", "varchar(20)", "'pending'"],
    ["state", "char(12)", "'pending'"],
    ["attempt", "smallint", "0"],
    ["attempt", "bigint", "0"],
    ["attempt", "small_positive", "0"],
    ["max_attempts", "bigint", "5"],
    ["scheduled_at", "timestamp", "now()"],
    ["created_at", "timestamp", "now()"],
    ["lease_expires_at", "timestamp", "NULL"],
    ["sequence", "int", "1"],
    ["sequence", "numeric(18, 0)", "1"],
  ])("%s may be %s: it passes the check, and everything works", async (column, type, value) => {
    await using database = await openMigrated();
    await retyped(database, column, type);

    await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      await store.schema.checkColumns();
      await work(store, database, column, value);
    });
  });

  test("a column of another type, too short, or without NOT NULL if that is needed, is refused by its name", async () => {
    await using database = await openMigrated();
    await database.query("CREATE TYPE outbox_state AS ENUM ('pending', 'processing', 'sent', 'dead')");
    const names = { ...DEFAULT_NAMES, outboxTable: "odd" };
    for (const [column, type, problem] of [
      ["id", "text", "of type text,"],
      ["id", "uuid", "allows NULL in"],
      ["state", "outbox_state", "of type enum,"],
      ["state", "varchar(8)", "for 8 characters"],
      ["claim_token", "text", "of type text,"],
      ["headers", "bytea", "of type bytea,"],
      ["attempt", "text", "of type text,"],
      ["lease_expires_at", "text", "of type text,"],
      ["last_error", "jsonb", "of type jsonb,"],
      ["last_error", "varchar(40)", "for 40 characters"],
      ["sequence", "numeric", "of type numeric,"],
      ["sequence", "numeric(20, 3)", "of type numeric(20,3),"],
      ["sequence", "bigint", "allows NULL in"],
    ] as const) {
      await database.query(
        `DROP TABLE IF EXISTS odd; CREATE TABLE odd (LIKE outbox); ALTER TABLE odd DROP COLUMN ${column}, ADD COLUMN ${column} ${type}`,
      );
      const failure = await withStoreOn(database, names, (store) => store.schema.checkColumns().catch(problemsOf));
      expect(failure).toMatch(new RegExp(`^database.columnMapping.outbox.\\w+: the table "odd" .*"${column}"`));
      expect(failure).toContain(problem);
    }
  });

  test("a column that the service writes may not be generated, and a column that only the relay writes not beside an inbox", async () => {
    await using database = await openMigrated();
    for (const [column, type, value] of [
      ["updated_at", "timestamptz", "created_at"],
      ["key", "text", "topic"],
      ["aggregate_type", "text", "topic"],
    ]) {
      await database.query(`ALTER TABLE outbox DROP COLUMN ${column}`);
      await database.query(`ALTER TABLE outbox ADD COLUMN ${column} ${type} GENERATED ALWAYS AS (${value}) STORED`);
    }
    const generated = (failure: string | undefined) => failure?.match(/(?<=the column )\w+(?=, whose values)/g);

    await withStoreOn(database, DEFAULT_NAMES, async (store) => {
      expect(generated(await store.schema.checkColumns(["outbox"]).then(() => undefined, problemsOf))).toEqual([
        "updated_at",
      ]);
    });
    expect(generated(problemsOf(await checkFailure(database)))).toEqual(["key", "updated_at"]);
  });

  test("rules and views are refused; a rule that is off, and triggers, are not", async () => {
    await using database = await openMigrated();
    await database.query("CREATE RULE noted AS ON INSERT TO outbox DO ALSO NOTIFY noted");
    await database.query('CREATE RULE "Kept" AS ON DELETE TO outbox DO INSTEAD NOTHING');
    await database.query("CREATE RULE unused AS ON UPDATE TO outbox DO ALSO NOTIFY noted");
    await database.query("ALTER TABLE outbox DISABLE RULE unused");
    await database.query("CREATE RULE elsewhere AS ON UPDATE TO outbox DO ALSO NOTIFY noted");
    await database.query("ALTER TABLE outbox ENABLE REPLICA RULE elsewhere");
    await database.query(
      `CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
       CREATE TRIGGER before_it BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION touch();
       CREATE TRIGGER after_it AFTER UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION touch()`,
    );
    await database.query("ALTER TABLE inbox RENAME TO kept; CREATE VIEW inbox AS SELECT * FROM kept");

    const failure = problemsOf(await checkFailure(database));
    expect(failure).toContain('database.outboxTableName: the table "outbox" has the rule noted, which rewrites');
    expect(failure).toContain('database.inboxTableName: the table "inbox" is not a table');
    expect(failure.match(/(?<=the rule )"?\w+"?/g)).toEqual(['"Kept"', "noted"]);
    expect(failure).not.toContain("trigger it");
  });
});

describe("an owner's tables with other column types", () => {
  async function ownTables(database: TestDatabase, payload: string): Promise<void> {
    await database.query(`ALTER TABLE inbox ALTER COLUMN payload TYPE ${payload} USING payload::${payload}`);
    await database.query(`ALTER TABLE outbox ALTER COLUMN payload TYPE ${payload} USING payload::${payload}`);
    await database.query("ALTER TABLE outbox ALTER COLUMN headers DROP DEFAULT, ALTER COLUMN headers TYPE text");
  }

  test.each(["json", "jsonb"])("payloads go in and out of a %s column", async (type) => {
    await using database = await openMigrated();
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
    await using database = await openMigrated();
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
    await using database = await openMigrated();
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
});
