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

  test("receipts under a clock that was set back are relayed within seconds, and before what comes later", async () => {
    // Until the marks are those of this time, and the next look without them is far.
    for (const key of ["1", "2", "3"]) {
      await receive(key);
      pass(2);
      expect(await relay()).toBe(1);
    }

    setClock(offset - 60);
    await receive("4");
    pass(6);
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
