import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { ClaimedRow, ClaimToken, MessageId } from "../../src/model/rows.ts";
import type { RetentionRange } from "../../src/ports/finishedRows.ts";
import type { PullClaimResult } from "../../src/ports/pullStore.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, died, failed, inboxRow, relayRequest, released, sent } from "../conformance/store/harness.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { MIGRATIONS, withStore } from "../support/schemaChecks.ts";

failOnLeaks();

/** Whatever an owner's table and triggers let in or turn away is the fault of one row, and stays with it. */

/** A database with the bundled tables, without the constraints that a table of an owner's own need not have. */
async function looseTables(): Promise<TestDatabase> {
  const database = await createDatabase();
  await withStore(postgresStore(database, DEFAULT_NAMES), (store) => store.schema.migrate());
  for (const table of ["inbox", "outbox"]) {
    const columns = await database.query<{ name: string }>(
      `SELECT attname AS name FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND attnotnull
         AND attname NOT IN ('id', 'sequence')`,
      [table],
    );
    for (const { name } of columns) await database.query(`ALTER TABLE ${table} ALTER COLUMN ${name} DROP NOT NULL`);
  }
  return database;
}

async function withTables<T>(body: (store: Store, database: TestDatabase) => Promise<T>): Promise<T> {
  await using database = await looseTables();
  return await withStore(postgresStore(database, DEFAULT_NAMES), (store) => body(store, database));
}

/** A trigger that raises an error where its condition on `NEW` (or `OLD`) holds. */
async function refuse(
  database: TestDatabase,
  when: string,
  table: string,
  condition: string,
  more = "",
): Promise<void> {
  await database.query(
    `CREATE FUNCTION refuse_${table}() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       IF ${condition} THEN RAISE EXCEPTION 'not this one' ${more}; END IF;
       RETURN coalesce(NEW, OLD);
     END $$`,
  );
  await database.query(
    `CREATE TRIGGER refuse BEFORE ${when} ON ${table} FOR EACH ROW EXECUTE FUNCTION refuse_${table}()`,
  );
}

/** A trigger that skips new rows where its condition on `NEW` holds, without an error. */
async function skipInserts(database: TestDatabase, table: string, condition: string): Promise<void> {
  await database.query(
    `CREATE FUNCTION skip_${table}() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN IF ${condition} THEN RETURN NULL; END IF; RETURN NEW; END $$`,
  );
  await database.query(`CREATE TRIGGER skip BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION skip_${table}()`);
}

const states = (database: TestDatabase) =>
  database.query("SELECT topic, state, last_error FROM outbox ORDER BY sequence");

const claimed = async (store: Store): Promise<readonly ClaimedRow[]> => (await store.outbox.claim(claimRequest())).rows;

describe("a claim", () => {
  test.each([
    ["payload", "NULL", { payload: null }],
    ["topic", "NULL", { topic: null }],
    ["headers", "NULL", { headers: {} }],
    ["created_at", "NULL", { createdAt: null }],
    ["created_at", "'infinity'", { createdAt: null }],
    ["created_at", "'-infinity'", { createdAt: null }],
    ["created_at", "'294000-01-01'", { createdAt: null }],
    ["created_at", "'0044-03-15 00:00Z BC'", { createdAt: new Date("-000043-03-15T00:00:00Z") }],
    ["updated_at", "NULL", {}],
    ["scheduled_at", "NULL", {}],
    ["scheduled_at", "'-infinity'", {}],
    ["attempt", "NULL", { attempt: 0 }],
    ["max_attempts", "NULL", { maxAttempts: 5 }],
  ])("takes a row whose %s is %s, and the rows of its key behind it", async (column, value, seen) => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('before', 'k', '1')");
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('odd', 'k', '2')");
      await database.query(`UPDATE outbox SET ${column} = ${value} WHERE topic = 'odd'`);
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('after', 'k', '3')");

      const rows = await claimed(store);

      expect(rows).toMatchObject([{ topic: "before" }, seen, { topic: "after" }]);
      expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(3);
      expect(await claimed(store)).toEqual([]);
      expect((await states(database)).map((row) => row.state)).toEqual(["sent", "sent", "sent"]);
    });
  });

  test("is not stopped by any number of rows without a payload in front", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 'empty', NULL FROM generate_series(1, 151)");
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('last', '1')");

      const rows = [...(await claimed(store)), ...(await claimed(store))];

      expect(rows).toHaveLength(152);
      expect(rows.at(-1)?.topic).toBe("last");
    });
  });

  test("takes back what was left in processing without any time", async () => {
    await withTables(async (store, database) => {
      await database.query(
        "INSERT INTO outbox (topic, payload, state, updated_at) VALUES ('left', '1', 'processing', NULL)",
      );
      expect(await store.outbox.reclaim(10, 1000)).toBe(1);
      expect(await claimed(store)).toHaveLength(1);
    });
  });
});

