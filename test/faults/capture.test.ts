import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "@jest/globals";
import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, merged, ordersTo, type Service, useServices } from "../support/service.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";

const services = useServices();
failOnLeaks();

/**
 * While capture is up the poller waits so long that only a wake can make a delivery within the time of the test; while it is down the poller
 * looks by itself.
 */
const ONLY_WAKES = { pollIntervalMs: 100, capture: { reconciliationIntervalMs: 600_000 } };

const PUBLICATION = "CREATE PUBLICATION svc_outbox FOR TABLE outbox (id) WITH (publish = 'insert')";

interface Setting {
  readonly server: EmbeddedPostgres;
  readonly receiver: Receiver;
  readonly stateDirectory: string;
  /** @param settings of the server; those before when absent */
  restart(settings?: Readonly<Record<string, string>>): Promise<void>;
  /** The first process makes the tables, and captures from when the publication is made after that. */
  start(outbox?: ConfigTree): Promise<Service>;
  query<Row extends pg.QueryResultRow>(sql: string, params?: readonly unknown[]): Promise<Row[]>;
}

/** A server of the test's own: slots and their faults belong to a whole server. */
async function setUp(settings: Readonly<Record<string, string>> = {}): Promise<Setting> {
  const dataDirectory = services.folder();
  const stateDirectory = path.join(services.folder(), "state");
  const receiver = await services.receiver();
  let server = await startEmbeddedPostgres({ dataDirectory, settings });
  services.defer(() => server.stop("immediate"));
  let published = false;
  const query: Setting["query"] = async <Row extends pg.QueryResultRow>(
    sql: string,
    params: readonly unknown[] = [],
  ) => {
    const client = new pg.Client({ connectionString: server.url(), application_name: TEST_APPLICATION_NAME });
    await client.connect();
    try {
      return (await client.query<Row>(sql, [...params])).rows;
    } finally {
      await client.end();
    }
  };
  const { host, port, user, database, password } = server;
  const address = { jdbcUrl: `jdbc:postgresql://${host}:${port}/${database}`, user, password: password.reveal() };
  const config = ordersTo(receiver, {
    outbox: merged({ capture: { mode: "postgres-logical", enabled: true, stateDirectory } }, ONLY_WAKES),
  });
  return {
    get server() {
      return server;
    },
    receiver,
    stateDirectory,
    async restart(changed = settings) {
      await server.stop("fast");
      server = await startEmbeddedPostgres({ dataDirectory, port, settings: changed });
    },
    async start(outbox = {}) {
      const service = await services.start({ database: address, config: merged(config, { outbox }) });
      if (!published) await query(PUBLICATION);
      published = true;
      return service;
    },
    query,
  };
}

const component = async (service: Service) => (await service.readiness()).components["outbox-capture"];

const captureIs = (service: Service, state: "up" | "down", timeoutMs = 30_000) =>
  eventually(async () => expect(await component(service)).toBe(state), { timeoutMs, label: `capture ${state}` });

let messages = 0;

/** Inserts one row and waits until it has been delivered. */
async function deliveredAfterInsert({ query, receiver }: Setting): Promise<void> {
  messages += 1;
  const payload = { message: messages };
  await query("INSERT INTO outbox (topic, payload) VALUES ('orders.made', $1)", [JSON.stringify(payload)]);
  await eventually(() => receiver.requests.some(({ body }) => body.toString() === JSON.stringify(payload)), {
    label: "the delivery",
  });
}

const logged = (service: Service, pattern: RegExp, timeoutMs = 30_000) =>
  service.process.waitForLine(pattern, timeoutMs);

test("inserts are delivered at once, and after a kill -9 the next process takes over where it was", async () => {
  const setting = await setUp();
  const first = await setting.start();
  await captureIs(first, "up");
  for (let n = 0; n < 5; n += 1) await deliveredAfterInsert(setting);
  // One that comes within the millisecond of its commit has no lag.
  await eventually(async () => {
    await deliveredAfterInsert(setting);
    expect(await first.metric("svc_capture_lag_seconds")).toBeGreaterThan(0);
  });
  await eventually(() => readdirSync(setting.stateDirectory).includes("svc.json"));
  await first.kill();

  const second = await setting.start();
  // The lock of the killed process has to become stale first; until then the poller looks by itself.
  await deliveredAfterInsert(setting);
  expect((await second.readiness()).status).toBe(200);
  await captureIs(second, "up");
  await deliveredAfterInsert(setting);
  expect((await second.stop()).code).toBe(0);
  const [slot] = await setting.query<{ active: boolean }>("SELECT active FROM pg_replication_slots");
  expect(slot?.active).toBe(false);
});

test("a retry is made when it is due, although no wake tells of it", async () => {
  const setting = await setUp();
  const service = await setting.start({ retryBaseDelayMs: 1000 });
  await captureIs(service, "up");
  setting.receiver.answerNext({ status: 500 });
  await setting.query("INSERT INTO outbox (topic, payload) VALUES ('orders.made', '{\"retried\":true}')");
  await eventually(() => expect(setting.receiver.requests).toHaveLength(2), { label: "the second attempt" });
  await eventually(async () =>
    expect(await setting.query("SELECT attempt, state FROM outbox")).toEqual([{ attempt: 1, state: "sent" }]),
  );
});

