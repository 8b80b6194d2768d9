import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { OwnPostgres } from "../support/ownPostgres.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, merged, ordersTo, type Service, startOver, useServices } from "../support/service.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcpProxy.ts";
import { acknowledged, allDelivered, record, sendTraffic } from "../support/traffic.ts";

/** The tests share a server and the way to it, and each of the two services takes one fault after another: what one leaves behind shows in the next. */
const services = useServices("block");
failOnLeaks("block");

let server: OwnPostgres;
let proxy: TcpProxy;
let receiver: Receiver;
let history: History;
let hasTables = false;
/** What the last test used, unless it has been stopped. */
let running: { readonly config: ConfigTree; readonly service: Service } | undefined;

beforeAll(async () => {
  server = await OwnPostgres.start(services);
  proxy = await startTcpProxy(server);
  services.defer(() => proxy.close());
  receiver = await services.receiver();
}, 60_000);

beforeEach(async () => {
  // The way is open also if the test before has failed.
  proxy.setMode("open");
  if (hasTables) await startOver(server, receiver);
  history = new History();
  record(receiver, history);
});

// A claim whose answer was lost is taken back when its lease is over: here soon.
const ORDINARY: ConfigTree = { outbox: { claimTimeoutMs: 5000 } };
const SMALL: ConfigTree = merged(ORDINARY, { database: { poolSize: 2 }, outbox: { shutdownTimeoutMs: 500 } });

/** The service with a configuration, alone on the database: the running one, or a new one. */
async function serviceWith(config: ConfigTree): Promise<Service> {
  if (running?.config !== config) {
    await running?.service.stop();
    const database = server.address(proxy.port);
    running = { config, service: await services.start({ database, config: ordersTo(receiver, config) }) };
    hasTables = true;
  }
  return running.service;
}

/** Traffic from before a fault until after it. */
const TRAFFIC = { keys: 16, messagesPerKey: 40 };

const ACKNOWLEDGED_WITHIN_MS = 20_000;

const ready = (service: Service) =>
  eventually(async () => expect(await service.readiness()).toMatchObject({ status: 200, verdict: "healthy" }), {
    timeoutMs: 20_000,
    intervalMs: 100,
    label: "readiness after the fault",
  });

const notReady = (service: Service, timeoutMs: number) =>
  eventually(
    async () => {
      const { status, components } = await service.readiness();
      expect([status, components.database]).toEqual([503, "down"]);
    },
    { timeoutMs, intervalMs: 50, label: "readiness during the fault" },
  );

/** Two claims of 100 rows may wait in a replica. */
const UNSETTLED_AT_MOST = 200;

/** What was delivered while nothing could be settled may come again, in order, and it is not more than a replica holds. */
async function nothingIsWrong(): Promise<void> {
  await allDelivered(history, 20_000);
  const repeated = history.repeated.map(({ id }) => id);
  expect(repeated.length).toBeLessThanOrEqual(UNSETTLED_AT_MOST);
  history.mayRepeat(repeated);
  expect(history.violations()).toEqual([]);
}

test("when every connection to the database is terminated again and again, nothing is lost and nothing comes twice", async () => {
  const service = await serviceWith(ORDINARY);
  const sending = sendTraffic({ history, to: [service], ...TRAFFIC });
  let ended = 0;
  // So often that some of them meet a claim, a receipt or an outcome on its way.
  for (let count = 100; count < 600; count += 40) {
    await acknowledged(history, count, ACKNOWLEDGED_WITHIN_MS);
    const [row] = await server.query<{ ended: number }>(
      `SELECT count(pg_terminate_backend(pid))::int AS ended FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'svc'`,
    );
    ended += row?.ended ?? 0;
  }
  expect(ended).toBeGreaterThanOrEqual(13);
  await sending;
  // Longer than the lease: a claim whose answer was lost comes back with its end.
  await allDelivered(history, 40_000);
  await ready(service);
  // Settled again and again until it is known: a lost answer of the database is no second delivery.
  expect(history.violations()).toEqual([]);
}, 90_000);

describe("when PostgreSQL is stopped and started again in mid-traffic", () => {
  test.each(["immediate", "fast"] as const)(
    "by %s shutdown, nothing acknowledged is lost",
    async (mode) => {
      const service = await serviceWith(ORDINARY);
      const sending = sendTraffic({ history, to: [service], ...TRAFFIC });
      await acknowledged(history, 200, ACKNOWLEDGED_WITHIN_MS);
      await server.stop(mode);
      await notReady(service, 5000);
      expect((await service.get("/health/live")).status).toBe(200);
      const refused = await service.post({ id: "while it was away", type: "created" });
      expect([refused.status, refused.json()]).toEqual([500, { error: "Storage failed" }]);

      await server.startAgain();
      await ready(service);
      await sending;
      await nothingIsWrong();
    },
    60_000,
  );
});

describe("when the way to the database breaks", () => {
  test("because every connection is cut for two seconds, it heals by itself", async () => {
    const service = await serviceWith(ORDINARY);
    const sending = sendTraffic({ history, to: [service], ...TRAFFIC });
    await acknowledged(history, 200, ACKNOWLEDGED_WITHIN_MS);
    proxy.setMode("cut");
    await Promise.all([notReady(service, 5000), sleep(2000)]);
    proxy.setMode("open");
    await ready(service);
    await sending;
    await nothingIsWrong();
  }, 60_000);

  test("because no byte goes through any more, readiness says so within its bound, and it heals when they do", async () => {
    const service = await serviceWith(ORDINARY);
    const sending = sendTraffic({ history, to: [service], ...TRAFFIC });
    await acknowledged(history, 200, ACKNOWLEDGED_WITHIN_MS);
    proxy.setMode("held");
    const startedAt = performance.now();
    const { status, components } = await service.readiness();
    expect([status, components.database]).toEqual([503, "down"]);
    expect(performance.now() - startedAt).toBeLessThan(20_000);
    expect((await service.get("/health/live")).status).toBe(200);
    proxy.setMode("open");
    await ready(service);
    await sending;
    await nothingIsWrong();
    // And after all of that it stops as ever.
    running = undefined;
    expect(await service.stop()).toEqual({ code: 0, signal: null });
  }, 60_000);
});

test("a pool of two connections serves 64 concurrent senders, the relay, the poller and the probes", async () => {
  const service = await serviceWith(SMALL);
  const sending = sendTraffic({ history, to: [service], keys: 64, messagesPerKey: 10 });
  await acknowledged(history, 100, ACKNOWLEDGED_WITHIN_MS);
  expect((await service.readiness()).status).toBe(200);
  const connections = await server.query(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'svc'",
  );
  // And the listener for wakes.
  expect(connections.length).toBeLessThanOrEqual(3);
  await sending;
  await allDelivered(history, 20_000);
  expect(history.violations()).toEqual([]);
}, 60_000);

test("when the way to the database breaks for good, SIGTERM still stops the service, without the database", async () => {
  const service = await serviceWith(SMALL);
  history.sent("m-1", "none");
  await service.post({ id: "m-1", type: "created" });
  await eventually(() => history.of("m-1")?.arrivals.length === 1);
  proxy.setMode("held");
  await notReady(service, 5000);
  running = undefined;
  const startedAt = performance.now();
  const { code, signal } = await service.stop();
  // The phases of the shutdown: 5 s for requests, the half second for deliveries, 5 s for the pool, and the grace of each.
  expect(performance.now() - startedAt).toBeLessThan(20_000);
  expect([signal, code]).toEqual([null, expect.any(Number)]);
  expect(service.process.lines.join("\n")).toMatch(/"msg":"stopped/);
}, 60_000);