describe("the bundled outbox", () => {
  test("takes NULL for no headers", async () => {
    await using database = await createDatabase();
    await withStore(postgresStore(database, DEFAULT_NAMES), async (store) => {
      await store.schema.migrate();
      await database.query("INSERT INTO outbox (topic, payload, headers) VALUES ('a', '1', NULL)");
      expect(await claimed(store)).toMatchObject([{ headers: {} }]);
    });
  });

  test("is migrated and written to beside a transaction that keeps it open", async () => {
    await using database = await createDatabase();
    await withStore(postgresStore(database, DEFAULT_NAMES), async (store) => {
      await store.schema.migrate();
      await database.query("DELETE FROM svc_migrations WHERE version > 5");
      const reader = new pg.Client({ connectionString: database.url });
      await reader.connect();
      await reader.query("BEGIN; SELECT FROM outbox");
      // Both would wait until the reader has ended, which it does not.
      const [migrated] = await Promise.all([
        store.schema.migrate(),
        database.query("INSERT INTO outbox (topic, payload) VALUES ('a', '1')"),
      ]);
      expect(migrated).toEqual(MIGRATIONS.slice(5).map(({ version, name }) => `${version} ${name}`));
      await reader.end();
    });
  });
});

describe("the settings of a session", () => {
  const SETTINGS = [
    "DateStyle = 'SQL, DMY'",
    "IntervalStyle = 'sql_standard'",
    "bytea_output = 'escape'",
    "standard_conforming_strings = off",
    "TimeZone = 'Asia/Kathmandu'",
    "extra_float_digits = -15",
  ];

  test.each(["DATABASE", "ROLE"])("that a %s sets change nothing from the receipt to the replay", async (of) => {
    await using database = await looseTables();
    const role = `svc_${database.name}`;
    if (of === "ROLE") {
      await database.query(`CREATE ROLE "${role}" LOGIN SUPERUSER PASSWORD '${database.password}'`);
    }
    const name = of === "ROLE" ? role : database.name;
    for (const setting of SETTINGS) await database.query(`ALTER ${of} "${name}" SET ${setting}`);
    try {
      const user = of === "ROLE" ? role : database.user;
      await withStore(postgresStore({ ...database, user }, DEFAULT_NAMES), async (store) => {
        await store.schema.checkColumns();
        await store.inbox.insert([
          inboxRow({ eventType: "suppers", payload: '{"a":"\\\\"}' }),
          inboxRow({ consumption: "pull" }),
        ]);
        const before = Date.now();
        expect(await store.inbox.relay(relayRequest({ topics: { orders: [" ", " "] } }))).toMatchObject({ relayed: 1 });
        const [row] = await claimed(store);
        expect(row).toMatchObject({ topic: "suppers", payload: '{"a":"\\\\"}' });
        expect(Math.abs((row?.createdAt?.getTime() ?? 0) - before)).toBeLessThan(60_000);
        if (row === undefined) throw new Error("a row expected");
        expect((await store.outbox.settle([died(row)])).closed.size).toBe(1);
        expect(await store.outbox.backlog()).toMatchObject({ pending: 0 });

        const scope = await store.replay.begin();
        const { rows } = await store.replay.page(scope, {}, null, 10);
        expect(rows.map(({ createdAt }) => createdAt)).toEqual([row.createdAt]);
        expect(await store.replay.move(scope, [row.id], "alice")).toBe(1);
        const [pulled] = (await store.pull.claim({ ...claimRequest(), source: "orders", maxAttempts: 5 })).rows;
        expect(Math.abs((pulled?.createdAt?.getTime() ?? 0) - before)).toBeLessThan(60_000);
        expect(await store.retention.plan({ table: "inbox", kind: "AGE", maxAgeMs: 0 })).toHaveLength(1);
      });
    } finally {
      if (of === "ROLE") await database.query(`DROP ROLE "${role}"`);
    }
  });
});

