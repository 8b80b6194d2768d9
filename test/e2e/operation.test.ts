import { describe, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

/** Intervals so long that within the test only wakes move anything. */
const BY_WAKES_ALONE = { outbox: { pollIntervalMs: 60_000 }, inbox: { relay: { pollIntervalMs: 200 } } };

describe("roles in processes of their own", () => {
  test("deliver together, and a poller in another process is woken long before its poll interval is over", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, BY_WAKES_ALONE);
    // Whoever listens needs a direct connection; whoever notifies does not.
    const direct = { ...database, jdbcUrl: database.directJdbcUrl };
    const poller = await services.start({ database: direct, config, roles: ["poller"] });
    const relay = await services.start({ database, config, roles: ["relay"] });
    const ingest = await services.start({ database, config, roles: ["ingest"] });
    for (let n = 1; n <= 3; n += 1) {
      expect((await ingest.post({ id: `m-${n}`, key: "c-1", type: "created" })).status).toBe(202);
      await receiver.received(n);
    }
    expect((await ingest.readiness()).components).toEqual({ database: "up" });
    expect((await relay.readiness()).components).toEqual({ database: "up", "inbox-relay": "up" });
    expect((await poller.readiness()).components).toEqual({ database: "up", "outbox-poller": "up" });
    expect(await names(ingest)).toEqual({ inbox: true, relay: false, outbox: false });
    expect(await names(relay)).toEqual({ inbox: true, relay: true, outbox: false });
    expect(await names(poller)).toEqual({ inbox: false, relay: false, outbox: true });
    expect((await poller.post({ id: "m-9" })).status).toBe(404);
    expect((await relay.post({ id: "m-9" })).status).toBe(404);
  });

  test("beside each other in one process are woken without the database", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const intervals = { outbox: { pollIntervalMs: 60_000 }, inbox: { relay: { pollIntervalMs: 60_000 } } };
    const service = await services.start({ database, config: ordersTo(receiver, intervals) });
    for (let n = 1; n <= 3; n += 1) {
      await service.post({ id: `m-${n}`, type: "created" });
      await receiver.received(n);
    }
  });

  test("need not be started in any order: what came in before is delivered when the others come", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver);
    const ingest = await services.start({ database, config, roles: ["ingest"] });
    await ingest.post({ id: "m-1", type: "created" });
    await ingest.stop();
    await services.start({ database, config, roles: ["relay", "poller"] });
    await receiver.received(1);
  });

  test("may all start at once on an empty database", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver);
    const replicas = await Promise.all(Array.from({ length: 3 }, () => services.start({ database, config })));
    for (const [n, replica] of replicas.entries()) {
      expect((await replica.post({ id: `m-${n}`, type: "created" })).status).toBe(202);
    }
    await receiver.received(3);
    expect((await database.query("SELECT * FROM inbox")).length).toBe(3);
  });
});

/** Which families of metrics a process shows. */
async function names(service: Service) {
  const { text } = await service.get("/metrics");
  return {
    inbox: text.includes("# TYPE svc_inbox_messages_total "),
    relay: text.includes("# TYPE svc_inbox_relay_errors_total "),
    outbox: text.includes("# TYPE svc_outbox_messages_total "),
  };
}

describe("what operators see", () => {
  test("without a management port everything is on the data port", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const service = await services.start({ database, config: ordersTo(receiver) });
    const root = await service.get("/");
    expect([root.status, root.text]).toEqual([200, "Service is running!"]);
    const live = await service.get("/health/live");
    expect([live.status, live.json()]).toEqual([200, { status: "healthy", components: { process: { status: "up" } } }]);
    const up = { status: "up" };
    const components = { database: up, "outbox-poller": up, "inbox-relay": up };
    for (const path of ["/health/ready", "/health"]) {
      const ready = await service.get(path);
      expect([ready.status, ready.json()]).toEqual([200, { status: "healthy", components }]);
    }
    const metrics = await service.get("/metrics");
    expect(metrics.status).toBe(200);
    expect(metrics.headers["content-type"]).toBe("text/plain; version=0.0.4; charset=utf-8");
    expect((await service.get("/nowhere")).status).toBe(404);
    for (const path of ["/admin/replay", "/admin/transform/test"]) {
      expect((await service.post({}, { path })).status).toBe(404);
    }
  });

  test("with a management port health and metrics are there alone, and the inbox is not", async () => {
    const [database, receiver, managementPort] = await Promise.all([
      services.database(),
      services.receiver(),
      freePort(),
    ]);
    const config = ordersTo(receiver, { server: { managementPort } });
    const service = await services.start({ database, config });
    for (const path of ["/health/live", "/health/ready", "/health", "/metrics"]) {
      expect([path, (await service.get(path)).status]).toEqual([path, 404]);
      expect([path, (await service.get(path, managementPort)).status]).toEqual([path, 200]);
    }
    expect((await service.get("/")).text).toBe("Service is running!");
    expect((await service.get("/", managementPort)).status).toBe(404);
    expect((await service.get("/inbox/orders", managementPort)).status).toBe(404);
    expect((await service.post({ id: "m-1", type: "created" })).status).toBe(202);
  });

  test("counts messages on their way in and out", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const service = await services.start({ database, config: ordersTo(receiver) });
    receiver.answerNext({ status: 500 });
    await service.post({ id: "m-1", type: "created" });
    await service.post({ id: "m-1", type: "created" });
    await service.post("no json");
    await eventually(async () => {
      const metrics = {
        'svc_inbox_messages_total{status="new"}': 1,
        'svc_inbox_messages_total{status="duplicate"}': 1,
        'svc_inbox_messages_total{status="forwarded"}': 1,
        'svc_inbox_rejections_total{reason="extraction_failed"}': 1,
        'svc_outbox_messages_total{status="sent"}': 1,
        'svc_outbox_messages_total{status="failed"}': 1,
        'svc_http_publish_responses_total{status_class="2xx"}': 1,
        'svc_http_publish_responses_total{status_class="5xx"}': 1,
        svc_delivery_latency_seconds_count: 1,
        svc_outbox_queue_depth: 0,
      };
      for (const [name, value] of Object.entries(metrics)) {
        expect([name, await service.metric(name)]).toEqual([name, value]);
      }
    });
  });
});
