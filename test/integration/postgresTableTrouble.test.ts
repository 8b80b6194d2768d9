import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, InsertResult, Outcome } from "../../src/model/rows.ts";

import { claimRequest, died, failed, inboxRow, parked, released, sent } from "../conformance/store/harness.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { claimed, passOne, refuse, relayAll, skip, TO_ANY, useLooseTables } from "../support/looseTables.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { withStore } from "../support/schemaChecks.ts";
import { message, setup } from "../unit/core/receipt/intakeSetup.ts";

failOnLeaks();
const { withTables } = useLooseTables();

/** A row is to blame only when it fails alone: what refuses every row is the trouble of the table, and rows wait for its end. */

/** What is wrong with a table: how it begins, and how it ends. */
interface Trouble {
  readonly state: string;
  readonly begin: (database: TestDatabase, table: string) => Promise<unknown>;
  readonly end: (database: TestDatabase, table: string) => Promise<unknown>;
}

const raised = (state: string, when = "INSERT"): Trouble => ({
  state,
  begin: (database, table) => refuse(database, when, table, "true", `USING ERRCODE = '${state}'`),
  end: (database, table) => database.query(`DROP TRIGGER refuse ON ${table}`),
});

const CHECKED: Trouble = {
  state: "23514",
  begin: (database, table) => database.query(`ALTER TABLE ${table} ADD CONSTRAINT closed CHECK (false) NOT VALID`),
  end: (database, table) => database.query(`ALTER TABLE ${table} DROP CONSTRAINT closed`),
};

const DEFERRED: Trouble = {
  state: "P0001",
  begin: async (database, table) => {
    await database.query(
      `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$`,
    );
    await database.query(
      `CREATE CONSTRAINT TRIGGER late AFTER INSERT ON ${table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()`,
    );
  },
  end: (database, table) => database.query(`DROP TRIGGER late ON ${table}`),
};

const PARTITION: Trouble = {
  state: "23514",
  begin: async (database) => {
    const [row] = await database.query("SELECT clock_timestamp()::text AS until");
    await database.query("ALTER TABLE outbox DETACH PARTITION outbox_old");
    await database.query(
      `ALTER TABLE outbox ATTACH PARTITION outbox_old FOR VALUES FROM (MINVALUE) TO ('${row?.until}')`,
    );
    await database.query(`COMMENT ON TABLE outbox IS '${row?.until}'`);
  },
  end: async (database) => {
    const [row] = await database.query("SELECT obj_description('outbox'::regclass) AS from");
    await database.query(`CREATE TABLE outbox_new PARTITION OF outbox FOR VALUES FROM ('${row?.from}') TO (MAXVALUE)`);
  },
};

const SEQUENCE: Trouble = {
  state: "2200H",
  begin: async (database) => {
    const [row] = await database.query("SELECT last_value AS last FROM outbox_sequence_seq");
    await database.query(`ALTER SEQUENCE outbox_sequence_seq MAXVALUE ${row?.last}`);
  },
  end: (database) => database.query("ALTER SEQUENCE outbox_sequence_seq NO MAXVALUE"),
};

/** A trigger writes to a table whose sequence was set back. */
const AUDITED: Trouble = {
  state: "23505",
  begin: async (database, table) => {
    for (const statement of [
      "CREATE TABLE audit (number int PRIMARY KEY)",
      "INSERT INTO audit SELECT generate_series(1, 1000)",
      "CREATE SEQUENCE audit_numbers",
      `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO audit VALUES (nextval(''audit_numbers'')); RETURN NEW; END'`,
      `CREATE TRIGGER audit BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION audit()`,
    ])
      await database.query(statement);
  },
  end: (database) => database.query("SELECT setval('audit_numbers', 1000)"),
};

const OF_INSERTS: Readonly<Record<string, Trouble>> = {
  "raises 54000 for every row": raised("54000"),
  "raises 42501 for every row": raised("42501"),
  "raises 22023 for every row": raised("22023"),
  "raises a state of the owner for every row": raised("ABC01"),
  "refuses every row at its commit": DEFERRED,
  "has a trigger whose own table takes no key twice": AUDITED,
  "has a constraint that no row meets": CHECKED,
};

const OF_THE_OUTBOX: Readonly<Record<string, Trouble>> = {
  ...OF_INSERTS,
  "has no partition for today": PARTITION,
  "has a sequence at its end": SEQUENCE,
  "skips every row": {
    state: "",
    begin: (database) => skip(database, "INSERT", "outbox", "true"),
    end: (database) => database.query("DROP TRIGGER skip ON outbox"),
  },
};