describe("an outcome that the database refuses", () => {
  /** Three rows under one claim; the second is the one that is refused. */
  async function three(store: Store, database: TestDatabase): Promise<readonly [ClaimedRow, ClaimedRow, ClaimedRow]> {
    await database.query("INSERT INTO outbox (topic, payload) VALUES ('one', '1'), ('two', '2'), ('three', '3')");
    return (await claimed(store)) as [ClaimedRow, ClaimedRow, ClaimedRow];
  }

  test.each([
    ["P0001", ""],
    ["a state of the owner's own", "USING ERRCODE = 'ABC01'"],
    ["0A000", "USING ERRCODE = '0A000'"],
    ["42501", "USING ERRCODE = '42501'"],
  ])(
    "by a trigger, as %s, makes that row dead, with what happened and why; the others are settled",
    async (_, more) => {
      await withTables(async (store, database) => {
        await refuse(database, "UPDATE", "outbox", "NEW.state = 'sent' AND NEW.topic = 'two'", more);
        const rows = await three(store, database);

        expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(3);

        expect(await states(database)).toMatchObject([
          { topic: "one", state: "sent" },
          { topic: "two", state: "dead", last_error: expect.stringMatching(/^delivered, but .*not this one/) },
          { topic: "three", state: "sent" },
        ]);
      });
    },
  );

  test("by a CHECK, whatever it is, leaves that row to its lease and tells so; the others are settled", async () => {
    await withTables(async (store, database) => {
      const [one, two, three_] = await three(store, database);
      await database.query("ALTER TABLE outbox ADD CHECK (topic <> 'two' OR state = 'processing') NOT VALID");

      const { closed, refused } = await store.outbox.settle([failed(one), released(two), sent(three_)]);

      expect(closed).toEqual(new Set([one.id, three_.id]));
      expect([...refused]).toEqual([[two.id, expect.stringMatching(/check constraint.*23514/)]]);
      expect((await states(database)).map(({ state }) => state)).toEqual(["pending", "processing", "sent"]);
    });
  });

  test("that gives it back untried never makes it dead: it stays under its lease", async () => {
    await withTables(async (store, database) => {
      const rows = await three(store, database);
      await refuse(database, "UPDATE", "outbox", "NEW.state = 'pending' AND NEW.topic = 'two'");

      const { closed, refused } = await store.outbox.settle(rows.map(released));

      expect(closed).toEqual(new Set([rows[0].id, rows[2].id]));
      expect([...refused.keys()]).toEqual([rows[1].id]);
      expect((await states(database)).map(({ state }) => state)).toEqual(["pending", "processing", "pending"]);
    });
  });

  test("an attempt at the end of its range is counted no further, in columns of any width", async () => {
    await withTables(async (store, database) => {
      await database.query("ALTER TABLE outbox ALTER COLUMN max_attempts TYPE bigint");
      const [one, two, three_] = await three(store, database);
      await database.query("UPDATE outbox SET attempt = 2147483647 WHERE topic = 'one'");
      await database.query("UPDATE outbox SET attempt = -7 WHERE topic = 'two'");

      expect((await store.outbox.settle([died(one), failed(two), sent(three_)])).closed.size).toBe(3);

      const attempts = await database.query("SELECT attempt FROM outbox ORDER BY sequence");
      expect(attempts.map(({ attempt }) => attempt)).toEqual([2147483647, 1, 0]);
    });
  });

  test("by a narrow column makes the row dead instead of keeping it for ever", async () => {
    await withTables(async (store, database) => {
      await database.query("ALTER TABLE outbox ALTER COLUMN attempt TYPE smallint");
      const [one, two, three_] = await three(store, database);
      await database.query("UPDATE outbox SET attempt = 32767 WHERE topic = 'one'");

      expect((await store.outbox.settle([failed(one), failed(two), sent(three_)])).closed.size).toBe(3);

      expect((await states(database)).map(({ state }) => state)).toEqual(["dead", "pending", "sent"]);
    });
  });
});

