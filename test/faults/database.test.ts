import { setTimeout as sleep } from "node:timers/promises";
import { beforeEach, describe, expect, test } from "@jest/globals";
import { startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, type DatabaseAddress, ordersTo, type Service, useServices } from "../support/service.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";
import { acknowledged, allDelivered, record, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

let receiver: Receiver;
let history: History;

beforeEach(async () => {
  receiver = await services.receiver();
  history = new History();
  record(receiver, history);
});

/** Traffic that goes on from before a fault until after it. */
const TRAFFIC = { keys: 16, messagesPerKey: 60 };

const ACKNOWLEDGED_WITHIN_MS = 20_000;

const ready = (service: Service) =>
  eventually(async () => expect(await service.readiness()).toMatchObject({ status: 200, verdict: "healthy" }), {
    timeoutMs: 20_000,
    label: "readiness after the fault",
  });

const notReady = (service: Service, timeoutMs: number) =>
  eventually(
    async () => {
      const { status, components } = await service.readiness();
      expect([status, components.database]).toEqual([503, "down"]);
    },
    { timeoutMs, label: "readiness during the fault" },
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

describe("when PostgreSQL is stopped and started again in mid-traffic", () => {
  test.each(["immediate", "fast"] as const)(
    "by %s shutdown, nothing acknowledged is lost",
    async (mode) => {
      const dataDirectory = services.folder();
      const first = await startEmbeddedPostgres({ dataDirectory });
      services.defer(() => first.stop("immediate"));
      const { host, port, user } = first;
      const database: DatabaseAddress = {
        jdbcUrl: `jdbc:postgresql://${host}:${port}/${first.database}`,
        user,
        password: first.password.reveal(),
      };
      // A claim whose answer was lost with the server is taken back when its lease is over: here soon.
      const service = await services.start({
        database,
        config: ordersTo(receiver, { outbox: { claimTimeoutMs: 5000 } }),
      });
      const sending = sendTraffic({ history, to: [service], ...TRAFFIC });
      await acknowledged(history, 200, ACKNOWLEDGED_WITHIN_MS);
      await first.stop(mode);
      await notReady(service, 5000);
      expect((await service.get("/health/live")).status).toBe(200);
      const refused = await service.post({ id: "while it was away", type: "created" });
      expect([refused.status, refused.json()]).toEqual([500, { error: "Storage failed" }]);

      const second = await startEmbeddedPostgres({ dataDirectory, port });
      services.defer(() => second.stop("immediate"));
      await ready(service);
      await sending;
      await nothingIsWrong();
      expect(await service.stop()).toEqual({ code: 0, signal: null });
    },
    60_000,
  );
});

test("when every connection to the database is terminated again and again, nothing is lost and nothing comes twice", async () => {
  const database = await services.database();
  const service = await services.start({ database, config: ordersTo(receiver) });
  const sending = sendTraffic({ history, to: [service], ...TRAFFIC });
  let ended = 0;
  for (const count of [100, 300, 500, 700]) {
    await acknowledged(history, count, ACKNOWLEDGED_WITHIN_MS);
    const [row] = await database.query<{ ended: number }>(
      `SELECT count(pg_terminate_backend(pid))::int AS ended FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'svc'`,
    );
    ended += row?.ended ?? 0;
  }
  expect(ended).toBeGreaterThanOrEqual(4);
  await sending;
  // Longer than the lease: a claim whose answer was lost comes back with its end.
  await allDelivered(history, 40_000);
  await ready(service);
  // Settled again and again until it is known: a lost answer of the database is no second delivery.
  expect(history.violations()).toEqual([]);
}, 90_000);

describe("when the way to the database breaks", () => {
  async function throughProxy(outbox: ConfigTree = {}) {
    const database = await services.database();
    const proxy = await startTcpProxy(database);
    services.defer(() => proxy.close());
    const jdbcUrl = `jdbc:postgresql://127.0.0.1:${proxy.port}/${database.name}`;
    const config = ordersTo(receiver, { outbox: { claimTimeoutMs: 5000, ...outbox } });
    return { database, proxy, service: await services.start({ database: { ...database, jdbcUrl }, config }) };
  }

  test("because every connection is cut for two seconds, it heals by itself", async () => {
    const { proxy, service } = await throughProxy();
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
    const { proxy, service } = await throughProxy();
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
  }, 60_000);

  test("for good, the service still stops when it is told to, without the database", async () => {
    const { proxy, service } = await throughProxy({ shutdownTimeoutMs: 500 });
    await service.post({ id: "m-1", type: "created" });
    await receiver.received(1);
    proxy.setMode("held");
    await notReady(service, 5000);
    const startedAt = performance.now();
    const { code, signal } = await service.stop();
    // The phases of the shutdown: 5 s for requests, the half second for deliveries, 5 s for the pool, and the grace of each.
    expect(performance.now() - startedAt).toBeLessThan(20_000);
    expect([signal, code]).toEqual([null, expect.any(Number)]);
    expect(service.process.lines.join("\n")).toMatch(/"msg":"stopped/);
  }, 60_000);
});

test("a pool of two connections serves 64 concurrent senders, the relay, the poller and the probes", async () => {
  const database = await services.database();
  const service = await services.start({ database, config: ordersTo(receiver, { database: { poolSize: 2 } }) });
  const sending = sendTraffic({ history, to: [service], keys: 64, messagesPerKey: 25 });
  await acknowledged(history, 100, ACKNOWLEDGED_WITHIN_MS);
  expect((await service.readiness()).status).toBe(200);
  const connections = await database.query(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'svc'",
  );
  // And one that listens for wakes.
  expect(connections.length).toBeLessThanOrEqual(3);
  await sending;
  await allDelivered(history, 20_000);
  expect(history.violations()).toEqual([]);
}, 60_000);
