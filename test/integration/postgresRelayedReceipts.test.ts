import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { ClaimedRow, ClaimToken, NewInboxRow } from "../../src/model/rows.ts";
import type { ClaimRequest, Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, failed, inboxRow, parked, relayRequest, sent } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { collate, skip, useLooseTables } from "../support/looseTables.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";
import { withStore } from "../support/schemaChecks.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";

failOnLeaks();
const { withTables } = useLooseTables();

const REQUEST = relayRequest({ topics: { orders: ["", ""] }, limit: 3 });

/** Another replica on the tables. */
async function replicaOf(database: Parameters<typeof postgresStore>[0]) {
  const store = postgresStore(database, DEFAULT_NAMES, new ManualClock());
  return { store, [Symbol.asyncDispose]: () => store.close() };
}

/** What is in the tables, before any further pass of a relay. */
async function states(database: TestDatabase) {
  const rows = await database.query<{ state: string; n: number }>(
    "SELECT state, count(*)::int AS n FROM inbox GROUP BY state ORDER BY state",
  );
  const [outbox] = await database.query<{ n: number }>("SELECT count(*)::int AS n FROM outbox");
  return { ...Object.fromEntries(rows.map(({ state, n }) => [state, n])), outbox: outbox?.n };
}

const stored = async (store: Store, ...rows: readonly ReturnType<typeof inboxRow>[]) => {
  const outcomes = await store.inbox.insert(rows);
  expect(outcomes.map(({ kind }) => kind)).toEqual(rows.map(() => "stored"));
};