describe("a row that a trigger refuses", () => {
  test("is not stored, and the others of its commit are", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "INSERT", "inbox", "NEW.event_type = 'bad'");
      const rows = Array.from({ length: 9 }, (_, n) => inboxRow({ eventType: n === 4 ? "bad" : "good" }));

      const outcomes = await store.inbox.insert(rows);

      expect(outcomes.map(({ kind }) => kind)).toEqual(rows.map((_, n) => (n === 4 ? "refused" : "stored")));
    });
  });

  test("at the relay is dead with the reason, and the others are relayed", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "INSERT", "outbox", "NEW.topic = 'bad'");
      await store.inbox.insert(Array.from({ length: 20 }, (_, n) => inboxRow({ eventType: n === 3 ? "bad" : "good" })));

      const result = await store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));

      expect(result.relayed).toBe(19);
      expect(result.dead).toMatchObject([{ reason: expect.stringContaining("not this one") }]);
    });
  });

  test("at the relay is dead also where the reason does not fit in its column", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "INSERT", "outbox", "NEW.topic = 'bad'");
      await database.query("ALTER TABLE inbox ALTER COLUMN last_error TYPE varchar(20)");
      await store.inbox.insert([inboxRow({ eventType: "bad", aggregateId: "a" }), inboxRow({ aggregateId: "a" })]);

      const result = await store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));

      expect(result).toMatchObject({ relayed: 1, dead: [{ reason: expect.stringContaining("not this one") }] });
      const dead = await database.query("SELECT last_error FROM inbox WHERE state = 'dead'");
      expect(dead).toEqual([{ last_error: "reason not storable" }]);
    });
  });

  test("at the relay, also as a dead row, is named and left out for a while; its aggregate waits, the others are relayed", async () => {
    await withTables(async (store, database) => {
      const rows = Array.from({ length: 250 }, (_, n) =>
        inboxRow({ eventType: n < 120 ? "bad" : "good", aggregateId: n < 120 || n === 249 ? "a" : null }),
      );
      await store.inbox.insert(rows);
      await refuse(database, "UPDATE", "inbox", "NEW.event_type = 'bad'");
      const request = relayRequest({ topics: { orders: ["", ""] } });

      const passes = [];
      for (let n = 0; n < 4; n += 1) passes.push(await store.inbox.relay(request));

      const first = { id: rows[0]?.id, source: "orders", reason: expect.stringContaining("not this one") };
      expect(passes.flatMap(({ refused }) => refused ?? [])).toEqual([first]);
      expect(passes.reduce((sum, { relayed }) => sum + relayed, 0)).toBe(129);
      const waiting = await database.query("SELECT FROM inbox WHERE state = 'pending' AND event_type = 'good'");
      expect(waiting).toHaveLength(1);
    });
  });

  test("at the relay holds back no source with keys of its own, whatever aggregate it has", async () => {
    await withTables(async (store, database) => {
      const row = (source: string, eventType: string) => inboxRow({ source, eventType, aggregateId: "a" });
      await refuse(database, "UPDATE", "inbox", "NEW.event_type = 'bad'");
      await store.inbox.insert([row("open", "bad")]);
      await store.inbox.insert([row("open", "good"), row("own", "good"), row("orders", "good")]);
      const topics = { open: ["", ""], own: ["", ""], orders: ["", ""] };
      const request = relayRequest({ topics, ownKeySources: ["own", "open"] });

      expect((await store.inbox.relay(request)).relayed).toBe(2);
      await store.inbox.insert([row("open", "good"), row("own", "good"), row("orders", "good")]);
      expect((await store.inbox.relay(request)).relayed).toBe(2);

      const waiting = await database.query("SELECT source FROM inbox WHERE state = 'pending' AND event_type = 'good'");
      expect(waiting).toEqual([{ source: "open" }, { source: "open" }]);
    });
  });

  test("by a row policy is told from a missing right", async () => {
    await withTables(async (_, database) => {
      const role = `svc_${database.name}`;
      await database.query(`CREATE ROLE "${role}" LOGIN PASSWORD '${database.password}'`);
      try {
        await database.query(`GRANT SELECT, INSERT ON inbox TO "${role}"`);
        await database.query("ALTER TABLE inbox ENABLE ROW LEVEL SECURITY");
        await database.query("CREATE POLICY readable ON inbox FOR SELECT USING (true)");
        await database.query("CREATE POLICY good ON inbox FOR INSERT WITH CHECK (event_type = 'good')");
        await withStore(postgresStore({ ...database, user: role }, DEFAULT_NAMES), async (limited) => {
          const rows = ["good", "bad", "good"].map((eventType) => inboxRow({ eventType }));
          const outcomes = await limited.inbox.insert(rows);
          expect(outcomes.map(({ kind }) => kind)).toEqual(["stored", "refused", "stored"]);
          await expect(limited.outbox.claim(claimRequest())).rejects.toMatchObject({ code: "schema" });
        });
      } finally {
        await database.query(`REVOKE ALL ON inbox FROM "${role}"`);
        await database.query(`DROP ROLE "${role}"`);
      }
    });
  });

  test("at its claim is named and left out for a while; the others are claimed, but for those of its key", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "UPDATE", "outbox", "NEW.state = 'processing' AND NEW.topic = 'bad'");
      await database.query("INSERT INTO outbox (topic, payload) SELECT 'bad', '1' FROM generate_series(1, 151)");
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('bad', 'k', '1')");
      await database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 'later', 'k', '1' FROM generate_series(1, 120)",
      );
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('good', '1'), ('good', '2')");

      const first = await store.outbox.claim(claimRequest());
      const second = await store.outbox.claim(claimRequest());

      expect(first.rows).toEqual([]);
      expect(first.refused).toHaveLength(152);
      expect(first.refused?.[0]?.reason).toMatch(/not this one.*P0001/);
      expect(second.rows.map(({ topic }) => topic)).toEqual(["good", "good"]);

      await database.query("DROP TRIGGER refuse ON outbox");
      expect((await store.outbox.claim(claimRequest())).rows).toEqual([]);
    });
  });

  test("at its claim keeps no other from being claimed, however many of them are in front", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "UPDATE", "outbox", "NEW.state = 'processing' AND NEW.topic = 'bad'");
      await database.query("INSERT INTO outbox (topic, payload) SELECT 'bad', '1' FROM generate_series(1, 1500)");
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('good', '1')");

      const claims = [];
      for (let n = 0; n < 3; n += 1) claims.push(await store.outbox.claim(claimRequest()));

      expect(claims.map(({ refused = [] }) => refused.length)).toEqual([1000, 500, 0]);
      expect(claims[2]?.rows.map(({ topic }) => topic)).toEqual(["good"]);
    });
  });

  test("at the claim of every row is the table's fault: no row suffers for it, and the claim says so", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "UPDATE", "outbox", "NEW.state = 'processing'");
      await database.query("INSERT INTO outbox (topic, payload) SELECT 'a', '1' FROM generate_series(1, 9)");
      await expect(store.outbox.claim(claimRequest())).rejects.toThrow("not this one");
      await database.query("DROP TRIGGER refuse ON outbox");
      expect(await claimed(store)).toHaveLength(9);
    });
  });

  test("at the commit of its claim is found too", async () => {
    await withTables(async (store, database) => {
      await database.query(
        `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN IF NEW.topic = 'bad' THEN RAISE EXCEPTION 'too late'; END IF; RETURN NULL; END $$`,
      );
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('bad', '1'), ('good', '2')");
      await database.query(
        "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
      );
      expect((await store.outbox.claim(claimRequest())).refused).toHaveLength(1);
      expect((await claimed(store)).map(({ topic }) => topic)).toEqual(["good"]);
    });
  });

  test("when it is taken back or renewed keeps no other from it", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 9) n");
      const claims = [
        await store.outbox.claim(claimRequest({ limit: 3 })),
        await store.outbox.claim(claimRequest({ limit: 6 })),
      ];
      await refuse(database, "UPDATE", "outbox", "OLD.topic = 't2'");

      const tokens = claims.map(({ rows }) => rows[0]?.claimToken as ClaimToken);
      const renewed = await store.outbox.renew(tokens, { leaseMs: 1, claimTimeoutMs: 60_000 });
      expect(renewed).toEqual(new Set(claims[1]?.rows.map(({ id }) => id)));
      await database.query("ALTER TABLE outbox DISABLE TRIGGER refuse");
      await database.query("UPDATE outbox SET lease_expires_at = now() - interval '1 second'");
      await database.query("ALTER TABLE outbox ENABLE TRIGGER refuse");

      expect(await store.outbox.reclaim(100, 60_000)).toBe(8);
      await expect(store.outbox.reclaim(100, 60_000)).rejects.toThrow("not this one");
      expect(await claimed(store)).toHaveLength(8);
    });
  });

  test("at a pull claim is left out for a while, and keeps no other from being acknowledged", async () => {
    await withTables(async (store, database) => {
      const rows = Array.from({ length: 12 }, (_, n) =>
        inboxRow({ consumption: "pull", eventType: `t${n}`, aggregateId: n === 0 || n === 11 ? "a" : null }),
      );
      await store.inbox.insert(rows);
      await refuse(
        database,
        "UPDATE",
        "inbox",
        "NEW.event_type = 't0' OR (NEW.event_type = 't5' AND NEW.state = 'processed')",
      );
      const request = { ...claimRequest({ limit: 5 }), source: "orders", maxAttempts: 5 };
      const types = (claim: PullClaimResult) => claim.rows.map(({ eventType }) => eventType);

      const first = await store.pull.claim(request);
      expect(types(first)).toEqual(["t1", "t2", "t3", "t4", "t5"]);
      const { source, token } = request;
      expect(await store.pull.acknowledge({ source, token, ids: null })).toHaveLength(4);

      const second = await store.pull.claim({ ...request, limit: 100, token: claimRequest().token });
      expect(types(second)).toEqual(["t6", "t7", "t8", "t9", "t10"]);
    });
  });

  test("when a pull client rejects it stays under the claim, and the others go back", async () => {
    await withTables(async (store, database) => {
      const rows = ["a", "a", "a", "b", "b", null].map((aggregateId, n) =>
        inboxRow({ consumption: "pull", eventType: `t${n}`, aggregateId }),
      );
      await store.inbox.insert(rows);
      const request = { ...claimRequest(), source: "orders", maxAttempts: 5 };
      expect((await store.pull.claim(request)).rows).toHaveLength(6);
      await refuse(database, "UPDATE", "inbox", "NEW.event_type IN ('t1', 't3')");
      const { source, token } = request;
      const options = { delayMs: 0, reason: "no", maxAttempts: 5 };
      const idsAt = (...places: number[]) => places.map((place) => rows[place]?.id);

      // Of an aggregate whose first row is named, the one behind it that is refused stays where it is too.
      const named = await store.pull.reject({ source, token, ids: [rows[0]?.id as MessageId] }, options);
      expect(named).toEqual({ retried: idsAt(0), dead: [], released: [] });
      const all = await store.pull.reject({ source, token, ids: null }, options);
      expect({ ...all, retried: all.retried.toSorted() }).toEqual({
        retried: idsAt(2, 4, 5).toSorted(),
        dead: [],
        released: [],
      });
      await expect(store.pull.reject({ source, token, ids: null }, options)).rejects.toThrow("not this one");
    });
  });

  test("when it is deleted is passed over, whatever their number, and the others are deleted", async () => {
    await withTables(async (store, database) => {
      await database.query(
        "INSERT INTO outbox (topic, payload, state, updated_at) SELECT 't' || n, '1', 'sent', now() - n * interval '1 hour' FROM generate_series(1, 250) n",
      );
      await refuse(
        database,
        "DELETE",
        "outbox",
        "OLD.topic IN ('t20', 't19', 't1') OR substr(OLD.topic, 2)::int > 100",
      );
      const [plan] = await store.retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 0 });
      let rest: RetentionRange | null = plan ?? null;
      let deleted = 0;
      const refusals: string[] = [];
      while (rest !== null) {
        const batch: Awaited<ReturnType<typeof store.retention.deleteBatch>> = await store.retention.deleteBatch(
          rest,
          10,
        );
        deleted += batch.deleted;
        if (batch.refusal !== undefined) refusals.push(batch.refusal);
        rest = batch.rest;
      }
      expect({ deleted, refused: refusals.length }).toEqual({ deleted: 97, refused: 153 });
    });
  });

  test("at its replay stays as it is, and the others are moved", async () => {
    await withTables(async (store, database) => {
      await database.query(
        "INSERT INTO outbox (topic, payload, state) SELECT 't' || n, '1', 'sent' FROM generate_series(1, 9) n",
      );
      await refuse(database, "UPDATE", "outbox", "OLD.topic = 't5'");
      const scope = await store.replay.begin();
      const { rows } = await store.replay.page(scope, {}, null, 100);

      expect(
        await store.replay.move(
          scope,
          rows.map(({ id }) => id),
          "alice",
        ),
      ).toBe(8);
      const [refused] = rows.filter(({ topic }) => topic === "t5").map(({ id }) => id);
      await expect(store.replay.move(scope, [refused as MessageId], "alice")).rejects.toThrow("not this one");
    });
  });
});