test("a slot that is dropped is made anew", async () => {
  const setting = await setUp();
  const service = await setting.start();
  await captureIs(service, "up");
  await deliveredAfterInsert(setting);
  // The position is saved within five seconds of the first event: it tells that the slot is known.
  await eventually(() => readdirSync(setting.stateDirectory).includes("svc.json"));
  await eventually(async () => {
    await setting.query(
      "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'svc_outbox' AND active",
    );
    await setting.query("SELECT pg_drop_replication_slot('svc_outbox')");
  });
  await logged(service, /change capture does not follow the database's log; delivery goes on by polling/);
  await deliveredAfterInsert(setting);
  await logged(service, /the replication slot was gone \(dropped, or left behind by a failover\)/);
  await logged(service, /change capture follows the database's log again/);
  await deliveredAfterInsert(setting);
});

test("a server that is restarted", async () => {
  const setting = await setUp();
  const service = await setting.start();
  await captureIs(service, "up");
  await deliveredAfterInsert(setting);
  await setting.restart();
  await logged(service, /change capture does not follow the database's log; delivery goes on by polling/);
  await deliveredAfterInsert(setting);
  await logged(service, /change capture follows the database's log again/);
  await captureIs(service, "up");
  await deliveredAfterInsert(setting);
});

test("a connection that is cut off for 30 s, while delivery goes on", async () => {
  const setting = await setUp();
  const proxy = await startTcpProxy(setting.server);
  services.defer(() => proxy.close());
  const service = await setting.start({ capture: { connection: { port: proxy.port } } });
  await captureIs(service, "up");
  await deliveredAfterInsert(setting);
  proxy.setMode("held");
  const cutAt = performance.now();
  await logged(service, /the server has not answered for 15 s/);
  await captureIs(service, "down");
  expect((await service.readiness()).status).toBe(200);
  await deliveredAfterInsert(setting);
  await sleep(Math.max(0, 30_000 - (performance.now() - cutAt)));
  proxy.setMode("cut");
  proxy.setMode("open");
  await logged(service, /change capture follows the database's log again/, 60_000);
  await captureIs(service, "up");
  await deliveredAfterInsert(setting);
});

test("a state directory that is emptied, while it runs and between two runs", async () => {
  const setting = await setUp();
  const first = await setting.start();
  await captureIs(first, "up");
  await deliveredAfterInsert(setting);
  await eventually(() => readdirSync(setting.stateDirectory).includes("svc.json"));
  rmSync(setting.stateDirectory, { recursive: true });
  mkdirSync(setting.stateDirectory);
  await logged(first, /the ownership of the capture identity svc in .* is lost/);
  await logged(first, /change capture follows the database's log again/);
  await deliveredAfterInsert(setting);
  await first.stop();

  rmSync(setting.stateDirectory, { recursive: true });
  const second = await setting.start();
  await logged(second, /change capture follows the database's log/);
  await deliveredAfterInsert(setting);
});

test("a second process with the same identity is refused, and delivers by polling", async () => {
  const setting = await setUp();
  const first = await setting.start();
  await captureIs(first, "up");
  const second = await setting.start();
  await logged(second, /one process at a time owns it\. Set outbox\.capture\.enabled to false in all replicas but one/);
  expect(await component(second)).toBe("down");
  expect((await second.readiness()).status).toBe(200);
  await deliveredAfterInsert(setting);
  await first.stop();
  await captureIs(second, "up");
  await deliveredAfterInsert(setting);
});

test("a wal_level that is too low is said, and mended by the restart that it asks for", async () => {
  const setting = await setUp({ wal_level: "replica" });
  const service = await setting.start();
  await logged(service, /wal_level of the server is replica, and logical replication needs logical/);
  expect((await service.readiness()).status).toBe(200);
  await deliveredAfterInsert(setting);
  await setting.restart({ wal_level: "logical" });
  await captureIs(service, "up", 60_000);
  await deliveredAfterInsert(setting);
});

test("a slot whose log the server has thrown away is lost: it says how to go on, and that helps", async () => {
  const setting = await setUp({ max_slot_wal_keep_size: "1MB", min_wal_size: "32MB", max_wal_size: "32MB" });
  const first = await setting.start();
  await captureIs(first, "up");
  await deliveredAfterInsert(setting);
  await first.stop();
  await setting.query("CREATE TABLE bulk (payload text)");
  for (let n = 0; n < 5; n += 1) {
    await setting.query("INSERT INTO bulk SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
    await setting.query("SELECT pg_switch_wal()");
    await setting.query("CHECKPOINT");
  }
  const second = await setting.start();
  const [, statement] = await logged(
    second,
    /the replication slot svc_outbox is lost.*To start anew run: (SELECT [^.]*)\./,
  );
  const isLost = async () => (await second.get("/metrics")).text.includes('wal_status{status="lost"} 1');
  await eventually(isLost, { label: "the metric of a lost slot" });
  await deliveredAfterInsert(setting);
  await setting.query(JSON.parse(`"${statement}"`));
  await captureIs(second, "up", 60_000);
  await deliveredAfterInsert(setting);
  expect(await isLost()).toBe(false);
});

test("no secret stands in the log or in the state directory", async () => {
  const setting = await setUp();
  const service = await setting.start();
  await captureIs(service, "up");
  await deliveredAfterInsert(setting);
  await eventually(() => readdirSync(setting.stateDirectory).includes("svc.json"));
  const files = readdirSync(setting.stateDirectory).filter((name) => name.endsWith(".json"));
  const written = [
    ...service.process.lines,
    ...files.map((name) => readFileSync(path.join(setting.stateDirectory, name), "utf8")),
  ];
  expect(written.join("\n")).not.toContain(setting.server.password.reveal());
});
