import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import { PostgresPool } from "../../src/adapters/stores/postgres/pool.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { connectionTo, DEFAULT_NAMES } from "../support/postgresHarness.ts";
import { ManualClock, silentLog } from "../support/recorders.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";

const QUICK = { fsync: "off", shared_buffers: "8MB", max_connections: "20" };
const insert = { name: "insert", parameters: ["n"], text: "INSERT INTO things VALUES ($1)" };
const demote = {
  name: "demote",
  text: "SELECT set_config('default_transaction_read_only', 'on', false), pg_sleep(0.2)",
};
const one = { name: "one", text: "SELECT 1 AS n" };

let directory: string;
/** Refuses writes as a standby does, with SQLSTATE 25006. */
let standby: EmbeddedPostgres;
let database: TestDatabase;

beforeAll(async () => {
  directory = mkdtempSync(path.join(tmpdir(), `svc-test-postgres-${process.pid}-standby-`));
  standby = await startEmbeddedPostgres({ dataDirectory: directory, settings: QUICK });
  database = await createDatabase();
  await database.query("CREATE TABLE things (n int)");
  await onStandby("postgres", async (client) => {
    await client.query(`CREATE DATABASE "${database.name}"`);
    // One user, one password, as on all servers of a cluster.
    if (database.user !== standby.user) await client.query(`CREATE ROLE "${database.user}" LOGIN`);
  });
  await onStandby(database.name, async (client) => {
    await client.query("CREATE TABLE things (n int)");
    await client.query(`ALTER DATABASE "${database.name}" SET default_transaction_read_only = on`);
    await client.query(`ALTER ROLE "${database.user}" SUPERUSER PASSWORD ${pg.escapeLiteral(database.password)}`);
  });
});
afterAll(async () => {
  await database.drop();
  await standby.stop("immediate");
  rmSync(directory, { recursive: true, force: true });
});
failOnLeaks();

/** Runs statements as the administrator; before the standby refuses them. */
async function onStandby(name: string, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client(standby.url(name));
  await client.connect();
  await work(client).finally(() => client.end());
}

/** Passes bytes on to the server, and ends one connection, when told so, at the question whether it takes writes. */
async function startEndingProxy(port: number) {
  const sockets = new Set<Socket>();
  let ends = false;
  const proxy = {
    connections: 0,
    port: 0,
    endsNext() {
      ends = true;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  const server = createServer((near) => {
    proxy.connections += 1;
    const far = connect(port, "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => {}).once("close", () => [near, far].map((each) => each.destroy()));
    }
    near.on("data", (bytes: Buffer) => {
      if (ends && bytes.includes("transaction_read_only")) {
        ends = false;
        near.destroy();
      } else far.write(bytes);
    });
    far.pipe(near);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  proxy.port = (server.address() as AddressInfo).port;
  return proxy;
}

const at = (port: number) => ({ host: "127.0.0.1", port, tls: false as const });

describe("several hosts without targetServerType", () => {
  test("the standby in front is skipped, by statements, migrations and LISTEN alike", async () => {
    const endpoints = [at(standby.port), at(database.port)];
    const store = createPostgresStore(
      { ...connectionTo(database), endpoints, poolSize: 4, names: DEFAULT_NAMES },
      new ManualClock(),
      silentLog,
    );
    await store.waitUntilReady(10_000, new AbortController().signal);
    expect(await store.schema.migrate()).not.toEqual([]);
    await store.schema.checkColumns();
    let woken = (): void => {};
    const wake = new Promise<void>((resolve) => {
      woken = resolve;
    });
    await store.onOutboxWake(() => woken());
    await wake;
    await store.close();
  });

  test("a statement continues at the next host when its own turns into a standby", async () => {
    const pool = new PostgresPool(
      {
        ...connectionTo(database),
        endpoints: [at(standby.port), at(database.port)],
        poolSize: 2,
      },
      silentLog,
    );
    await pool.run(one);
    await database.query("DELETE FROM things");
    // Sessions that a demoted server keeps.
    await Promise.all([pool.run(demote), pool.run(demote)]);
    await Promise.all([pool.run(insert, { n: 1 }), pool.run(insert, { n: 2 })]);
    expect(await database.query("SELECT n FROM things ORDER BY n")).toEqual([{ n: 1 }, { n: 2 }]);
    await pool.close();
  });

  test("a host stays the first one when a session is ended while it is asked whether it takes writes", async () => {
    const [first, second] = [await startEndingProxy(database.port), await startEndingProxy(database.port)];
    try {
      const pool = new PostgresPool(
        {
          ...connectionTo(database),
          endpoints: [at(first.port), at(second.port)],
          poolSize: 1,
        },
        silentLog,
      );
      first.endsNext();
      await pool.run(one);
      expect([first.connections, second.connections]).toEqual([2, 0]);
      first.endsNext();
      await expect(pool.connections.dedicated()).rejects.toThrow("Connection terminated unexpectedly");
      await (await pool.connections.dedicated()).end();
      expect([first.connections, second.connections]).toEqual([4, 0]);
      await pool.close();
    } finally {
      await Promise.all([first.close(), second.close()]);
    }
  });

  test("says what is wrong if every host is a standby", async () => {
    const pool = new PostgresPool(
      {
        ...connectionTo(database),
        endpoints: [at(standby.port), { ...at(standby.port), host: "localhost" }],
        poolSize: 1,
      },
      silentLog,
    );
    await expect(pool.run(one)).rejects.toThrow(/this host takes no writes: it is a standby/);
    await pool.close();
  });
});

describe("one name that leads to another server after a failover", () => {
  test("the connections to the old server are left at the first refused write, which is made at the new one", async () => {
    const target = { host: "127.0.0.1", port: standby.port };
    const name = await startTcpProxy(target);
    const pool = new PostgresPool({ ...connectionTo(database), endpoints: [at(name.port)], poolSize: 2 }, silentLog);
    await Promise.all([pool.run(one), pool.run(one)]);
    await database.query("DELETE FROM things");

    await expect(pool.run(insert, { n: 1 })).rejects.toMatchObject({ code: "unavailable" });
    target.port = database.port;
    await pool.run(insert, { n: 2 });

    expect(await database.query("SELECT n FROM things")).toEqual([{ n: 2 }]);
    await pool.close();
    await name.close();
  });

  test("a write that is refused by the old server is made at the new one, without an error", async () => {
    const target = { host: "127.0.0.1", port: standby.port };
    const name = await startTcpProxy(target);
    const pool = new PostgresPool({ ...connectionTo(database), endpoints: [at(name.port)], poolSize: 2 }, silentLog);
    await Promise.all([pool.run(one), pool.run(one)]);
    await database.query("DELETE FROM things");

    target.port = database.port;
    await pool.run(insert, { n: 1 });
    await pool.transaction({ name: "insert" }, (client) => client.query("INSERT INTO things VALUES (2)"));

    expect(await database.query("SELECT n FROM things ORDER BY n")).toEqual([{ n: 1 }, { n: 2 }]);
    await pool.close();
    await name.close();
  });
});