describe("rows that are stored all or none", () => {
  const stored = { kind: "stored" };

  test.each(["refuses", "skips"])("are none where a trigger %s one, which is named", async (how) => {
    await withTables(async (store, database) => {
      const condition = "NEW.event_type = 'bad'";
      if (how === "refuses") await refuse(database, "INSERT", "inbox", condition);
      else await skipInserts(database, "inbox", condition);
      const rows = ["good", "bad", "good", "bad", "good"].map((eventType) => inboxRow({ eventType }));
      const outcomes = await store.inbox.insertAllOrNone(rows);
      expect(outcomes.map(({ kind }) => kind)).toEqual(["stored", "refused", "stored", "refused", "stored"]);
      expect(outcomes[1]).toMatchObject({ mayPassLater: true });
      expect(await database.query("SELECT id FROM inbox")).toEqual([]);

      await database.query(`DROP TRIGGER ${how === "refuses" ? "refuse" : "skip"} ON inbox`);
      expect(await store.inbox.insertAllOrNone(rows)).toEqual(rows.map(() => stored));
      expect(await database.query("SELECT DISTINCT xmin FROM inbox")).toHaveLength(1);
    });
  });

  test("are none where the commit refuses one", async () => {
    await withTables(async (store, database) => {
      await database.query(
        `CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN IF NEW.event_type = 'bad' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NULL; END $$`,
      );
      await database.query(
        `CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION at_commit()`,
      );
      const rows = ["good", "bad"].map((eventType) => inboxRow({ eventType }));
      expect((await store.inbox.insertAllOrNone(rows)).map(({ kind }) => kind)).toEqual(["stored", "refused"]);
      expect(await database.query("SELECT id FROM inbox")).toEqual([]);
    });
  });

  test("count as stored where they are duplicates, also of a key that a trigger has changed", async () => {
    await withTables(async (store, database) => {
      await database.query(
        `CREATE FUNCTION lower_key() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN NEW.idempotency_key := lower(NEW.idempotency_key); RETURN NEW; END $$`,
      );
      await database.query("CREATE TRIGGER lower_key BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION lower_key()");
      const old = inboxRow({ idempotencyKey: "K-1" });
      expect(await store.inbox.insert([old])).toEqual([stored]);
      const rows = [{ ...old, id: inboxRow({}).id }, inboxRow({ idempotencyKey: "K-2" })];
      expect(await store.inbox.insertAllOrNone(rows)).toEqual([{ kind: "duplicate" }, stored]);
    });
  });
});