describe("a receipt relays its rows itself", () => {
  test("once the relay of its process has caught up, and no longer where rows wait", async () => {
    await withTables(async (store, database) => {
      await stored(store, inboxRow(), inboxRow());
      expect(await states(database)).toEqual({ pending: 2, outbox: 0 });
      await store.inbox.relay(REQUEST);
      // Of nothing, nothing is left to the relay.
      await stored(store);
      await stored(store, inboxRow(), inboxRow({ aggregateId: "a" }));
      expect(await states(database)).toEqual({ processed: 4, outbox: 4 });

      await stored(store, inboxRow({ eventType: " " }), inboxRow({ consumption: "pull" }));
      expect(await states(database)).toEqual({ pending: 2, processed: 4, outbox: 4 });
      await stored(store, inboxRow({ eventType: " " }), inboxRow({ eventType: " " }));
      // The pass is full: more may wait.
      expect(await store.inbox.relay(REQUEST)).toMatchObject({ relayed: 0, more: true });
      await stored(store, inboxRow());
      expect(await states(database)).toEqual({ dead: 3, pending: 2, processed: 4, outbox: 4 });
    });
  });

  test.each(["text", "char(40)", "varchar(10)"])(
    "with the topic and the headers that a pass of the relay gives them, with texts of the type %s",
    async (type) => {
      const eventTypes = ["a", "\t b\r\n", "\v\f", "\u00a0c\u2003", "\ufeff", null, "$1 \\1 %", "ä/ß", "d            "];
      const headers = [
        {},
        { Accept: "x", "ACCEPT-Ranges": "x", "x-kept": "1", Host: "h", hosts: "2" },
        { "Content-Type": "application/JSON; charset=utf-8", "content-type": "text/plain" },
        { "content-type": "application/cloudevents+json", "CONTENT-TYPE": "json" },
        { "x-correlation-id": "theirs", "x-inbox-id": "forged", "X-Inbox-Id": "other" },
        JSON.parse('{"__proto__":"p","constructor":"c","toString":"t","":"empty"}') as Record<string, string>,
        { "\u212Aeep-Alive": "k", VIA: "v", "IF-x": "f" },
        { É: "é", 名: '\u2028\u0007\\"', "x'y": "$1" },
      ];
      const request = relayRequest({ topics: { orders: ["", ""], own: [" t.", ".", ""] }, limit: 1000 });
      const rows = (name: string) =>
        ["orders", "own"].flatMap((source) =>
          eventTypes.flatMap((eventType, e) =>
            headers.map((given, h) =>
              inboxRow({
                source,
                eventType,
                headers: given,
                // With the blanks that `varchar` cuts.
                idempotencyKey: `${name}${source} ${e}${h}    `,
                correlationId: h % 2 === 0 ? null : "c            ",
              }),
            ),
          ),
        );
      await withTables(async (store, database) => {
        for (const column of ["source", "event_type", "idempotency_key", "correlation_id"]) {
          await database.query(`ALTER TABLE inbox ALTER COLUMN ${column} TYPE ${type}`);
        }
        await store.schema.checkColumns();
        const made = async (name: string) =>
          await database.query(
            `SELECT i.idempotency_key, i.state, o.topic, o.headers - 'x-inbox-id' - 'x-idempotency-key' AS headers,
             o.headers ->> 'x-inbox-id' = i.id::text AND o.headers ->> 'x-idempotency-key' = to_jsonb(i.idempotency_key) #>> '{}' AS is_named
           FROM inbox i LEFT JOIN outbox o ON o.id = i.id WHERE i.idempotency_key LIKE '${name}%' ORDER BY i.idempotency_key`,
          );
        const named = (rows: readonly pg.QueryResultRow[]) =>
          rows.map((row) => ({ ...row, idempotency_key: String(row.idempotency_key).slice(1) }));
        await stored(store, ...rows("a"));
        await store.inbox.relay(request);
        const byPass = await made("a");
        await stored(store, ...rows("b"));
        const atReceipt = await made("b");

        // Those without a topic are left to a pass.
        const isDead = ({ state }: pg.QueryResultRow) => state === "dead";
        expect(byPass.filter(isDead)).toHaveLength(2 * headers.length);
        expect(atReceipt.filter(({ state }) => state === "pending")).toHaveLength(2 * headers.length);
        await store.inbox.relay(request);
        expect(named(await made("b"))).toEqual(named(byPass));
        expect(byPass.filter((row) => !isDead(row)).every(({ is_named }) => is_named === true)).toBe(true);
      });
    },
  );

  test("but not where the inbox has a trigger, which may change a row that waits", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      await database.query(
        `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE inbox SET event_type = 'changed' WHERE id = NEW.id; RETURN NULL; END $$`,
      );
      await database.query("CREATE TRIGGER late AFTER INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION late()");
      await stored(store, inboxRow());
      expect(await states(database)).toEqual({ pending: 1, outbox: 0 });
      await store.inbox.relay(REQUEST);
      expect(await database.query("SELECT topic FROM outbox")).toEqual([{ topic: "changed" }]);
    });
  });

  test("but not where a trigger of the outbox takes each row, as it may take long", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      await skip(database, "INSERT", "outbox", "NEW.topic = 'bad'");
      await stored(store, inboxRow({ eventType: "bad" }), inboxRow({ eventType: "good" }));
      expect(await states(database)).toEqual({ pending: 2, outbox: 0 });
      expect(await store.inbox.relay(REQUEST)).toMatchObject({ relayed: 1, dead: [{}] });
      await database.query("DROP TRIGGER skip ON outbox");
      // This one tries again in some seconds.
      await using other = await replicaOf(database);
      await other.store.inbox.relay(REQUEST);
      await database.query(
        `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
         CREATE TRIGGER note AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION note()`,
      );
      await stored(other.store, inboxRow());
      expect(await states(database)).toEqual({ dead: 1, processed: 2, outbox: 2 });
    });
  });

  test("but not where the inbox is a view, which may have triggers behind it", async () => {
    await withTables(async (store, database) => {
      await database.query("ALTER TABLE inbox RENAME TO kept; CREATE VIEW inbox AS SELECT * FROM kept");
      await database.query(
        `CREATE FUNCTION plain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.headers := '{}'; RETURN NEW; END $$;
         CREATE TRIGGER plain BEFORE INSERT ON kept FOR EACH ROW EXECUTE FUNCTION plain()`,
      );
      await store.inbox.relay(REQUEST);
      await stored(store, inboxRow({ headers: { secret: "s" } }));
      expect(await states(database)).toEqual({ pending: 1, outbox: 0 });
      await store.inbox.relay(REQUEST);
      expect(await database.query("SELECT headers ->> 'secret' AS secret FROM outbox")).toEqual([{ secret: null }]);
    });
  });

  test("but not where they have very large headers, which would be sent twice", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      const headers = { "x-large": "a".repeat(100_000) };
      await stored(store, ...Array.from({ length: 90 }, () => inboxRow({ headers })));
      expect(await states(database)).toEqual({ pending: 90, outbox: 0 });
      await store.inbox.relay({ ...REQUEST, limit: 100 });
      await stored(store, ...Array.from({ length: 10 }, () => inboxRow({ headers })));
      expect(await states(database)).toEqual({ processed: 100, outbox: 100 });
    });
  });

  test("but not on a node of Citus, as which a server counts that has its catalogue", async () => {
    await withTables(async (store, database) => {
      await database.query(
        "BEGIN; SET LOCAL allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_partition (); COMMIT",
      );
      await store.inbox.relay(REQUEST);
      await stored(store, inboxRow());
      expect(await states(database)).toEqual({ pending: 1, outbox: 0 });
      expect(await store.inbox.relay(REQUEST)).toMatchObject({ relayed: 1 });
    });
  });

  test("but not where the outbox refuses a row: the relay makes that one dead", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      await database.query("ALTER TABLE outbox ADD CHECK (topic <> 'bad')");
      await stored(store, inboxRow({ eventType: "bad" }), inboxRow({ eventType: "good" }));
      expect(await states(database)).toEqual({ pending: 2, outbox: 0 });
      expect(await store.inbox.relay(REQUEST)).toMatchObject({ relayed: 1, dead: [{}] });
    });
  });

  test("and reads no rows that are scheduled ahead, once its mark has passed them", async () => {
    const AHEAD = 500;
    await withTables(async (_, database) => {
      await database.query(
        `INSERT INTO inbox (id, source, idempotency_key, aggregate_id, payload, headers, state, consumption, created_at, scheduled_at)
         SELECT gen_random_uuid(), 'orders', 'ahead-' || n, 'ahead-' || n, '{}', '{}', 'pending', 'push', now() - interval '1 hour', now() + interval '1 day'
         FROM generate_series(1, $1::int) n`,
        [AHEAD],
      );
      // A session writes its counters about once a second, all at the same time.
      const counters = async () => {
        const [row] = await database.query<{ stored: number; reads: number }>(
          `SELECT t.n_tup_ins::int AS stored, (SELECT sum(i.idx_tup_read)::int FROM pg_stat_user_indexes i
             WHERE i.indexrelname IN ('inbox_relay_idx', 'inbox_put_off_idx')) AS reads
           FROM pg_stat_user_tables t WHERE t.relname = 'inbox'`,
        );
        return row as { stored: number; reads: number };
      };
      await withStore(postgresStore(database, DEFAULT_NAMES, systemClock), async (store) => {
        let before = await counters();
        await eventually(async () => {
          await store.inbox.relay(REQUEST);
          await stored(store, inboxRow({ aggregateId: "a" }));
          const now = await counters();
          const receipts = now.stored - before.stored;
          if (receipts < 20) throw new Error("few receipts are counted yet");
          const each = (now.reads - before.reads) / receipts;
          before = now;
          expect(each).toBeLessThan(AHEAD / 10);
        });
      });
      expect(await states(database)).toMatchObject({ pending: AHEAD });
    });
  }, 60_000);

  test("but does not wait for the outbox table, which somebody holds", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      const holder = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
      await holder.connect();
      await holder.query("BEGIN; LOCK TABLE outbox IN SHARE MODE");
      await stored(store, inboxRow());
      await stored(store, inboxRow());
      await holder.end();
      expect(await states(database)).toEqual({ pending: 2, outbox: 0 });
    });
  });
});