/** The outbox becomes a table that is partitioned by time. */
async function partitionOutbox(database: TestDatabase): Promise<void> {
  for (const statement of [
    "ALTER TABLE outbox ALTER COLUMN sequence DROP IDENTITY",
    "ALTER TABLE outbox RENAME TO outbox_old",
    "CREATE SEQUENCE own_sequence",
    "CREATE TABLE outbox (LIKE outbox_old INCLUDING DEFAULTS) PARTITION BY RANGE (created_at)",
    "ALTER TABLE outbox ALTER COLUMN sequence SET DEFAULT nextval('own_sequence')",
    "ALTER TABLE outbox ATTACH PARTITION outbox_old FOR VALUES FROM (MINVALUE) TO (MAXVALUE)",
  ])
    await database.query(statement);
}

const tableTrouble = (reason = "") => ({
  code: "schema",
  message: expect.stringMatching(new RegExp(`${reason}.*the row is not to blame.*correct the table`, "s")),
});

const dead = (database: TestDatabase) =>
  database.query("SELECT id FROM inbox WHERE state = 'dead' UNION ALL SELECT id FROM outbox WHERE state = 'dead'");

const rowsOf = (...eventTypes: readonly string[]) =>
  eventTypes.map((eventType) => inboxRow({ eventType, aggregateId: "a" }));

const OUTCOMES = {
  sent,
  failed: (row: ClaimedRow) => failed(row),
  died: (row: ClaimedRow) => died(row),
  parked,
  released,
} as const satisfies Record<string, (row: ClaimedRow) => Outcome>;

const kinds = (outcomes: readonly InsertResult[]) => outcomes.map(({ kind }) => kind);

describe.each(Object.entries(OF_THE_OUTBOX))("an outbox that %s", (_, { state, begin, end }) => {
  test("lets received rows wait, with the relay and with receipts that relay, and gets them in order", async () => {
    await withTables(async (_store, database) => {
      if (begin === PARTITION.begin) await partitionOutbox(database);
      await withStore(postgresStore(database, DEFAULT_NAMES), async (store) => {
        await store.schema.checkColumns();
        await passOne(store);
        await store.inbox.insert(rowsOf("t0"));
        await relayAll(store);
        await begin(database, "outbox");

        const outcomes = [await store.inbox.insert(rowsOf("t1", "t2")), await store.inbox.insert(rowsOf("t3"))];
        expect(outcomes.map(kinds)).toEqual([["stored", "stored"], ["stored"]]);
        for (let pass = 0; pass < 3; pass += 1) {
          await expect(store.inbox.relay(TO_ANY)).rejects.toMatchObject(tableTrouble(state));
        }
        expect(await dead(database)).toEqual([]);

        await end(database, "outbox");
        await relayAll(store);
        const rows = await claimed(store);
        expect(rows.map(({ topic }) => topic)).toEqual(["t0", "t1", "t2", "t3"]);
        expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(4);
        expect(await dead(database)).toEqual([]);
      });
    });
  });
});

describe.each(Object.entries(OF_INSERTS))("an inbox that %s", (_, { state, begin, end }) => {
  test("takes no message, blames none, and is down until it takes them again", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await begin(database, "inbox");

      for (const rows of [rowsOf("t1"), rowsOf("t1", "t2", "t3")]) {
        await expect(store.inbox.insert(rows)).rejects.toMatchObject(tableTrouble(state));
        await expect(store.inbox.insertAllOrNone(rows)).rejects.toMatchObject(tableTrouble(state));
      }
      await expect(store.inbox.check()).rejects.toMatchObject(tableTrouble(state));

      await end(database, "inbox");
      await store.inbox.check();
      expect(kinds(await store.inbox.insert(rowsOf("t1", "t2")))).toEqual(["stored", "stored"]);
      expect(await dead(database)).toEqual([]);
    });
  });

  test("lets the messages of a broker wait there: none is dead, none is acknowledged", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await begin(database, "inbox");
      const { take, lines } = setup({
        insert: (rows) => store.inbox.insert(rows),
        wait: async () => {
          await end(database, "inbox");
        },
      });

      expect(await take(message('{"id":1}'), message('{"id":2}'))).toEqual([]);

      expect(lines).toMatchObject([{ fields: { reason: tableTrouble(state).message } }]);
      const rows = await database.query(
        "SELECT idempotency_key AS key, state FROM inbox WHERE source = 'events' ORDER BY 1",
      );
      expect(rows).toEqual([
        { key: "1", state: "pending" },
        { key: "2", state: "pending" },
      ]);
    });
  });
});

