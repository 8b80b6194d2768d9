import { describe, expect, test } from "@jest/globals";
import { history, markBound, PostgresLowWater } from "../../src/adapters/stores/postgres/lowWater.ts";
import { outboxParts } from "../../src/adapters/stores/postgres/outboxParts.ts";
import { outboxStatements } from "../../src/adapters/stores/postgres/outboxSql.ts";
import { type Statement, valuesInOrder } from "../../src/adapters/stores/postgres/statement.ts";
import { fixedStatements } from "../../src/adapters/stores/postgres/statements.ts";
import { OutboxClaims } from "../../src/adapters/stores/sql/claims.ts";
import { SqlHistory } from "../../src/adapters/stores/sql/history.ts";
import type { StatementRunner, Values } from "../../src/adapters/stores/sql/rows.ts";
import type { ClaimedRow, MessageId } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, inboxRow, relayRequest, sent } from "../conformance/store/harness.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { goBack, type Server } from "../support/goneBack.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, silentLog } from "../support/recorders.ts";

failOnLeaks();

/**
 * What becomes of running replicas when the database goes back in time: a failover that lost commits, a restored
 * backup, a sequence that starts anew.
 */

const MARK_AGE_MS = 1001;

const claimed = async (store: Store) => (await store.outbox.claim(claimRequest())).rows;
const payloads = async (store: Store) => (await claimed(store)).map((row) => row.payload);
const texts = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, n) => String(first + n));
const INSERT =
  "INSERT INTO outbox (topic, key, payload) SELECT 't', 'k', n::text FROM generate_series($1::int, $2::int) n";

describe("a server that comes back in an earlier state, at the same address", () => {
  const statements = outboxStatements(DEFAULT_NAMES, outboxParts(DEFAULT_NAMES, "text"));

  test("is read anew by pollers and relays that ran on: nothing is passed over, and nothing overtaken", async () => {
    const clock = new ManualClock();
    let store: Store | undefined;
    // It leaves its rows to the relay of the other one.
    let ingest: Store | undefined;
    const onceBack = <T>(work: (store: Store) => Promise<T>) => eventually(() => work(store as Store));
    await goBack(
      async (server) => {
        await server.query(INSERT, [1, 5]);
      },
      async (server) => {
        store = server.store(clock);
        ingest = server.store(clock);
        await server.query(INSERT, [6, 20]);
        for (let pass = 0; pass < 4; pass += 1) {
          await store.outbox.settle((await claimed(store)).map(sent));
          await ingest.inbox.insert([inboxRow({ aggregateId: "a" })]);
          await store.inbox.relay(relayRequest());
          clock.advance(MARK_AGE_MS);
        }
        // No mark is due when it is back.
        await store.outbox.settle((await claimed(store)).map(sent));
        expect(await store.inbox.relay(relayRequest())).toMatchObject({ relayed: 0 });
      },
      async (server) => {
        await server.query(INSERT, [6, 45]);
        expect((await onceBack(claimed)).map((row) => row.payload)).toEqual(texts(1, 45));
        const received = [inboxRow({ aggregateId: "a" }), inboxRow({ aggregateId: "a" })];
        await onceBack(() => (ingest as Store).inbox.insert(received));
        await server.query("UPDATE inbox SET created_at = created_at - interval '1 hour'");
        expect(await onceBack(({ inbox }) => inbox.relay(relayRequest()))).toMatchObject({ relayed: 2 });
      },
    );
  }, 120_000);

  test("has rows under a claim of a poller that it gave back since: no later row of their keys passes them", async () => {
    const clock = new ManualClock();
    const first = claimRequest({ limit: 2 });
    const second = () => claimRequest({ heldTokens: [first.token] });
    let store: Store | undefined;
    await goBack(
      async (server) => {
        store = server.store(clock);
        await server.query(INSERT, [1, 1]);
        await server.query("INSERT INTO outbox (topic, key, payload) VALUES ('t', 'slow', 'slow')");
        await server.query(INSERT, [2, 2]);
        expect((await store.outbox.claim(first)).rows.map((row) => row.payload)).toEqual(["1", "slow"]);
      },
      async (server) => {
        const [row] = await server.query("SELECT id, claim_token FROM outbox WHERE payload = '1'");
        const outcome = { id: row?.id as MessageId, claimToken: first.token, kind: "release" } as const;
        await eventually(() => (store as Store).outbox.settle([outcome]));
        expect(await server.query("SELECT state FROM outbox WHERE payload = '1'")).toEqual([{ state: "pending" }]);
      },
      async (server) => {
        expect((await eventually(() => (store as Store).outbox.claim(second()))).rows).toEqual([]);
        await server.query("UPDATE outbox SET lease_expires_at = now() - interval '1 second' WHERE payload = '1'");
        await store?.outbox.reclaim(10, 60_000);
        clock.advance(MARK_AGE_MS);
        expect((await (store as Store).outbox.claim(second())).rows.map((row) => row.payload)).toEqual(["1", "2"]);
      },
    );
  }, 120_000);

  test("has a row again that was sent: one that was in delivery behind it is delivered once more, after it", async () => {
    const clock = new ManualClock();
    let store: Store | undefined;
    let rows: readonly ClaimedRow[] = [];
    await goBack(
      async (server) => {
        store = server.store(clock);
        await server.query(INSERT, [1, 2]);
        rows = await claimed(store);
      },
      async () => {
        const first = rows.slice(0, 1).map(sent);
        expect((await eventually(() => (store as Store).outbox.settle(first))).closed.size).toBe(1);
      },
      async (server) => {
        const { closed, refused } = await eventually(() => (store as Store).outbox.settle(rows.slice(1).map(sent)));
        expect([closed.size, [...refused.keys()]]).toEqual([0, [rows[1]?.id]]);
        expect([...refused.values()]).toEqual([
          expect.stringContaining("an earlier row of its key is unfinished again"),
        ]);

        await server.query("UPDATE outbox SET lease_expires_at = now() - interval '1 second'");
        await store?.outbox.reclaim(10, 60_000);
        clock.advance(MARK_AGE_MS);
        const again = await claimed(store as Store);
        expect(again.map((row) => row.payload)).toEqual(["1", "2"]);
        expect((await store?.outbox.settle(again.map(sent)))?.closed.size).toBe(2);
      },
    );
  }, 120_000);

  test("has rows that a poller gave back since, which no later row passes where a pooler hides the loss either", async () => {
    const first = claimRequest({ limit: 1 });
    let claims: OutboxClaims<Statement> | undefined;
    let lowWater: PostgresLowWater | undefined;
    await goBack(
      async (server) => {
        const run = (statement: Statement, values: Values = {}) =>
          server.query(statement.text, valuesInOrder(statement, values));
        const runner: StatementRunner<Statement> = {
          run,
          runAll: async (statement, values) => [await run(statement, values)],
          runAndRollBack: (work) => work(run),
        };
        const clock = new ManualClock();
        lowWater = new PostgresLowWater({ run, lostConnections: 0 }, statements, clock);
        const entries = new SqlHistory(runner, fixedStatements(DEFAULT_NAMES).history, () => false, clock, silentLog);
        claims = new OutboxClaims(runner, statements, lowWater, entries, clock);
        await server.query(INSERT, [1, 3]);
      },
      async () => {
        expect((await claims?.claim(first))?.rows.map((row) => row.payload)).toEqual(["1"]);
        for (let read = 0; read < 3; read += 1) await lowWater?.refreshIfDue(0);
      },
      async (server) => {
        // As a copy of the time between the claim and its end would have it.
        await server.query(
          "UPDATE outbox SET state = 'processing', claim_token = $1, claimed_at = now(), lease_expires_at = now() + interval '1 hour' WHERE payload = '1'",
          [first.token],
        );
        expect((await claims?.claim(claimRequest({ heldTokens: [first.token] })))?.rows).toEqual([]);
      },
    );
  }, 120_000);

  test("is known by its start and its transactions where a pooler hides that connections were lost", async () => {
    let lowWater: PostgresLowWater | undefined;
    const bound = async (server: Server) => {
      const rows = await server.query(`WITH ${history("$1")} SELECT ${markBound("$1")} AS bound`, [lowWater?.bound()]);
      return Number(rows[0]?.bound);
    };
    await goBack(
      async (server) => {
        const run = (statement: Statement, values: Values = {}) =>
          server.query(statement.text, valuesInOrder(statement, values));
        lowWater = new PostgresLowWater({ run, lostConnections: 0 }, statements, new ManualClock());
      },
      async (server) => {
        await server.query(INSERT, [1, 20]);
        await server.query("UPDATE outbox SET state = 'sent' WHERE sequence <= 15");
        for (let read = 0; read < 3; read += 1) await lowWater?.refreshIfDue(0);
        expect(await bound(server)).toBe(16);
        expect(lowWater?.marks.newestTransaction).toBeGreaterThan(0n);
      },
      async (server) => {
        expect(await bound(server)).toBe(0);
        await lowWater?.refreshIfDue(0);
        expect(lowWater?.marks).toMatchObject({ newest: "0", stable: "0", afterHighest: undefined });
      },
    );
  }, 120_000);
});

