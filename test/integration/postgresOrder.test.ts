import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { outboxParts } from "../../src/adapters/stores/postgres/outboxParts.ts";
import { outboxStatements } from "../../src/adapters/stores/postgres/outboxSql.ts";
import { quoteNames } from "../../src/adapters/stores/sql/names.ts";
import type { ClaimToken, MessageId } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, claimSome, failed, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

failOnLeaks();

const MARK_AGE_MS = 1001;
/** Longer than a relay pass looks back if nothing is being received. */
const RECEIPT_MS = 2500;
const INSERT = "INSERT INTO outbox (topic, key, payload) VALUES ('t', $1, $2)";
const INSERT_RECEIVED = `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, created_at, scheduled_at)
  VALUES ('orders', $1, 'a', $1, now() - $2::interval, now() - $2::interval)`;

describe("low-water marks", () => {
  let database: TestDatabase;
  let clock: ManualClock;
  let store: Store;
  const connections: pg.Client[] = [];

  beforeEach(async () => {
    database = await createDatabase();
    clock = new ManualClock();
    store = postgresStore(database, DEFAULT_NAMES, clock);
    await store.schema.migrate();
  });

  afterEach(async () => {
    for (const connection of connections.splice(0)) await connection.end();
    await store.close();
    await database.drop();
  });

  async function connect(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    connections.push(client);
    await client.connect();
    return client;
  }

  /** A transaction on a connection of its own that the database has numbered. */
  async function beginTransaction(): Promise<pg.Client> {
    const client = await connect();
    await client.query("BEGIN");
    await client.query("SELECT pg_current_xact_id()");
    return client;
  }

  const claimed = async (limit?: number) => {
    const { rows } = await claimSome(store, limit === undefined ? {} : { limit });
    return rows;
  };
  const payloads = async () => (await claimed()).map((row) => row.payload);

  /** Time for three marks; each finds no free row. */
  async function letMarksSettle(): Promise<void> {
    for (let look = 0; look < 3; look += 1) {
      clock.advance(MARK_AGE_MS);
      expect(await claimed()).toEqual([]);
      expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 0 });
    }
  }

  test("rows of one key that one transaction inserts around another key's row go out in their order", async () => {
    const application = await beginTransaction();
    await application.query(INSERT, ["k", "1"]);
    await database.query(INSERT, ["x", "2"]);
    const rows = await claimed();
    expect(rows.map((row) => row.payload)).toEqual(["2"]);
    await store.outbox.settle(rows.map((row) => failed(row)));
    // The lowest unfinished row that can be seen is that of the key x, however often one looks.
    await letMarksSettle();
    await application.query(INSERT, ["k", "3"]);
    await application.query("COMMIT");

    expect(await payloads()).toEqual([]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["1", "3"]);
  });

  describe("of parked rows", () => {
    const park = (payload: string) =>
      database.query(
        "UPDATE outbox SET state = 'pending', attempt = 1, scheduled_at = timestamptz '9999-12-31 00:00:00Z', claim_token = NULL WHERE payload = $1",
        [payload],
      );
    const sendAll = async () => {
      const rows = await claimed();
      await store.outbox.settle(rows.map(sent));
      return rows.map((row) => row.payload);
    };

    test.each<[string, string]>([
      ["", "SELECT"],
      [
        " without created_at",
        "ALTER TABLE outbox ALTER COLUMN created_at DROP NOT NULL; UPDATE outbox SET created_at = NULL",
      ],
    ])(
      "keep the later ones of their keys waiting%s, though others have been sent behind them, until they are retried",
      async (_, change) => {
        await database.query(INSERT, ["k", "parked"]);
        await database.query(change);
        await park("parked");
        await database.query(INSERT, ["x", "other"]);
        expect(await sendAll()).toEqual(["other"]);
        await letMarksSettle();
        await database.query(INSERT, ["k", "behind"]);
        await database.query(INSERT, ["x", "another"]);
        expect(await sendAll()).toEqual(["another"]);
        await letMarksSettle();

        const [parked] = await store.parked.list({}, null, 10);
        await store.parked.retry([parked?.id as MessageId], "alice");
        expect(await payloads()).toEqual(["parked", "behind"]);
      },
    );

    test("lie below the mark, so that claims need not begin at them", async () => {
      const readMark = async () => {
        const names = quoteNames(DEFAULT_NAMES, (name) => `"${name}"`);
        const { text } = outboxStatements(names, outboxParts(names, "text")).mark;
        const [row] = await database.query(text, [Array.from({ length: 8 }, () => "0"), null, null, []]);
        return row?.mark;
      };
      for (const payload of ["parked", "free", "behind"]) await database.query(INSERT, ["k", payload]);
      await park("parked");
      expect(await readMark()).toBe("2");

      await database.query("UPDATE outbox SET scheduled_at = now() + interval '1 hour' WHERE payload = 'parked'");
      expect(await readMark()).toBe("1");
    });

    test("are not passed if they are very many: a claim then begins at some of them", async () => {
      await database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 't', 'k' || n, 'parked' FROM generate_series(1, 1500) n",
      );
      await park("parked");
      await database.query(INSERT, ["free", "free"]);
      expect(await sendAll()).toEqual(["free"]);
      await letMarksSettle();
      await database.query("UPDATE outbox SET attempt = 0, scheduled_at = now() WHERE key = 'k1400'");
      await database.query(INSERT, ["k1400", "behind"]);
      await database.query(INSERT, ["k1401", "not yet"]);

      expect(await payloads()).toEqual(["parked", "behind"]);
    });
  });

  test("a row of the newest transaction that runs is not overtaken, although its sequence lies below a committed one", async () => {
    const older = await beginTransaction();
    const newest = await beginTransaction();
    await newest.query(INSERT, ["k", "1"]);
    await older.query(INSERT, ["x", "2"]);
    await older.query("COMMIT");
    const rows = await claimed();
    expect(rows.map((row) => row.payload)).toEqual(["2"]);
    await store.outbox.settle(rows.map((row) => failed(row)));
    await letMarksSettle();
    await newest.query("COMMIT");
    await database.query(INSERT, ["k", "3"]);

    expect(await payloads()).toEqual([]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["1", "3"]);
  });

  /**
   * Begins an insert that stays in a BEFORE trigger: it has its position, and no number as a transaction.
   *
   * @returns ends the trigger's wait, and waits for the commit
   */
  async function insertSlowly(table: string, text: string, values: readonly string[]): Promise<() => Promise<void>> {
    await database.query(`
      CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.payload = '1' THEN PERFORM pg_advisory_xact_lock(1); END IF;
        RETURN NEW;
      END $$`);
    await database.query(`CREATE TRIGGER slow BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION wait()`);
    const [gate, writer] = [await connect(), await connect()];
    await gate.query("SELECT pg_advisory_lock(1)");
    const inserting = writer.query(text, [...values]);
    await eventually(async () => {
      expect(await database.query("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")).toHaveLength(1);
    });
    return async () => {
      await gate.query("SELECT pg_advisory_unlock(1)");
      await inserting;
    };
  }

  /** A row of another key that waits for its retry, so that the lowest unfinished row that can be seen is this one. */
  async function failRowOfAnotherKey(): Promise<void> {
    await database.query(INSERT, ["x", "2"]);
    const rows = await claimed();
    expect(rows.map((row) => row.payload)).toEqual(["2"]);
    await store.outbox.settle(rows.map((row) => failed(row)));
    await letMarksSettle();
  }

  test("a row that stays in a trigger before its transaction is numbered is not overtaken", async () => {
    const goOn = await insertSlowly("outbox", INSERT, ["k", "1"]);
    await failRowOfAnotherKey();
    await goOn();
    await database.query(INSERT, ["k", "3"]);

    expect(await payloads()).toEqual([]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["1", "3"]);
  });

  test("a row whose insert waits for another one with its id, ON CONFLICT, is not overtaken", async () => {
    const insert = `INSERT INTO outbox (id, topic, key, payload)
      VALUES ('5f0c1c52-6d0e-5b38-9c1e-0a4b7d2f9e11', 't', 'k', $1) ON CONFLICT (id) DO NOTHING`;
    const [first, second] = [await beginTransaction(), await connect()];
    await first.query(insert, ["0"]);
    const inserting = second.query(insert, ["1"]);
    await eventually(async () => {
      expect(
        await database.query("SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"),
      ).toHaveLength(1);
    });
    await failRowOfAnotherKey();
    await first.query("ROLLBACK");
    await inserting;
    await database.query(INSERT, ["k", "3"]);

    expect(await payloads()).toEqual([]);
    clock.advance(MARK_AGE_MS);
    expect(await payloads()).toEqual(["1", "3"]);
  });

  test("a message that stays in a trigger before its transaction is numbered is relayed in its place", async () => {
    const goOn = await insertSlowly("inbox", INSERT_RECEIVED, ["1", "0 seconds"]);
    await sleep(RECEIPT_MS);
    await database.query(INSERT_RECEIVED, ["another", "0 seconds"]);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    await store.outbox.settle((await claimed()).map(sent));
    await letMarksSettle();
    await goOn();
    await database.query(INSERT_RECEIVED, ["2", "0 seconds"]);

    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 2 });
    const relayed = await database.query("SELECT payload FROM outbox WHERE state = 'pending' ORDER BY sequence");
    expect(relayed.map((row) => row.payload)).toEqual(["1", "2"]);
  });

  test("a transaction that has written nothing yet and stays open keeps the marks of before it", async () => {
    for (const payload of ["1", "2"]) await database.query(INSERT, [payload, payload]);
    await store.outbox.settle((await claimed(1)).map(sent));
    await store.outbox.settle((await claimed()).map((row) => failed(row)));
    const open = await connect();
    await open.query("BEGIN");
    await open.query("UPDATE outbox SET topic = 'none' WHERE sequence < 0");
    await letMarksSettle();
    await open.query("COMMIT");
    await database.query(INSERT, ["k", "3"]);
    expect(await payloads()).toEqual(["3"]);
  });

  test("a sequence that starts anew, as after a restore, is followed", async () => {
    const insert = (count: number) =>
      database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', n::text FROM generate_series(1, $1) n",
        [count],
      );
    await insert(100);
    for (let pass = 0; pass < 3; pass += 1) {
      await store.outbox.settle((await claimed(30)).map(sent));
      clock.advance(MARK_AGE_MS);
    }
    await database.query("TRUNCATE outbox RESTART IDENTITY");
    await insert(3);
    clock.advance(MARK_AGE_MS);

    expect(await payloads()).toEqual(["1", "2", "3"]);
  });

  test("messages of one aggregate are relayed in their order although the first was received long before its commit", async () => {
    const slow = await beginTransaction();
    await slow.query(INSERT_RECEIVED, ["first", "0 seconds"]);
    await sleep(RECEIPT_MS);
    await database.query(INSERT_RECEIVED, ["another", "0 seconds"]);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    await store.outbox.settle((await claimed()).map(sent));
    // The marks pass by what cannot be seen yet.
    await letMarksSettle();
    await slow.query("COMMIT");
    await database.query(INSERT_RECEIVED, ["second", "0 seconds"]);

    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 2 });
    const relayed = await database.query("SELECT payload FROM outbox WHERE state = 'pending' ORDER BY sequence");
    expect(relayed.map((row) => row.payload)).toEqual(["first", "second"]);
  });

  test("a message that is set back to pending by hand is relayed, however old it is", async () => {
    await database.query(INSERT_RECEIVED, ["again", "1 day"]);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    await store.outbox.settle((await claimed()).map(sent));
    await letMarksSettle();
    await database.query("DELETE FROM outbox");
    await database.query("UPDATE inbox SET state = 'pending'");
    clock.advance(MARK_AGE_MS);
    expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 1 });
    expect(await database.query("SELECT payload FROM outbox")).toEqual([{ payload: "again" }]);
  });
});

