import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { StoreError } from "../../src/model/errors.ts";
import type { ClaimedRow, ClaimToken, MessageId, Outcome } from "../../src/model/rows.ts";
import { claimRequest, failed, inboxRow, recorded, relayRequest, sent } from "../conformance/store/harness.ts";
import { pullRequest } from "../conformance/store/pullSupport.ts";
import { createDatabase, TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { refuse } from "../support/looseTables.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { withStore } from "../support/schemaChecks.ts";

failOnLeaks();

/** Locks of an operator's or an application's transaction that nobody ends. */

/** Of the store. */
const POOL_SIZE = 4;
const LEASE = { leaseMs: 30_000, claimTimeoutMs: 60_000 };

const noted = (row: ClaimedRow): Outcome => recorded(failed(row));

async function setUp() {
  const database = await createDatabase();
  const store = postgresStore(database, DEFAULT_NAMES);
  await store.schema.migrate();
  const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await other.connect();
  await other.query("BEGIN");
  return {
    database,
    store,
    other,
    async [Symbol.asyncDispose]() {
      await other.end();
      await store.close();
      await database.drop();
    },
  };
}

describe("a row that a transaction of somebody else holds", () => {
  test("does not block the renewal of other claims", async () => {
    await using setup = await setUp();
    const { database, store, other } = setup;
    await database.query("INSERT INTO outbox (topic, payload) SELECT 't', '1' FROM generate_series(1, 5) n");
    const { rows } = await store.outbox.claim(claimRequest());
    const [held, ...free] = rows as [ClaimedRow, ...ClaimedRow[]];
    await other.query("SELECT FROM outbox WHERE id = $1 FOR UPDATE", [held.id]);

    const renewed = await store.outbox.renew([held.claimToken as ClaimToken], LEASE);

    expect(renewed).toEqual(new Set(free.map(({ id }) => id)));
  });

  test.each([
    ["sent", sent],
    ["failed, with an entry of the history", noted],
  ] as const)("does not block other outcomes, and keeps its claim: %s", async (_, outcomeOf) => {
    await using setup = await setUp();
    const { database, store, other } = setup;
    await store.schema.checkColumns();
    await database.query("INSERT INTO outbox (topic, payload) SELECT 't', '1' FROM generate_series(1, 5) n");
    const { rows } = await store.outbox.claim(claimRequest());
    const outcomes = rows.map(outcomeOf);
    await other.query("SELECT FROM outbox WHERE id = $1 FOR UPDATE", [rows[0]?.id]);

    const { closed, refused } = await store.outbox.settle(outcomes);

    expect(closed).toEqual(new Set(rows.slice(1).map(({ id }) => id)));
    expect([...refused]).toEqual([[rows[0]?.id, "another transaction locks the row"]]);
    await expect(store.outbox.settle(outcomes.slice(0, 1))).rejects.toMatchObject({ code: "contention" });
    await other.query("COMMIT");
    expect((await store.outbox.settle(outcomes.slice(0, 1))).closed).toEqual(new Set([rows[0]?.id]));
    expect(await database.query("SELECT FROM outbox_history")).toHaveLength(outcomeOf === noted ? 5 : 0);
  });

  test.each([
    ["while the lock lasts", false, "another transaction locks the row"],
    ["and is refused too once the lock has ended", true, expect.stringContaining("not this one")],
  ])(
    "and a row that a trigger refuses together do not block the outcomes of the others: %s",
    async (_, ends, reason) => {
      await using setup = await setUp();
      const { database, store, other } = setup;
      await database.query("INSERT INTO outbox (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, 9) n");
      const { rows } = await store.outbox.claim(claimRequest());
      await refuse(database, "UPDATE", "outbox", "NEW.topic IN ('t1', 't5')");
      await other.query("SELECT FROM outbox WHERE topic = 't1' FOR UPDATE");

      const settling = store.outbox.settle(rows.map(sent));
      await eventually(async () => {
        expect(await database.query("SELECT FROM outbox WHERE state = 'sent'")).toHaveLength(7);
      });
      if (ends) await other.query("COMMIT");

      const { closed, refused } = await settling;
      expect(closed.size).toBe(7);
      expect(refused).toEqual(
        new Map([
          [rows[4]?.id, expect.stringContaining("not this one")],
          [rows[0]?.id, reason],
        ]),
      );
    },
  );

  test("and those after it keep a settlement for five seconds at the most, however short each wait", async () => {
    await using setup = await setUp();
    const { database, store } = setup;
    await database.query("INSERT INTO outbox (topic, payload) VALUES ('t', '1')");
    const { rows } = await store.outbox.claim(claimRequest());
    await database.query(`CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.last_error := current_setting('lock_timeout') || ', ' || current_setting('statement_timeout');
      RETURN NEW; END $$`);
    await database.query("CREATE TRIGGER waits BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION waits()");

    await store.outbox.settle(rows.map(sent));

    expect(await database.query("SELECT last_error FROM outbox")).toEqual([{ last_error: "2s, 5s" }]);
  });
});

test("a pull client whose message somebody holds soon gives its connection back", async () => {
  await using setup = await setUp();
  const { store, other } = setup;
  await store.inbox.insert([inboxRow({ consumption: "pull" }), inboxRow({ consumption: "pull" })]);
  const { source } = pullRequest();
  const { token, rows } = await store.pull.claim(pullRequest());
  expect(rows).toHaveLength(2);
  await other.query("SELECT FROM inbox WHERE id = $1 FOR UPDATE", [rows[0]?.id]);
  const held = { source, token, ids: null };

  const tries = await Promise.allSettled([
    store.pull.acknowledge(held),
    store.pull.extend(held, 30_000),
    store.pull.reject(held, { delayMs: 0, reason: null, maxAttempts: 5 }),
  ]);

  expect(tries.map((each) => each.status === "rejected" && (each.reason as StoreError).code)).toEqual(
    tries.map(() => "contention"),
  );
  await other.query("COMMIT");
  expect(await store.pull.acknowledge(held)).toHaveLength(2);
});

test("what has given up on a locked table waits for it no more on the server either", async () => {
  await using setup = await setUp();
  const { database, store, other } = setup;
  await database.query("INSERT INTO outbox (topic, payload) VALUES ('t', '1')");
  const { rows } = await store.outbox.claim(claimRequest());
  await other.query("LOCK TABLE outbox IN SHARE MODE");

  await expect(
    store.outbox.renew(
      rows.map(({ claimToken }) => claimToken),
      LEASE,
    ),
  ).rejects.toMatchObject({
    code: "contention",
  });

  expect(
    await database.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    ),
  ).toEqual([]);
});