describe("an inbox that refuses every change", () => {
  const { begin, end } = raised("54000", "UPDATE");

  test("lets received rows wait for the relay", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      // A store that does not relay leaves its rows to the relay.
      await withStore(postgresStore(database, DEFAULT_NAMES), (other) => other.inbox.insert(rowsOf("t1", "t2")));
      await begin(database, "inbox");
      await expect(store.inbox.relay(TO_ANY)).rejects.toMatchObject(tableTrouble("54000"));

      await end(database, "inbox");
      await relayAll(store);
      expect((await claimed(store)).map(({ topic }) => topic)).toEqual(["t1", "t2"]);
      expect(await dead(database)).toEqual([]);
    });
  });
});

describe("an outbox that refuses every change", () => {
  const { begin, end } = raised("54000", "UPDATE");

  test.each([1, 3, 1100])("lets %i rows wait for their claim, and leaves none out", async (count) => {
    await withTables(async (store, database) => {
      await passOne(store);
      await database.query(
        `INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, ${count}) n`,
      );
      await begin(database, "outbox");
      await expect(store.outbox.claim(claimRequest())).rejects.toMatchObject(tableTrouble("54000"));

      await end(database, "outbox");
      const { rows, refused } = await store.outbox.claim(claimRequest({ limit: 2000 }));
      expect([rows.length, refused]).toEqual([count, undefined]);
    });
  });

  test.each(Object.entries(OUTCOMES))(
    "does not keep a row that was %s from its outcome for good",
    async (_, outcome) => {
      await withTables(async (store, database) => {
        await passOne(store);
        await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 20) n");
        const rows = await claimed(store);
        await begin(database, "outbox");
        for (const batch of [rows, rows.slice(0, 1)]) {
          await expect(store.outbox.settle(batch.map(outcome))).rejects.toMatchObject(tableTrouble("54000"));
        }
        await expect(store.outbox.check()).rejects.toMatchObject(tableTrouble("54000"));
        expect(await dead(database)).toEqual([]);

        await end(database, "outbox");
        await store.outbox.check();
        expect((await store.outbox.settle(rows.map(outcome))).closed.size).toBe(20);
      });
    },
  );
});

describe("a row that is refused while the row that passed last still passes", () => {
  test("gets the answer of its own, though no other comes with it, also in a new process", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await database.query("ALTER TABLE inbox ADD CHECK (event_type <> 'bad') NOT VALID");
      await withStore(postgresStore(database, DEFAULT_NAMES), async (other) => {
        expect(await other.inbox.insert(rowsOf("bad"))).toMatchObject([{ kind: "refused", mayPassLater: false }]);
        expect(await other.inbox.insertAllOrNone(rowsOf("bad"))).toMatchObject([{ kind: "refused" }]);
        await other.inbox.check();
      });
      expect(await database.query("SELECT FROM inbox WHERE state = 'pending'")).toEqual([]);
    });
  });

  test("is dead in the inbox, though no other waits, and what waits behind it is relayed", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await refuse(database, "INSERT", "outbox", "NEW.topic = 'bad'");
      await store.inbox.insert(rowsOf("bad"));
      expect(await store.inbox.relay(TO_ANY)).toMatchObject({ relayed: 0, dead: [{ source: "orders" }], more: true });
      await store.inbox.insert(rowsOf("bad", "good"));
      await relayAll(store);
      expect((await claimed(store)).map(({ topic }) => topic)).toEqual(["good"]);
      expect(await dead(database)).toHaveLength(2);
    });
  });

  test("is left out of claims, though no other is due", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await refuse(database, "UPDATE", "outbox", "NEW.topic = 'bad'");
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('bad', '1'), ('bad', '1')");
      expect((await store.outbox.claim(claimRequest())).refused).toHaveLength(2);
      await store.outbox.check();
    });
  });

  test.each(Object.entries({ sent, failed: OUTCOMES.failed }))("becomes dead instead of %s", async (_, outcome) => {
    await withTables(async (store, database) => {
      await passOne(store);
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('bad', '1')");
      const rows = await claimed(store);
      await refuse(database, "UPDATE", "outbox", "NEW.topic = 'bad' AND NEW.state <> 'dead'");
      expect((await store.outbox.settle(rows.map(outcome))).closed.size).toBe(1);
      expect(await dead(database)).toHaveLength(1);
    });
  });
});