describe("a row that a trigger skips without an error", () => {
  const skipped = { kind: "refused", reason: expect.stringContaining("a trigger"), mayPassLater: true };
  const stored = { kind: "stored" };

  test("in the inbox is refused, never a duplicate, and the others of its batch are stored", async () => {
    await withTables(async (store, database) => {
      const [bad, good, other] = ["bad", "good", "other"].map((eventType) => inboxRow({ eventType }));
      if (bad === undefined || good === undefined || other === undefined) throw new Error("three rows are expected");
      await skipInserts(database, "inbox", "NEW.event_type = 'bad'");

      expect(await store.inbox.insert([bad])).toEqual([skipped]);
      const again = { ...good, id: inboxRow({}).id };
      expect(await store.inbox.insert([good, bad, again, other])).toEqual([
        stored,
        skipped,
        { kind: "duplicate" },
        stored,
      ]);

      await database.query("DROP TRIGGER skip ON inbox");
      expect(await store.inbox.insert([bad])).toEqual([stored]);
    });
  });

  test("in the inbox is told from a duplicate whose key a trigger has changed", async () => {
    await withTables(async (store, database) => {
      await database.query(
        `CREATE FUNCTION lower_key() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN NEW.idempotency_key := lower(NEW.idempotency_key); RETURN NEW; END $$`,
      );
      await database.query("CREATE TRIGGER lower_key BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION lower_key()");
      const row = inboxRow({ idempotencyKey: "K-1" });
      expect(await store.inbox.insert([row])).toEqual([stored]);
      expect(await store.inbox.insert([{ ...row, id: inboxRow({}).id }])).toEqual([{ kind: "duplicate" }]);
    });
  });

  test("in the outbox is dead in the inbox, with the reason, and the others are relayed", async () => {
    await withTables(async (store, database) => {
      await store.inbox.insert(["a", "bad", "b", "c"].map((eventType) => inboxRow({ eventType })));
      await skipInserts(database, "outbox", "NEW.topic = 'orders.bad'");

      const relayed = [await store.inbox.relay(relayRequest()), await store.inbox.relay(relayRequest())];

      expect(relayed.map((each) => each.relayed)).toEqual([3, 0]);
      expect(relayed[0]?.dead).toMatchObject([{ reason: expect.stringContaining("a trigger") }]);
      expect(await database.query("SELECT event_type, state FROM inbox ORDER BY event_type")).toEqual([
        { event_type: "a", state: "processed" },
        { event_type: "b", state: "processed" },
        { event_type: "bad", state: "dead" },
        { event_type: "c", state: "processed" },
      ]);
      expect((await states(database)).map(({ topic }) => topic)).toEqual(["orders.a", "orders.b", "orders.c"]);
    });
  });
});
