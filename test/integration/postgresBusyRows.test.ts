import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { claimRequest, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { claimed, refuse, useLooseTables } from "../support/looseTables.ts";

failOnLeaks();
const { withTables } = useLooseTables();

/** A trigger may fail as a database does that cannot be reached, or is busy: that is the trouble of one row, too. */

const STATES = ["55P03", "40001", "57014", "08001", "53400", "28000", "57P03", "25006"];

const busy = (database: TestDatabase, when: string, table: string, condition: string, state = "55P03") =>
  refuse(database, when, table, condition, `USING ERRCODE = '${state}'`);

const later = (database: TestDatabase, table: string) => database.query(`DROP TRIGGER refuse ON ${table}`);

describe.each(STATES)("a row whose trigger raises the state %s", (state) => {
  test("is left out of claims for a while, and the others are claimed", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 9) n");
      await busy(database, "UPDATE", "outbox", "NEW.state = 'processing' AND NEW.topic = 't3'", state);

      expect(await store.outbox.claim(claimRequest())).toMatchObject({
        rows: [],
        more: true,
        refused: [{ reason: expect.stringContaining(`not this one (SQLSTATE ${state})`) }],
      });
      expect(await claimed(store)).toHaveLength(8);
    });
  });
});

// The pool repeats a statement of its own that fails so.
describe.each(["26000", "42P05"])("a row whose trigger raises the state %s of a prepared statement", (state) => {
  test("is refused, and the others are stored and claimed", async () => {
    await withTables(async (store, database) => {
      await busy(database, "INSERT", "inbox", "NEW.event_type = 'bad'", state);
      await busy(database, "UPDATE", "outbox", "NEW.topic = 't3'", state);
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 9) n");

      const outcomes = await store.inbox.insert(["good", "bad"].map((eventType) => inboxRow({ eventType })));

      expect(outcomes).toMatchObject([{ kind: "stored" }, { kind: "refused" }]);
      expect(await store.outbox.claim(claimRequest())).toMatchObject({
        refused: [{ reason: expect.stringContaining(`(SQLSTATE ${state})`) }],
      });
      expect(await claimed(store)).toHaveLength(8);
    });
  });
});

describe("a row whose trigger cannot do it now", () => {
  test("is not stored, and may be later; the others of its commit are stored", async () => {
    await withTables(async (store, database) => {
      await busy(database, "INSERT", "inbox", "NEW.event_type = 'bad'");
      const rows = ["good", "bad", "good"].map((eventType) => inboxRow({ eventType }));

      const outcomes = await store.inbox.insert(rows);

      expect(outcomes).toMatchObject([{ kind: "stored" }, { kind: "refused", mayPassLater: true }, { kind: "stored" }]);
    });
  });

  test.each(["inbox", "outbox"])(
    "at the relay stays pending where that of the %s fails, and the others are relayed",
    async (table) => {
      await withTables(async (store, database) => {
        await store.inbox.insert(
          Array.from({ length: 20 }, (_, n) =>
            inboxRow({ eventType: n === 3 ? "bad" : "good", idempotencyKey: `${n}` }),
          ),
        );
        const when = table === "inbox" ? "UPDATE" : "INSERT";
        await busy(database, when, table, `NEW.${table === "inbox" ? "event_type" : "topic"} = 'bad'`);
        const request = relayRequest({ topics: { orders: ["", ""] } });

        expect(await store.inbox.relay(request)).toMatchObject({
          relayed: 19,
          dead: [],
          refused: [{ reason: expect.stringContaining("SQLSTATE 55P03") }],
        });

        expect(await database.query("SELECT idempotency_key AS n FROM inbox WHERE state = 'pending'")).toEqual([
          { n: "3" },
        ]);
      });
    },
  );

  test("when it is settled keeps its claim, and the others are settled", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 40) n");
      const rows = await claimed(store);
      await busy(database, "UPDATE", "outbox", "NEW.topic = 't7'");
      const bad = rows[6];

      const settled = await store.outbox.settle(rows.map(sent));

      expect(settled.closed.size).toBe(39);
      expect([...settled.refused.keys()]).toEqual([bad?.id]);
      await later(database, "outbox");
      if (bad === undefined) throw new Error("no row");
      expect([...(await store.outbox.settle([sent(bad)])).closed]).toEqual([bad.id]);
      expect(await database.query("SELECT DISTINCT state FROM outbox")).toEqual([{ state: "sent" }]);
    });
  });

  test("when it is taken back does not block the others", async () => {
    await withTables(async (store, database) => {
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 9) n");
      await claimed(store);
      await database.query("UPDATE outbox SET lease_expires_at = now() - interval '1 second'");
      await busy(database, "UPDATE", "outbox", "NEW.topic = 't3'", "40001");

      expect(await store.outbox.reclaim(100, 60_000)).toBe(8);
    });
  });

  test("because another session has locked what the trigger asks for, is claimed once that has ended", async () => {
    await withTables(async (store, database) => {
      await database.query("CREATE TABLE orders (topic text); INSERT INTO orders VALUES ('t1'), ('t2')");
      await database.query("INSERT INTO outbox (topic, payload) VALUES ('t1', '1'), ('t2', '1')");
      await database.query(
        `CREATE FUNCTION ask() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM FROM orders o WHERE o.topic = NEW.topic FOR UPDATE NOWAIT; RETURN NEW; END $$;
         CREATE TRIGGER ask BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION ask()`,
      );
      const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
      await other.connect();
      try {
        await other.query("BEGIN; SELECT FROM orders WHERE topic = 't1' FOR UPDATE");

        expect((await store.outbox.claim(claimRequest())).refused).toHaveLength(1);
        expect((await claimed(store)).map(({ topic }) => topic)).toEqual(["t2"]);
      } finally {
        await other.end();
      }
    });
  });
});