describe("an inbox whose statements fail", () => {
  test.each([
    [
      "without a column",
      "ALTER TABLE inbox RENAME headers TO others",
      "ALTER TABLE inbox RENAME others TO headers",
      "42703",
    ],
    [
      "that takes no writes",
      "ALTER DATABASE %I SET default_transaction_read_only = on",
      "ALTER DATABASE %I RESET default_transaction_read_only",
      "25006",
    ],
  ])("%s, is down until it takes messages again, also with receipts that relay", async (_, begin, end, state) => {
    await withTables(async (store, database) => {
      await passOne(store);
      await relayAll(store);
      const alter = async (statement: string) => {
        await database.query(statement.replace("%I", `"${database.name}"`));
        await database.query(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
      };
      await alter(begin);
      for (const insert of [() => store.inbox.insert(rowsOf("t1")), () => store.inbox.insertAllOrNone(rowsOf("t1"))]) {
        await expect(insert()).rejects.toThrow();
        // A statement may be the first to meet a connection that was ended.
        await eventually(() => expect(store.inbox.check()).rejects.toThrow(state));
      }

      // The sessions of the test may be as those of the service.
      await alter(`SET default_transaction_read_only = off; ${end}`);
      await eventually(() => store.inbox.check());
      await eventually(async () => expect(kinds(await store.inbox.insert(rowsOf("t2")))).toEqual(["stored"]));
    });
  });
});

describe("a unique key of the owner", () => {
  test("refuses the row that breaks it, not the others, though it would refuse the row that passed last as well", async () => {
    await withTables(async (store, database) => {
      await passOne(store);
      await database.query("CREATE UNIQUE INDEX ON outbox (topic, key)");
      await database.query("CREATE UNIQUE INDEX ON inbox (event_type, aggregate_id, consumption)");
      const row = inboxRow({ eventType: "once", aggregateId: "b" });
      await store.inbox.insert([row]);
      await relayAll(store);
      expect(await store.inbox.insert([{ ...row, id: inboxRow({}).id, idempotencyKey: "other" }])).toMatchObject([
        { kind: "refused", mayPassLater: false },
      ]);
      await database.query("INSERT INTO outbox (topic, key, payload) VALUES ('twice', 'c', '1')");
      await store.inbox.insert([inboxRow({ eventType: "twice", aggregateId: "c" })]);
      expect(await store.inbox.relay(TO_ANY)).toMatchObject({ dead: [{ reason: expect.stringContaining("23505") }] });
    });
  });
});

describe("a table that has accepted no row yet", () => {
  test("blames no row: none is dead or refused for good until the first one passes", async () => {
    await withTables(async (store, database) => {
      await refuse(database, "INSERT", "outbox", "NEW.topic = 'bad'");
      await database.query("ALTER TABLE inbox ADD CHECK (event_type <> 'worse') NOT VALID");
      await expect(store.inbox.insert(rowsOf("worse"))).rejects.toMatchObject(tableTrouble("no row has passed yet"));
      await store.inbox.check();
      await store.inbox.insert(rowsOf("bad"));
      await expect(store.inbox.relay(TO_ANY)).rejects.toMatchObject(tableTrouble("no row has passed yet"));
      expect(await dead(database)).toEqual([]);

      await store.inbox.insert([inboxRow({ eventType: "good", aggregateId: "b" })]);
      await relayAll(store);
      expect((await claimed(store)).map(({ topic }) => topic)).toEqual(["good"]);
      expect(await dead(database)).toHaveLength(1);
      expect(await store.inbox.insert(rowsOf("worse"))).toMatchObject([{ kind: "refused", mayPassLater: false }]);
    });
  });
});

describe("row level security", () => {
  test("stops the start when it applies to the user, and blames no row when it begins later", async () => {
    await withTables(async (_, database) => {
      const role = `svc_${database.name}`;
      await database.query(`CREATE ROLE "${role}" LOGIN PASSWORD '${database.password}'`);
      try {
        await database.query(`GRANT ALL ON ALL TABLES IN SCHEMA public TO "${role}"`);
        await withStore(postgresStore({ ...database, user: role }, DEFAULT_NAMES), async (store) => {
          await store.schema.checkColumns();
          await passOne(store);
          await database.query("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY");
          await store.inbox.insert(rowsOf("t1"));
          await expect(store.inbox.relay(TO_ANY)).rejects.toMatchObject(tableTrouble("42501"));
          await database.query("ALTER TABLE inbox ENABLE ROW LEVEL SECURITY");
          await expect(store.inbox.insert(rowsOf("t2"))).rejects.toMatchObject(tableTrouble("42501"));
          await expect(store.schema.checkColumns()).rejects.toMatchObject({
            problems: ["inbox", "outbox"].map((table) => ({
              path: `database.${table}TableName`,
              message: expect.stringMatching(/row level security/),
            })),
          });

          for (const table of ["inbox", "outbox"]) {
            await database.query(`ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY`);
          }
          await store.schema.checkColumns();
          await store.inbox.insert(rowsOf("t2"));
          await relayAll(store);
          expect((await claimed(store)).map(({ topic }) => topic)).toEqual(["t1", "t2"]);
          expect(await dead(database)).toEqual([]);
        });
      } finally {
        await database.query(`REVOKE ALL ON ALL TABLES IN SCHEMA public FROM "${role}"`);
        await database.query(`DROP ROLE "${role}"`);
      }
    });
  });
});