describe("a sequence that goes back under running pollers", () => {
  const withStore = async (body: (store: Store, database: TestDatabase, clock: ManualClock) => Promise<void>) => {
    await using database = await createDatabase();
    const clock = new ManualClock();
    const store = postgresStore(database, DEFAULT_NAMES, clock);
    try {
      await store.schema.migrate();
      await database.query(INSERT, [1, 30]);
      for (let pass = 0; pass < 3; pass += 1) {
        await store.outbox.settle((await claimed(store)).map(sent));
        clock.advance(MARK_AGE_MS);
      }
      await claimed(store);
      await body(store, database, clock);
    } finally {
      await store.close();
    }
  };

  test.each([
    ["setval", "SELECT setval('outbox_sequence_seq', 25)"],
    ["ALTER TABLE", "ALTER TABLE outbox ALTER COLUMN sequence RESTART WITH 26"],
  ])("by %s is met by the next claim: no row is passed by a later one", async (_, goBack) => {
    await withStore(async (store, database) => {
      await database.query(goBack);
      await database.query(INSERT, [26, 28]);
      // Whatever was known is thrown away by this claim, or by the read of the next one.
      await store.outbox.settle((await claimed(store)).map(sent));
      await database.query(INSERT, [29, 35]);
      const later = await payloads(store);
      expect(later.slice(-7)).toEqual(texts(29, 35));
      expect(await database.query("SELECT FROM outbox WHERE state = 'pending'")).toEqual([]);
    });
  });

  test("is not looked at where the service may not read it, or where there is none", async () => {
    await withStore(async (store, database, clock) => {
      await database.query("ALTER TABLE outbox ALTER COLUMN sequence DROP IDENTITY");
      await database.query("INSERT INTO outbox (topic, payload, sequence) VALUES ('t', '31', 31)");
      clock.advance(MARK_AGE_MS);
      expect(await payloads(store)).toEqual(["31"]);
    });
  });
});