test("nor does what has given up on the locked tables for operators: a beat is not counted after all", async () => {
  await using setup = await setUp();
  const { database, store, other } = setup;
  const { operations, destinations } = store;
  await other.query(
    "LOCK TABLE outbox_process, outbox_figures, outbox_audit, outbox_destination IN ACCESS EXCLUSIVE MODE",
  );
  const counted = { kind: "source", name: "a", minutesAgo: 0, received: 1 } as const;
  const none = { duplicate: 0, filtered: 0, sent: 0, failed: 0, dead: 0 };

  const tries = await Promise.allSettled([
    operations.beat({ name: "host-1", version: "1", roles: [], upMs: 0 }, [{ ...counted, ...none }]),
    operations.addAudit({ actor: "alice", action: "pause", target: null, detail: null }),
    operations.processes(),
    destinations.states(),
  ]);

  expect(tries.map((each) => each.status === "rejected" && (each.reason as StoreError).code)).toEqual(
    tries.map(() => "contention"),
  );
  expect(
    await database.query(
      "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    ),
  ).toEqual([]);
  await other.query("ROLLBACK");
  expect(await operations.figures(5)).toEqual([]);
  expect(await operations.audit(null, 10)).toEqual([]);
});

test("an inbox that is locked holds up no claim of an idle process, and is checked again when it is free", async () => {
  await using it = await setUp();
  const check = () => [it.store.inbox.relay(relayRequest()), it.store.outbox.claim(claimRequest())] as const;
  // Twice: from the second time on there are idle checks only.
  for (let n = 0; n < 2; n += 1) await Promise.all(check());

  await it.other.query("LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE");
  await it.database.query("INSERT INTO outbox (topic, payload) VALUES ('t', '1')");
  const [relayed, claimed] = check();
  expect((await claimed).rows.map((row) => row.payload)).toEqual(["1"]);

  await it.other.query(
    "INSERT INTO inbox (id, source, idempotency_key, payload) VALUES (gen_random_uuid(), 'orders', 'k', '2')",
  );
  await it.other.query("COMMIT");
  expect((await relayed).relayed).toBe(1);
});

test("an outbox that is locked leaves receipts a connection of their own", async () => {
  await using setup = await setUp();
  const { database, store, other } = setup;
  await store.inbox.insert([inboxRow()]);
  await other.query("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE");
  const claims = Array.from({ length: 2 * POOL_SIZE }, () => store.outbox.claim(claimRequest()));
  await eventually(async () => {
    const waiting = await database.query("SELECT FROM pg_locks WHERE relation = 'outbox'::regclass AND NOT granted");
    expect(waiting).toHaveLength(POOL_SIZE - 1);
  });

  expect(await store.inbox.insert([inboxRow()])).toEqual([{ kind: "stored" }]);

  expect(store.connections.usage().waiting).toBe(POOL_SIZE + 1);
  await other.query("ROLLBACK");
  for (const { rows } of await Promise.all(claims)) expect(rows).toEqual([]);
});

test("an inbox that is locked leaves deliveries a connection of their own", async () => {
  await using setup = await setUp();
  const { database, store, other } = setup;
  await database.query("INSERT INTO outbox (topic, payload) VALUES ('orders', '1')");
  await store.outbox.backlog();
  await other.query("LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE");
  // As of so many partitions.
  const receipts = Array.from({ length: 2 * POOL_SIZE }, () => store.inbox.insert([inboxRow()]));
  await eventually(() =>
    expect(store.connections.usage()).toMatchObject({ used: POOL_SIZE - 1, waiting: POOL_SIZE + 1 }),
  );

  const { rows } = await store.outbox.claim(claimRequest());
  expect((await store.outbox.settle(rows.map(sent))).closed.size).toBe(1);

  await other.query("ROLLBACK");
  for (const outcomes of await Promise.all(receipts)) expect(outcomes).toEqual([{ kind: "stored" }]);
});

describe("who holds a row", () => {
  test("is known of a row that is locked or changed, in either table, and nobody waits for the answer", async () => {
    await using at = await setUp();
    const { store, other, database } = at;
    const [pid] = (await other.query("SELECT pg_backend_pid() AS pid")).rows as { pid: number }[];
    const id = randomUUID() as MessageId;
    await database.query("INSERT INTO outbox (id, topic, payload) VALUES ($1, 't', '{}')", [id]);
    await store.inbox.insert([inboxRow({ id })]);
    const holder = () => store.messages.lockHolder(id);
    expect(await holder()).toBeUndefined();
    const known = { ...pid, user: database.user, application: TEST_APPLICATION_NAME, state: "idle in transaction" };
    for (const hold of [
      "SELECT FROM outbox WHERE id = $1 FOR UPDATE",
      "UPDATE outbox SET topic = 'u' WHERE id = $1",
      "DELETE FROM inbox WHERE id = $1",
    ]) {
      await other.query("SAVEPOINT s");
      await other.query(hold, [id]);
      expect(await holder()).toMatchObject({ ...known, stateMs: expect.any(Number) });
      await other.query("ROLLBACK TO SAVEPOINT s");
      expect([hold, await holder()]).toEqual([hold, undefined]);
    }
  });

  test("is known by its pid and user if the service may not see what others do", async () => {
    await using at = await setUp();
    const { other, database } = at;
    const id = randomUUID() as MessageId;
    await database.query("INSERT INTO outbox (id, topic, payload) VALUES ($1, 't', '{}')", [id]);
    await other.query("SELECT FROM outbox WHERE id = $1 FOR UPDATE", [id]);
    const user = `u_${id.replaceAll("-", "").slice(0, 12)}`;
    await database.query(`CREATE ROLE ${user} LOGIN PASSWORD 'p'; GRANT SELECT ON outbox, inbox TO ${user}`);
    try {
      await withStore(postgresStore({ ...database, user, password: "p" }), async ({ messages }) => {
        const holder = { pid: expect.any(Number), user: database.user, seenBy: user };
        expect(await messages.lockHolder(id)).toMatchObject({ ...holder, state: null, stateMs: null });
        await database.query(`GRANT pg_read_all_stats TO ${user}`);
        expect(await messages.lockHolder(id)).toMatchObject({ ...holder, state: "idle in transaction" });
      });
    } finally {
      await database.query(`DROP OWNED BY ${user}; DROP ROLE ${user}`);
    }
  });
});
