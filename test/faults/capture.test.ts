import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { beforeAll, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { OwnPostgres } from "../support/ownPostgres.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, merged, ordersTo, type Service, startOver, useServices } from "../support/service.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcpProxy.ts";

/**
 * The tests share a server of their own, since slots and their faults belong to a whole server, and the service that captures from it: each begins with a
 * service that is up, whichever test started it.
 */
const services = useServices("block");
failOnLeaks("block");

/**
 * While capture is up the poller waits so long that only a wake can make a delivery within the time of the test; while it is down the poller
 * looks by itself.
 */
const ONLY_WAKES = { pollIntervalMs: 200, retryBaseDelayMs: 1000, capture: { reconciliationIntervalMs: 600_000 } };

const PUBLICATION = "CREATE PUBLICATION svc_outbox FOR TABLE outbox (id) WITH (publish = 'insert')";

let receiver: Receiver;
let stateDirectory: string;
let server: OwnPostgres;
/** The way to the server of what {@link captured} starts: for its capture alone. */
let proxy: TcpProxy;
let published = false;
const started: Service[] = [];
/** What captures now, unless it has been stopped. */
let capturing: Service | undefined;

beforeAll(async () => {
  stateDirectory = path.join(services.folder(), "state");
  receiver = await services.receiver();
  server = await OwnPostgres.start(services);
  proxy = await startTcpProxy(server);
  services.defer(() => proxy.close());
}, 60_000);

/** @param settings of the server, beside what it has by default */
async function restartServer(settings: Readonly<Record<string, string>> = {}): Promise<void> {
  await server.stop();
  await server.startAgain(settings);
}

/** The first process makes the tables, and captures from when the publication is made after that. */
async function start(outbox: ConfigTree = {}): Promise<Service> {
  const config = ordersTo(receiver, {
    outbox: merged({ capture: { mode: "postgres-logical", enabled: true, stateDirectory } }, ONLY_WAKES),
  });
  const service = await services.start({ database: server.address(), config: merged(config, { outbox }) });
  started.push(service);
  if (!published) await server.query(PUBLICATION);
  published = true;
  return service;
}

const throughProxy = () => ({ capture: { connection: { port: proxy.port } } });

/** A service whose capture is up: the running one, or a new one. */
async function captured(): Promise<Service> {
  proxy.setMode("open");
  capturing ??= await start(throughProxy());
  await captureIs(capturing, "up");
  return capturing;
}

const component = async (service: Service) => (await service.readiness()).components["outbox-capture"];

const captureIs = (service: Service, state: "up" | "down", timeoutMs = 30_000) =>
  eventually(async () => expect(await component(service)).toBe(state), {
    timeoutMs,
    intervalMs: 100,
    label: `capture ${state}`,
  });

let messages = 0;

/** Inserts one row and waits until it has been delivered. */
async function deliveredAfterInsert(): Promise<void> {
  messages += 1;
  const payload = { message: messages };
  await server.query("INSERT INTO outbox (topic, payload) VALUES ('orders.made', $1)", [JSON.stringify(payload)]);
  await eventually(() => receiver.requests.some(({ body }) => body.toString() === JSON.stringify(payload)), {
    label: "the delivery",
  });
}

/** Gives what waits for a line that the service writes from now on. */
function linesFromNow(service: Service) {
  const from = service.process.lines.length;
  return (pattern: RegExp, timeoutMs = 30_000) => service.process.waitForLine(pattern, timeoutMs, from);
}

/** The position is saved within five seconds of the first event. */
const isSaved = () => readdirSync(stateDirectory).includes("svc.json");
const positionIsSaved = () => eventually(isSaved, { label: "the saved position" });

test("a wal_level that is too low is said, and mended by the restart that it asks for", async () => {
  await restartServer({ wal_level: "replica" });
  const service = await start(throughProxy());
  await service.process.waitForLine(
    /wal_level of the server is replica, and logical replication needs logical/,
    30_000,
  );
  expect((await service.readiness()).status).toBe(200);
  await deliveredAfterInsert();
  await restartServer();
  await captureIs(service, "up", 60_000);
  await deliveredAfterInsert();
  capturing = service;
}, 120_000);

test("inserts are delivered at once", async () => {
  const service = await captured();
  for (let n = 0; n < 5; n += 1) await deliveredAfterInsert();
  // An insert that is seen within the millisecond of its commit has no lag.
  await eventually(async () => {
    await deliveredAfterInsert();
    expect(await service.metric("svc_capture_lag_seconds")).toBeGreaterThan(0);
  });
});

test("a retry is made when it is due, although no wake tells of it", async () => {
  await captured();
  await startOver(server, receiver);
  receiver.answerNext({ status: 500 });
  await server.query("INSERT INTO outbox (topic, payload) VALUES ('orders.made', '{\"retried\":true}')");
  await eventually(() => expect(receiver.requests).toHaveLength(2), { label: "the second attempt" });
  await eventually(async () =>
    expect(await server.query("SELECT attempt, state FROM outbox")).toEqual([{ attempt: 1, state: "sent" }]),
  );
});

test("a slot that is dropped is made anew", async () => {
  const service = await captured();
  await deliveredAfterInsert();
  // It tells that the slot is known.
  await positionIsSaved();
  const logged = linesFromNow(service);
  await eventually(async () => {
    await server.query(
      "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'svc_outbox' AND active",
    );
    await server.query("SELECT pg_drop_replication_slot('svc_outbox')");
  });
  await logged(/change capture does not follow the database's log; delivery continues by polling/);
  await deliveredAfterInsert();
  await logged(/the replication slot was gone \(dropped, or left behind by a failover\)/);
  await logged(/change capture follows the database's log again/);
  await deliveredAfterInsert();
});

test("a server that is restarted", async () => {
  const service = await captured();
  await deliveredAfterInsert();
  const logged = linesFromNow(service);
  await restartServer();
  await logged(/change capture does not follow the database's log; delivery continues by polling/);
  await deliveredAfterInsert();
  await logged(/change capture follows the database's log again/);
  await captureIs(service, "up");
  await deliveredAfterInsert();
});

test("a connection that passes no bytes and then breaks, while delivery continues", async () => {
  const service = await captured();
  await deliveredAfterInsert();
  const logged = linesFromNow(service);
  proxy.setMode("held");
  await logged(/the server has not answered for 15 s/);
  await captureIs(service, "down");
  expect((await service.readiness()).status).toBe(200);
  await deliveredAfterInsert();
  proxy.setMode("cut");
  proxy.setMode("open");
  await logged(/change capture follows the database's log again/, 60_000);
  await captureIs(service, "up");
  await deliveredAfterInsert();
}, 120_000);

test("a state directory that is removed while it runs, and comes back", async () => {
  const service = await captured();
  await deliveredAfterInsert();
  await positionIsSaved();
  const logged = linesFromNow(service);
  rmSync(stateDirectory, { recursive: true });
  await deliveredAfterInsert();
  await logged(/the position of change capture is not saved/);
  mkdirSync(stateDirectory);
  // A position is saved when it moves, at most every 5 s.
  const savedAfterInsert = async () => {
    await deliveredAfterInsert();
    return isSaved();
  };
  await eventually(savedAfterInsert, { intervalMs: 500, label: "the saved position" });
});

test("a second process is refused the slot, and delivers by polling until the first has ended", async () => {
  const first = await captured();
  const second = await start();
  await second.process.waitForLine(
    /One process at a time captures: set outbox\.capture\.enabled to false in the others/,
    30_000,
  );
  expect(await component(second)).toBe("down");
  expect((await second.readiness()).status).toBe(200);
  await deliveredAfterInsert();
  await first.stop();
  capturing = second;
  await captureIs(second, "up");
  await deliveredAfterInsert();
});

test("after a kill -9 the next process continues from the saved position", async () => {
  const first = await captured();
  await deliveredAfterInsert();
  await positionIsSaved();
  await first.kill();
  const second = await start();
  capturing = second;
  await deliveredAfterInsert();
  expect((await second.readiness()).status).toBe(200);
  await captureIs(second, "up");
  await deliveredAfterInsert();
}, 120_000);

test("a stopped capture frees its slot, and the next one continues without the state that it left", async () => {
  const first = await captured();
  await deliveredAfterInsert();
  await positionIsSaved();
  capturing = undefined;
  expect((await first.stop()).code).toBe(0);
  const [slot] = await server.query<{ active: boolean }>("SELECT active FROM pg_replication_slots");
  expect(slot?.active).toBe(false);

  rmSync(stateDirectory, { recursive: true });
  const second = await start();
  capturing = second;
  await second.process.waitForLine(/change capture follows the database's log/, 30_000);
  await deliveredAfterInsert();
});

test("a slot whose log the server has thrown away is lost: the error says how to continue, and that helps", async () => {
  const first = await captured();
  await deliveredAfterInsert();
  capturing = undefined;
  await first.stop();
  await restartServer({ max_slot_wal_keep_size: "1MB", min_wal_size: "32MB", max_wal_size: "32MB" });
  await server.query("CREATE TABLE bulk (payload text)");
  for (let n = 0; n < 5; n += 1) {
    // A whole segment of 16 MB, however little is in it.
    await server.query("INSERT INTO bulk VALUES ('x')");
    await server.query("SELECT pg_switch_wal()");
    await server.query("CHECKPOINT");
  }
  const second = await start();
  capturing = second;
  const [, statement] = await second.process.waitForLine(
    /the replication slot svc_outbox is lost.*To start over run: (SELECT [^.]*)\./,
    30_000,
  );
  const isLost = async () => (await second.get("/metrics")).text.includes('wal_status{status="lost"} 1');
  await eventually(isLost, { label: "the metric of a lost slot" });
  await deliveredAfterInsert();
  await server.query(JSON.parse(`"${statement}"`));
  await captureIs(second, "up", 60_000);
  await deliveredAfterInsert();
  expect(await isLost()).toBe(false);
}, 120_000);

test("no secret stands in any log or in the state directory", async () => {
  await captured();
  await deliveredAfterInsert();
  await positionIsSaved();
  const files = readdirSync(stateDirectory).filter((name) => name.endsWith(".json"));
  const written = [
    ...started.flatMap(({ process }) => process.lines),
    ...files.map((name) => readFileSync(path.join(stateDirectory, name), "utf8")),
  ];
  expect(written.join("\n")).not.toContain(server.password);
});
