import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { PostgresPool } from "../../src/adapters/stores/postgres/pool.ts";
import { PostgresWake, PostgresWatch } from "../../src/adapters/stores/postgres/wake.ts";
import type { Log } from "../../src/ports/runtime.ts";
import { START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { describeWithPgbouncer } from "../support/describeWithPgbouncer.ts";
import { eventually } from "../support/eventually.ts";
import { assertNoConnections, failOnLeaks } from "../support/leaks.ts";
import { type PgbouncerOptions, SERVER_CONNECTIONS, startPgbouncer } from "../support/pgbouncer.ts";
import { connectionTo, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingLog, silentLog } from "../support/recorders.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";
import { within } from "../support/within.ts";

failOnLeaks();

const CHANNEL = "svc__outbox";

function wakeOf(pool: PostgresPool, log: Log): PostgresWake {
  const clock = new ManualClock();
  return new PostgresWake(pool, CHANNEL, new PostgresWatch('"outbox"', clock, log), clock, log);
}

/** Two processes that use the same channel: one listens, the other announces. */
async function listen(database: TestDatabase, through: { readonly host: string; readonly port: number }) {
  const { log, lines } = recordingLog();
  const open = () => new PostgresPool({ ...connectionTo({ ...database, ...through }), poolSize: 2 }, log);
  const [here, there] = [open(), open()];
  const [listening, announcing] = [here, there].map((pool) => wakeOf(pool, log));
  let wakes = 0;
  await listening?.listen(() => {
    wakes += 1;
  });
  return {
    lines,
    wakes: () => wakes,
    announce: () => announcing?.announce(),
    async close() {
      await Promise.all([listening?.close(), announcing?.close()]);
      await Promise.all([here.close(), there.close()]);
    },
  };
}

async function expectWake(process: Awaited<ReturnType<typeof listen>>): Promise<void> {
  const before = process.wakes();
  process.announce();
  await eventually(() => expect(process.wakes()).toBeGreaterThan(before));
  expect(process.lines).toEqual([]);
}

test("closing waits no longer for a wake than for its statement while no connection opens", async () => {
  await using database = await createDatabase();
  const proxy = await startTcpProxy(database);
  proxy.setMode("held");
  const pool = new PostgresPool(
    { ...connectionTo({ ...database, host: "127.0.0.1", port: proxy.port }), poolSize: 2 },
    silentLog,
  );
  try {
    const wake = wakeOf(pool, recordingLog().log);
    wake.announce();
    // A connection attempt takes 30 s, and is made twice.
    await within(
      10_000,
      "closing the wake and the pool",
      wake.close().then(() => pool.close()),
    );
  } finally {
    await proxy.close();
    await pool.close();
  }
});

test("what one process announces wakes another", async () => {
  await using database = await createDatabase();
  const process = await listen(database, database);
  await expectWake(process);
  await process.close();
  await assertNoConnections(database);
});

describeWithPgbouncer("wakes behind PgBouncer", () => {
  async function behindPgbouncer(
    options: PgbouncerOptions,
    use: (process: Awaited<ReturnType<typeof listen>>, pooled: TestDatabase) => Promise<void>,
  ) {
    await using database = await createDatabase();
    await using pooler = await startPgbouncer(database, options);
    const process = await listen(database, pooler);
    try {
      await use(process, { ...database, host: pooler.host, port: pooler.port });
    } finally {
      await process.close();
    }
  }

  test(
    "in session mode they come",
    async () => {
      await behindPgbouncer({ poolMode: "session" }, expectWake);
    },
    START_TIMEOUT_MS,
  );

  test(
    "in transaction mode one warning says that they do not, and no connection of the pooler's is left listening",
    async () => {
      await behindPgbouncer({ poolMode: "transaction" }, async (process, pooled) => {
        expect(process.lines).toMatchObject([{ level: "warn", message: expect.stringMatching(/^cannot LISTEN/) }]);
        expect(String(process.lines[0]?.fields.err)).toContain("pooler in transaction mode");
        expect(process.wakes()).toBe(0);
        expect(await listeningChannels(pooled)).toEqual([]);
      });
    },
    START_TIMEOUT_MS,
  );
});

describeWithPgbouncer("listening behind a busy PgBouncer", () => {
  test(
    "leaves no connection of the pooler's listening, however often it is tried",
    async () => {
      await using database = await createDatabase();
      await using pooler = await startPgbouncer(database);
      const pooled = { ...database, host: pooler.host, port: pooler.port };
      const traffic = new PostgresPool({ ...connectionTo(pooled), poolSize: 8 }, silentLog);
      let isOver = false;
      const busy = Array.from({ length: 8 }, async () => {
        while (!isOver) await traffic.run({ name: "nap", text: "SELECT pg_sleep(0.005)" });
      });
      for (let tries = 0; tries < 5; tries += 1) {
        const process = await listen(database, pooler);
        expect(process.lines).toMatchObject([{ level: "warn" }]);
        await process.close();
      }
      isOver = true;
      await Promise.all(busy);
      await traffic.close();
      expect(await listeningChannels(pooled)).toEqual([]);
    },
    START_TIMEOUT_MS,
  );
});

describe("wakes between processes", () => {
  test("a relay in one process wakes a poller in another", async () => {
    await using database = await createDatabase();
    const [one, other] = [postgresStore(database), postgresStore(database)];
    let woken = (): void => {};
    const listening = new Promise<void>((resolve) => {
      woken = resolve;
    });
    await other.onOutboxWake(() => woken());
    await listening;
    const wake = new Promise<void>((resolve) => {
      woken = resolve;
    });

    one.announceOutbox();

    await wake;
    await one.close();
    await other.close();
  });
});

/** The channels that the pooler's server connections listen on. */
async function listeningChannels(pooled: TestDatabase): Promise<readonly string[]> {
  const { host, port, user, password, name: database } = pooled;
  const connection = { host, port, user, password, database, application_name: TEST_APPLICATION_NAME };
  // Transactions at the same time keep a server connection each; together they have all of them.
  const clients = Array.from({ length: SERVER_CONNECTIONS }, () => new pg.Client(connection));
  try {
    const channels = await Promise.all(
      clients.map(async (client) => {
        await client.connect();
        await client.query("BEGIN");
        const { rows } = await client.query<{ channel: string }>("SELECT pg_listening_channels() AS channel");
        return rows.map((row) => row.channel);
      }),
    );
    return channels.flat();
  } finally {
    for (const client of clients) await client.end();
  }
}