describe("a receipt claims what it has relayed", () => {
  const ofKey = (aggregateId: string | null, more: Partial<NewInboxRow> = {}) => inboxRow({ aggregateId, ...more });
  /** @returns the claimed rows in the order given */
  const receive = async (store: Store, rows: readonly NewInboxRow[], overrides: Partial<ClaimRequest> = {}) => {
    const claimed: ClaimedRow[] = [];
    const onClaimed = (more: readonly ClaimedRow[]) => void claimed.push(...more);
    const outcomes = await store.inbox.insert(rows, { request: claimRequest(overrides), onClaimed });
    const inState = (state: string) =>
      rows.flatMap(({ id }, n) => {
        const outcome = outcomes[n];
        return outcome?.kind === "stored" && outcome.relayed === state ? [id] : [];
      });
    expect(claimed.map(({ id }) => id).sort()).toEqual([...inState("claimed")].sort());
    return { claimed, outcomes, pending: inState("pending") };
  };
  const keysOf = (rows: readonly ClaimedRow[]) => rows.map(({ key }) => key);

  test("up to its limit, in order, under a lease that is renewed and settled as any other", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      const token = claimRequest().token;
      const rows = [ofKey("a"), ofKey(null), ofKey("a"), ofKey("b")];
      const { claimed, pending } = await receive(store, rows, { token, limit: 3, leaseMs: 20_000 });
      expect(claimed.map(({ id }) => id)).toEqual(rows.slice(0, 3).map(({ id }) => id));
      expect(pending).toEqual([rows[3]?.id]);
      const inTable = await database.query(
        `SELECT state, claim_token AS token, claimed_at <= created_at AS now, round(extract(epoch FROM lease_expires_at - claimed_at))::int AS lease
         FROM outbox ORDER BY sequence`,
      );
      const mine = { state: "processing", token, now: true, lease: 20 };
      expect(inTable).toEqual([mine, mine, mine, { state: "pending", token: null, now: null, lease: null }]);
      expect((await store.outbox.claim(claimRequest())).rows.map(({ id }) => id)).toEqual([rows[3]?.id]);
      expect((await store.outbox.settle(claimed.map(sent))).closed.size).toBe(3);
    });
  });

  test("no longer than a claim may last", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      await receive(store, [ofKey("a")], { leaseMs: 20_000, claimTimeoutMs: 5000 });
      expect(
        await database.query("SELECT round(extract(epoch FROM lease_expires_at - claimed_at))::int AS s FROM outbox"),
      ).toEqual([{ s: 5 }]);
    });
  });

  test("behind rows of its key that wait, fail, are parked or claimed by another process: none", async () => {
    await withTables(async (store) => {
      const keys = ["pending", "retried", "parked", "elsewhere"];
      const insert = async (key: string) => await receive(store, [ofKey(key)]);
      await store.inbox.relay(REQUEST);
      for (const key of keys) {
        const { claimed } = await insert(key);
        expect(keysOf(claimed)).toEqual([key]);
        const [row] = claimed as [ClaimedRow];
        if (key === "pending") await store.outbox.settle([{ ...sent(row), kind: "release" }]);
        if (key === "retried") await store.outbox.settle([failed(row)]);
        if (key === "parked") await store.outbox.settle([parked(row)]);
      }
      const { claimed, pending } = await receive(
        store,
        [...keys, "free"].map((key) => ofKey(key)),
      );
      expect(keysOf(claimed)).toEqual(["free"]);
      expect(pending).toHaveLength(4);
    });
  });

  test("behind rows of its own claims, and those scheduled ahead, all", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      // It reads the marks: before, a receipt does not know whether the table went back behind its claims.
      await store.outbox.claim(claimRequest());
      const token = claimRequest().token;
      await receive(store, [ofKey("held")], { token });
      await database.query(
        "INSERT INTO outbox (topic, key, payload, scheduled_at) VALUES ('orders', 'ahead', '{}', now() + interval '1 hour')",
      );
      const { claimed } = await receive(store, [ofKey("held"), ofKey("ahead")], { heldTokens: [token] });
      expect(keysOf(claimed)).toEqual(["held", "ahead"]);
      const other = await receive(store, [ofKey("held")], { heldTokens: [token as ClaimToken] });
      // Behind a row of a claim that is not named.
      expect(other.claimed).toEqual([]);
    });
  });

  test("also where a duplicate is among them, and where the outcomes of the others are not known", async () => {
    await withTables(async (store, database) => {
      await store.inbox.relay(REQUEST);
      const first = ofKey("a", { idempotencyKey: "one" });
      await receive(store, [first]);
      const { claimed, outcomes } = await receive(store, [ofKey("b", { idempotencyKey: "one" }), ofKey("c")]);
      expect(keysOf(claimed)).toEqual(["c"]);
      expect(outcomes.map(({ kind }) => kind)).toEqual(["duplicate", "stored"]);

      // It loses the database before the statement that tells duplicates from other rows.
      await using proxy = await startTcpProxy(database);
      await using other = await replicaOf({ ...database, host: "127.0.0.1", port: proxy.port });
      await other.store.inbox.relay(REQUEST);
      const seen: ClaimedRow[] = [];
      const onClaimed = (more: readonly ClaimedRow[]) => {
        seen.push(...more);
        proxy.setMode("cut");
      };
      const rows = [ofKey("d", { idempotencyKey: "one" }), ofKey("e")];
      await expect(other.store.inbox.insert(rows, { request: claimRequest(), onClaimed })).rejects.toThrow();
      expect(keysOf(seen)).toEqual(["e"]);
    });
  });

  test("with the keys of a source whose name is padded", async () => {
    await withTables(async (store, database) => {
      await database.query("ALTER TABLE inbox ALTER COLUMN source TYPE char(12)");
      await store.inbox.relay(relayRequest({ topics: { own: ["", ""] }, ownKeySources: ["own"] }));

      await receive(store, [ofKey("a", { source: "own" })]);

      expect(await database.query("SELECT key FROM outbox")).toEqual([{ key: "own:a" }]);
    });
  });

  test("where each text of the tables has a collation of its own, as a pass of the relay does", async () => {
    await withTables(async (store, database) => {
      await collate(database);
      const request = relayRequest({ topics: { orders: ["", ""], own: ["", ""] }, ownKeySources: ["own"] });
      const rows = () => [ofKey("a"), ofKey("a", { source: "own" }), ofKey("b"), ofKey("c", { headers: { h: "1" } })];
      const keys = ["a", "b", "c", "own:a"];

      await receive(store, rows());
      expect(await store.inbox.relay(request)).toMatchObject({ relayed: 4 });
      const { rows: relayed } = await store.outbox.claim(claimRequest());
      expect(relayed.map(({ key }) => key).toSorted()).toEqual(keys);
      await store.outbox.settle(relayed.map(sent));

      expect((await receive(store, rows())).claimed.map(({ key }) => key).toSorted()).toEqual(keys);
      // Behind those.
      expect((await receive(store, rows())).claimed).toEqual([]);
      expect(await states(database)).toEqual({ processed: 12, outbox: 12 });
    });
  });
});

