import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, died, failed, inboxRow, relayRequest, released, sent } from "../conformance/store/harness.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { claimed, refuse, skip, states, useLooseTables } from "../support/looseTables.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { withStore } from "../support/schemaChecks.ts";

failOnLeaks();
const { open, withTables } = useLooseTables();

/** Whatever an owner's table and triggers let in or turn away is the fault of one row, and stays with it. */

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

      const rows = [...(await claimed(store)), ...(await claimed(store)), ...(await claimed(store))];

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
    await using database = await open();
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
        expect(await store.replay.move(scope, [row.id], "alice")).toMatchObject({ changed: 1 });
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
  /** Three rows under one claim; the second is refused. */
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
});

describe("a row that a trigger skips without an error", () => {
  const skipped = { kind: "refused", reason: expect.stringContaining("a trigger"), mayPassLater: true };
  const stored = { kind: "stored" };

  test("in the inbox is refused, never a duplicate, and the others of its batch are stored", async () => {
    await withTables(async (store, database) => {
      const [bad, good, other] = ["bad", "good", "other"].map((eventType) => inboxRow({ eventType }));
      if (bad === undefined || good === undefined || other === undefined) throw new Error("three rows are expected");
      await skip(database, "INSERT", "inbox", "NEW.event_type = 'bad'");

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

  test("in the inbox is the table's fault if every row of two batches in turn is skipped", async () => {
    await withTables(async (store, database) => {
      await skip(database, "INSERT", "inbox", "true");
      await store.inbox.insert([inboxRow({})]);
      await store.inbox.check();
      await store.inbox.insert([inboxRow({}), inboxRow({})]);
      await expect(store.inbox.check()).rejects.toMatchObject({ code: "schema" });
      await database.query("DROP TRIGGER skip ON inbox");
      await store.inbox.insert([inboxRow({})]);
      await store.inbox.check();
    });
  });

  test("in the outbox stays in the inbox, is named, and the others are relayed", async () => {
    await withTables(async (store, database) => {
      await store.inbox.insert(["a", "bad", "b", "c"].map((eventType) => inboxRow({ eventType })));
      await skip(database, "INSERT", "outbox", "NEW.topic = 'orders.bad'");

      const relayed = [await store.inbox.relay(relayRequest()), await store.inbox.relay(relayRequest())];

      expect(relayed.map((each) => each.relayed)).toEqual([3, 0]);
      expect(relayed[0]?.dead).toEqual([]);
      expect(relayed[0]?.refused).toMatchObject([{ reason: expect.stringContaining("a trigger") }]);
      expect(await database.query("SELECT event_type, state FROM inbox ORDER BY event_type")).toEqual([
        { event_type: "a", state: "processed" },
        { event_type: "b", state: "processed" },
        { event_type: "bad", state: "pending" },
        { event_type: "c", state: "processed" },
      ]);
      expect((await states(database)).map(({ topic }) => topic)).toEqual(["orders.a", "orders.b", "orders.c"]);
    });
  });
});
