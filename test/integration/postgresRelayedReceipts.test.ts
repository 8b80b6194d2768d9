import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { ClaimedRow, ClaimToken, NewInboxRow } from "../../src/model/rows.ts";
import type { ClaimRequest, RelayRules, Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { claimRequest, failed, inboxRow, parked, relayRequest, sent } from "../conformance/store/harness.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { collate, useLooseTables } from "../support/looseTables.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { withStore } from "../support/schemaChecks.ts";

failOnLeaks();
const tables = useLooseTables();
const withTables = (body: (store: Store, database: TestDatabase) => Promise<void>) =>
  tables.withTables(async (store, database) => {
    await store.schema.checkColumns();
    await body(store, database);
  });

const REQUEST = relayRequest({ topics: { orders: ["", ""], own: ["", ""] }, ownKeySources: ["own"], limit: 3 });

/** What is in the tables, before any further pass of a relay. */
async function states(database: TestDatabase) {
  const rows = await database.query<{ state: string; n: number }>(
    "SELECT state, count(*)::int AS n FROM inbox GROUP BY state ORDER BY state",
  );
  const [outbox] = await database.query<{ n: number }>("SELECT count(*)::int AS n FROM outbox");
  return { ...Object.fromEntries(rows.map(({ state, n }) => [state, n])), outbox: outbox?.n };
}

const insert = async (
  { inbox }: Store,
  rows: readonly NewInboxRow[],
  relay: RelayRules = REQUEST,
  claim?: ClaimRequest,
) => (await inbox.insertRelayed?.(rows, relay, claim)) ?? { outcomes: await inbox.insert(rows), claimed: [] };

const stored = async (store: Store, rows: readonly NewInboxRow[], relay?: RelayRules) => {
  const { outcomes } = await insert(store, rows, relay);
  expect(outcomes.map(({ kind }) => kind)).toEqual(rows.map(() => "stored"));
};

describe("a receipt relays its rows itself", () => {
  test("but for those without a topic, or if it stores others with them", async () => {
    await withTables(async (store, database) => {
      await stored(store, []);
      await stored(store, [inboxRow(), inboxRow({ aggregateId: "a" })]);
      expect(await states(database)).toEqual({ processed: 2, outbox: 2 });
      await stored(store, [inboxRow({ eventType: " " }), inboxRow()]);
      expect(await states(database)).toEqual({ pending: 1, processed: 3, outbox: 3 });
      await stored(store, [inboxRow(), inboxRow({ consumption: "pull" })]);
      expect(await states(database)).toEqual({ pending: 3, processed: 3, outbox: 3 });
    });
  });

  test("with the topic and the headers that a pass of the relay gives them", async () => {
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
      const made = async (name: string) =>
        await database.query(
          `SELECT i.idempotency_key, i.state, o.topic, o.headers - 'x-inbox-id' - 'x-idempotency-key' AS headers,
             o.headers ->> 'x-inbox-id' = i.id::text AND o.headers ->> 'x-idempotency-key' = to_jsonb(i.idempotency_key) #>> '{}' AS is_named
           FROM inbox i LEFT JOIN outbox o ON o.id = i.id WHERE i.idempotency_key LIKE '${name}%' ORDER BY i.idempotency_key`,
        );
      const named = (rows: readonly pg.QueryResultRow[]) =>
        rows.map((row) => ({ ...row, idempotency_key: String(row.idempotency_key).slice(1) }));
      await store.inbox.insert(rows("a"));
      await store.inbox.relay(request);
      const byPass = await made("a");
      await stored(store, rows("b"), request);
      const atReceipt = await made("b");

      // Those without a topic are left to a pass.
      const isDead = ({ state }: pg.QueryResultRow) => state === "dead";
      expect(byPass.filter(isDead)).toHaveLength(2 * headers.length);
      expect(atReceipt.filter(({ state }) => state === "pending")).toHaveLength(2 * headers.length);
      await store.inbox.relay(request);
      expect(named(await made("b"))).toEqual(named(byPass));
      expect(byPass.filter((row) => !isDead(row)).every(({ is_named }) => is_named === true)).toBe(true);
    });
  });

  test("but not if the columns change the texts that make topic and headers", async () => {
    await withTables(async (store, database) => {
      await database.query("ALTER TABLE inbox ALTER COLUMN event_type TYPE char(40)");
      await store.schema.checkColumns();
      await stored(store, [inboxRow()]);
      expect(await states(database)).toEqual({ pending: 1, outbox: 0 });
    });
  });

  test("but not on a node of Citus, as which a server counts that has its catalogue", async () => {
    await withTables(async (store, database) => {
      await database.query(
        "BEGIN; SET LOCAL allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_partition (); COMMIT",
      );
      await store.schema.checkColumns();
      await stored(store, [inboxRow()]);
      expect(await states(database)).toEqual({ pending: 1, outbox: 0 });
      expect(await store.inbox.relay(REQUEST)).toMatchObject({ relayed: 1 });
    });
  });

  test("but not if the outbox refuses a row: the relay makes that one dead", async () => {
    await withTables(async (store, database) => {
      await database.query("ALTER TABLE outbox ADD CHECK (topic <> 'bad')");
      await stored(store, [inboxRow({ eventType: "bad" }), inboxRow({ eventType: "good" })]);
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
        await store.schema.checkColumns();
        let before = await counters();
        await eventually(async () => {
          await stored(store, [inboxRow({ aggregateId: "a" })]);
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
      const holder = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
      await holder.connect();
      await holder.query("BEGIN; LOCK TABLE outbox IN SHARE MODE");
      await stored(store, [inboxRow()]);
      await stored(store, [inboxRow()]);
      await holder.end();
      expect(await states(database)).toEqual({ pending: 2, outbox: 0 });
    });
  });
});

describe("a receipt claims what it has relayed", () => {
  const ofKey = (aggregateId: string | null, more: Partial<NewInboxRow> = {}) => inboxRow({ aggregateId, ...more });
  /** @returns the claimed rows in the order given */
  const receive = async (store: Store, rows: readonly NewInboxRow[], overrides: Partial<ClaimRequest> = {}) => {
    const { outcomes, claimed } = await insert(store, rows, REQUEST, claimRequest(overrides));
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

  test("also if a duplicate is among them", async () => {
    await withTables(async (store) => {
      const first = ofKey("a", { idempotencyKey: "one" });
      await receive(store, [first]);
      const { claimed, outcomes } = await receive(store, [ofKey("b", { idempotencyKey: "one" }), ofKey("c")]);
      expect(keysOf(claimed)).toEqual(["c"]);
      expect(outcomes.map(({ kind }) => kind)).toEqual(["duplicate", "stored"]);
    });
  });

  test("if each text of the tables has a collation of its own, as a pass of the relay does", async () => {
    await withTables(async (store, database) => {
      await collate(database);
      const rows = () => [ofKey("a"), ofKey("a", { source: "own" }), ofKey("b"), ofKey("c", { headers: { h: "1" } })];
      const keys = ["a", "b", "c", "own:a"];

      await store.inbox.insert(rows());
      expect(await store.inbox.relay({ ...REQUEST, limit: 10 })).toMatchObject({ relayed: 4 });
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
