import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { inboxRow, relayRequest } from "../conformance/store/harness.ts";
import { DatabaseClock, NEEDS_COMPILER } from "../support/chaos/databaseClock.ts";
import { describeWhere } from "../support/describeWhere.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";

failOnLeaks();

describeWhere(NEEDS_COMPILER, "while the clock of the database is stepped", () => {
  let folder: string;
  let clock: DatabaseClock | undefined;
  let server: EmbeddedPostgres;
  let client: pg.Client;
  let store: ReturnType<typeof postgresStore>;
  /** Of a process that leaves its rows to the relay of another one. */
  let ingest: ReturnType<typeof postgresStore>;
  const processClock = new ManualClock();
  let offset = 0;

  /** The database's clock, alone. */
  const setClock = (seconds: number) => {
    offset = seconds;
    clock?.step(seconds);
  };
  /** Time goes by, for everybody. */
  const pass = (seconds: number) => {
    setClock(offset + seconds);
    processClock.advance(seconds * 1000);
  };

  beforeEach(async () => {
    folder = await mkdtemp(path.join(tmpdir(), "svc-test-clock-"));
    // The server may run as another user.
    await chmod(folder, 0o755);
    clock = DatabaseClock.inFolder(folder);
    offset = 0;
    server = await startEmbeddedPostgres({
      dataDirectory: path.join(folder, "data"),
      environment: clock?.environment ?? {},
    });
    client = new pg.Client({ connectionString: server.url() });
    await client.connect();
    const { host, port, user = "", database = "", password = "" } = client;
    const reachable = { host, port, user, name: database, password: password ?? "" };
    store = postgresStore(reachable, DEFAULT_NAMES, processClock);
    ingest = postgresStore(reachable, DEFAULT_NAMES, processClock);
    await store.schema.migrate();
  });

  afterEach(async () => {
    await client.end();
    for (const each of [store, ingest]) await each.close();
    await server.stop();
    await rm(folder, { recursive: true });
  });

  const receive = (idempotencyKey: string) => ingest.inbox.insert([inboxRow({ idempotencyKey, aggregateId: "a" })]);
  const relay = async () => (await store.inbox.relay(relayRequest())).relayed;

  test("receipts under a clock that was set back are relayed at once, and before what comes later", async () => {
    // Until the marks are those of this time, and the next look without them is far.
    for (const key of ["1", "2", "3"]) {
      await receive(key);
      pass(2);
      expect(await relay()).toBe(1);
    }

    setClock(offset - 60);
    await receive("4");
    expect(await relay()).toBe(1);
    setClock(offset + 60);
    await receive("5");
    expect(await relay()).toBe(1);

    const { rows } = await client.query("SELECT headers->>'x-idempotency-key' AS key FROM outbox ORDER BY sequence");
    expect(rows.map(({ key }) => key)).toEqual(["1", "2", "3", "4", "5"]);
  });

  test("its store tells it by that clock", async () => {
    setClock(600);
    expect(Math.abs((await store.outbox.clock()) - Date.now() - 600_000)).toBeLessThan(60_000);
  });

  /** Runs `begin` while nobody else gets at the table, and `meanwhile` as soon as that waits for it. */
  async function behindLock<T>(table: string, begin: () => Promise<T>, meanwhile: () => Promise<void>): Promise<T> {
    await client.query("BEGIN");
    await client.query(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`);
    const begun = begin();
    await eventually(async () => {
      const { rows } = await client.query("SELECT FROM pg_locks WHERE NOT granted");
      return rows.length === 1;
    });
    await meanwhile();
    await client.query("COMMIT");
    return await begun;
  }

  /** Until the marks are those of the database's clock, and the next look without them is far. */
  async function settleMarks() {
    for (const key of ["1", "2", "3"]) {
      await receive(key);
      pass(2);
      const slowly = async () => pass(0.5);
      expect(await behindLock("inbox", relay, slowly)).toBe(1);
    }
  }

  const relayedKeys = async () => {
    const { rows } = await client.query("SELECT headers->>'x-idempotency-key' AS key FROM outbox ORDER BY sequence");
    return rows.map(({ key }) => key);
  };

  test("receipts under a clock that was set back, and has reached the marks again, are relayed first", async () => {
    await settleMarks();
    setClock(offset - 8);
    await receive("4");
    // Nothing of the relay runs meanwhile.
    pass(9);
    await receive("5");
    expect(await relay()).toBe(2);
    expect(await relayedKeys()).toEqual(["1", "2", "3", "4", "5"]);
  });

  test("receipts under a clock that was set back, and right again, while the relay stood still are relayed first", async () => {
    await settleMarks();
    setClock(offset - 8);
    await receive("4");
    pass(11);
    setClock(offset + 8);
    await receive("5");
    expect(await relay()).toBe(2);
    expect(await relayedKeys()).toEqual(["1", "2", "3", "4", "5"]);
  });

  test("receipts under a clock that was set back, after a pass of that time, are relayed first", async () => {
    await settleMarks();
    setClock(offset - 12);
    await receive("4");
    expect(await relay()).toBe(1);
    await receive("5");
    setClock(offset + 12);
    await receive("6");
    expect(await relay()).toBe(2);
    expect(await relayedKeys()).toEqual(["1", "2", "3", "4", "5", "6"]);
  });

  test("receipts under a clock that was set back while the relay waited for a lock are relayed at once", async () => {
    await settleMarks();
    const setBack = async () => {
      setClock(offset - 60);
      await receive("4");
    };
    expect(await behindLock("outbox", relay, setBack)).toBe(1);
  });

  test("a clock that is right lets the marks count", async () => {
    await settleMarks();
    await client.query(
      `INSERT INTO inbox (source, idempotency_key, payload, headers, state, consumption, created_at, scheduled_at)
       SELECT source, 'below the marks', payload, headers, 'pending', consumption, t, t
       FROM inbox, LATERAL (SELECT created_at - interval '1 hour' AS t) AS time LIMIT 1`,
    );
    await receive("4");
    expect(await relay()).toBe(1);
  });

  test("a receipt that began before the clock was set back is relayed at once", async () => {
    await client.query("BEGIN");
    await client.query("LOCK TABLE inbox IN SHARE MODE");
    const received = receive("1");
    await eventually(async () => {
      const { rows } = await client.query("SELECT FROM pg_locks WHERE NOT granted");
      return rows.length === 1;
    });
    setClock(offset - 60);
    await client.query("COMMIT");
    await received;
    expect(await relay()).toBe(1);
  });
});