describe("while a receipt relays, until its commit,", () => {
  const held = (what: string) => `SELECT FROM pg_stat_activity WHERE datname = current_database() AND ${what}`;
  const isSeen = (database: TestDatabase, query: string) => async () => (await database.query(query)).length > 0;

  test("another message of its key stays behind it, whoever receives, relays and claims", async () => {
    await withTables(async (store, database) => {
      await using other = await replicaOf(database);
      await database.query(
        `CREATE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN true; END $$;
         ALTER TABLE outbox ADD CHECK (topic <> 'slow' OR slow())`,
      );
      for (const each of [store, other.store]) await each.inbox.relay(REQUEST);
      const [first, second] = [inboxRow({ aggregateId: "a", eventType: "slow" }), inboxRow({ aggregateId: "a" })];
      const claimed: ClaimedRow[] = [];
      const onClaimed = (rows: readonly ClaimedRow[]) => void claimed.push(...rows);
      const storing = store.inbox.insert([first], { request: claimRequest(), onClaimed });
      await eventually(isSeen(database, held("wait_event = 'PgSleep'")));

      await stored(other.store, second);
      expect(await database.query("SELECT id, state FROM inbox")).toEqual([{ id: second.id, state: "pending" }]);
      // It waits for the receipt: a claim that finds this one finds the first one too.
      expect(await other.store.inbox.relay(REQUEST)).toMatchObject({ relayed: 1 });
      expect(await database.query("SELECT id FROM outbox ORDER BY sequence")).toEqual([
        { id: first.id },
        { id: second.id },
      ]);
      await storing;
      expect(claimed.map(({ id }) => id)).toEqual([first.id]);
      expect((await other.store.outbox.claim(claimRequest())).rows).toEqual([]);
      await store.outbox.settle(claimed.map(sent));
      expect((await other.store.outbox.claim(claimRequest())).rows.map(({ id }) => id)).toEqual([second.id]);
    });
  });

  test("nobody waits for long for one whose bytes do not come", async () => {
    await withTables(async (store, database) => {
      await using proxy = await startTcpProxy(database);
      await using far = await replicaOf({ ...database, host: "127.0.0.1", port: proxy.port });
      await far.store.inbox.relay(REQUEST);
      proxy.setDelay(200);
      const storing = far.store.inbox.insert([inboxRow({ payload: JSON.stringify("x".repeat(8_000_000)) })]);
      const failed = expect(storing).rejects.toThrow();
      await eventually(isSeen(database, "SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"));
      proxy.setMode("held");
      await stored(store, inboxRow());
      expect(await store.inbox.relay(REQUEST)).toMatchObject({ relayed: 1 });
      proxy.setMode("cut");
      await failed;
    });
  }, 20_000);
});