describe("a row that was not scheduled ahead", () => {
  /** What columns of time say of a row whose transaction begins now, or began when the test's did. */
  const [LATER, BEFORE] = ["clock_timestamp()", "now()"];
  const insertAt = (payload: string, time: string) =>
    `INSERT INTO outbox (topic, key, payload, scheduled_at, created_at, updated_at)
     SELECT 't', 'k', '${payload}', t, t, t FROM (SELECT ${time} AS t) time`;
  const receiveAt = (payload: string, scheduledAt: string, consumption: "push" | "pull") =>
    `INSERT INTO inbox (source, idempotency_key, aggregate_id, payload, consumption, scheduled_at, created_at)
     SELECT 'orders', '${payload}', 'a', '${payload}', '${consumption}', t, clock_timestamp() FROM (SELECT ${scheduledAt} AS t) time`;
  const claimed = async (store: Store) => (await claimSome(store)).rows.map((row) => row.payload);
  const pulled = async (store: Store) => {
    const token = randomUUID() as ClaimToken;
    const request = { source: "orders", limit: 10, maxBytes: 1_000_000, token, leaseMs: 30_000, maxAttempts: 5 };
    return (await store.pull.claim(request)).rows.map((row) => row.payload);
  };
  const relayed = async (database: TestDatabase) =>
    (await database.query("SELECT payload FROM outbox ORDER BY sequence")).map((row) => row.payload);

  /**
   * Runs `look` so that it waits for a lock on `table` after its transaction has begun and before its snapshot is
   * taken, and commits `statements` meanwhile: the first of them is of a transaction that began later than the look,
   * the second of a transaction that began before.
   */
  async function lookBehindLock<T>(
    database: TestDatabase,
    table: string,
    statements: readonly string[],
    look: () => Promise<T>,
  ): Promise<T> {
    const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await client.connect();
    try {
      await client.query("BEGIN");
      await client.query(`LOCK TABLE ${table} IN EXCLUSIVE MODE`);
      const looking = look();
      await eventually(async () => {
        const waiting = await database.query(
          "SELECT FROM pg_locks WHERE relation = to_regclass($1) AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND NOT granted",
          [table],
        );
        expect(waiting).toHaveLength(1);
      });
      for (const statement of statements) await client.query(statement);
      await client.query("COMMIT");
      return await looking;
    } finally {
      await client.end();
    }
  }

  const withStore = async (body: (store: Store, database: TestDatabase) => Promise<void>) => {
    await using database = await createDatabase();
    const store = postgresStore(database);
    try {
      await store.schema.migrate();
      await body(store, database);
    } finally {
      await store.close();
    }
  };

  test("is not overtaken in a claim that has waited for a lock since before the row's transaction began", async () => {
    await withStore(async (store, database) => {
      const rows = [insertAt("1", LATER), insertAt("2", BEFORE)];
      expect(await lookBehindLock(database, "outbox", rows, () => claimed(store))).toEqual(["1", "2"]);
    });
  });

  test("is not overtaken in a relay pass that has waited for a lock since before its receipt", async () => {
    await withStore(async (store, database) => {
      const rows = [receiveAt("1", LATER, "push"), receiveAt("2", BEFORE, "push")];
      await lookBehindLock(database, "inbox", rows, () => store.inbox.relay(relayRequest()));
      expect(await relayed(database)).toEqual(["1", "2"]);
    });
  });

  test("is not overtaken in a pull claim that has waited for a lock since before its receipt", async () => {
    await withStore(async (store, database) => {
      const rows = [receiveAt("1", LATER, "pull"), receiveAt("2", BEFORE, "pull")];
      expect(await lookBehindLock(database, "inbox", rows, () => pulled(store))).toEqual(["1", "2"]);
    });
  });

  test("is due at once, and first, although the clock has been set back since its insert", async () => {
    await withStore(async (store, database) => {
      await database.query(insertAt("1", "now() + interval '1 hour'"));
      await database.query(insertAt("2", "now()"));
      expect(await claimed(store)).toEqual(["1", "2"]);
      expect(await store.outbox.backlog()).toMatchObject({ pending: 0, oldestPendingAgeMs: null });
    });
  });

  test("is found by an idle poller although the clock has been set back since its insert", async () => {
    await withStore(async (store, database) => {
      expect(await claimed(store)).toEqual([]);
      await database.query(insertAt("1", "now() + interval '1 hour'"));
      expect(await claimed(store)).toEqual(["1"]);
    });
  });

  test("is not overtaken once it is replayed, although the clock has been set back since", async () => {
    await withStore(async (store, database) => {
      await database.query(insertAt("1", "now()"));
      await store.outbox.settle((await store.outbox.claim(claimRequest())).rows.map(sent));
      const scope = await store.replay.begin();
      const { rows } = await store.replay.page(scope, {}, null, 10);
      expect(
        await store.replay.move(
          scope,
          rows.map(({ id }) => id),
          "alice",
        ),
      ).toMatchObject({ changed: 1 });
      const ahead = "interval '1 hour'";
      await database.query(
        `UPDATE outbox SET scheduled_at = scheduled_at + ${ahead}, updated_at = updated_at + ${ahead}`,
      );
      await database.query(insertAt("2", "now()"));
      expect(await claimed(store)).toEqual([]);
    });
  });

  test("waits for its retry however the clock was set back since its insert", async () => {
    await withStore(async (store, database) => {
      await database.query(insertAt("1", "now() + interval '1 hour'"));
      const { rows } = await store.outbox.claim(claimRequest());
      await store.outbox.settle(rows.map((row) => failed(row)));
      expect(await claimed(store)).toEqual([]);
    });
  });

  test("is relayed and pulled in its place although the clock has been set back since its receipt", async () => {
    await withStore(async (store, database) => {
      const later = "interval '1 hour'";
      for (const consumption of ["push", "pull"] as const) {
        for (const payload of ["1", "2"])
          await database.query(receiveAt(`${consumption} ${payload}`, "now()", consumption));
      }
      await database.query(
        `UPDATE inbox SET scheduled_at = scheduled_at + ${later}, created_at = created_at + ${later} WHERE payload ~ '1'`,
      );
      await database.query("UPDATE inbox SET created_at = created_at + interval '2 hours' WHERE payload ~ '2'");
      await store.inbox.relay(relayRequest());
      expect(await relayed(database)).toEqual(["push 1", "push 2"]);
      expect(await pulled(store)).toEqual(["pull 1", "pull 2"]);
    });
  });

  test("differs from a row that is scheduled ahead, which holds nobody back", async () => {
    await withStore(async (store, database) => {
      await database.query(
        "INSERT INTO outbox (topic, key, payload, scheduled_at) VALUES ('t', 'k', '1', now() + interval '1 hour')",
      );
      await database.query(INSERT, ["k", "2"]);
      expect(await claimed(store)).toEqual(["2"]);
    });
  });
});
