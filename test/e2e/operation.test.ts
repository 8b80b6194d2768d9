import { beforeAll, describe, expect, test } from "@jest/globals";
import { describedApi } from "../support/describedApi.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import type { Receiver } from "../support/receiver.ts";
import { ordersTo, type Service, sumOfSamples, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

/** Intervals so long that within the test only wakes move anything. */
const BY_WAKES_ALONE = { outbox: { pollIntervalMs: 60_000 }, inbox: { relay: { pollIntervalMs: 200 } } };

describe("roles in processes of their own", () => {
  test("deliver together, in whatever order they start, and a poller in another process is woken long before its poll interval is over", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const admin = { enabled: true, auth: { token: "of-the-operator" } };
    const config = ordersTo(receiver, { ...BY_WAKES_ALONE, admin });
    // A listener needs a direct connection; a notifier does not.
    const direct = { ...database, jdbcUrl: database.directJdbcUrl };
    const ingest = await services.start({ database, config, roles: ["ingest"] });
    expect((await ingest.post({ id: "m-0", key: "c-1", type: "created" })).status).toBe(202);
    // What came in before is delivered when the others come.
    const [relay, poller] = await Promise.all([
      services.start({ database, config, roles: ["relay"] }),
      services.start({ database: direct, config, roles: ["poller"] }),
    ]);
    await receiver.received(1);
    for (let n = 1; n <= 3; n += 1) {
      expect((await ingest.post({ id: `m-${n}`, key: "c-1", type: "created" })).status).toBe(202);
      await receiver.received(n + 1);
    }
    expect((await ingest.readiness()).components).toEqual({ database: "up" });
    expect((await relay.readiness()).components).toEqual({ database: "up", "inbox-relay": "up" });
    expect((await poller.readiness()).components).toEqual({ database: "up", "outbox-poller": "up" });
    expect(await names(ingest)).toEqual({ inbox: true, relay: false, outbox: false });
    expect(await names(relay)).toEqual({ inbox: true, relay: true, outbox: false });
    expect(await names(poller)).toEqual({ inbox: false, relay: false, outbox: true });
    expect((await poller.post({ id: "m-9" })).status).toBe(404);
    expect((await relay.post({ id: "m-9" })).status).toBe(404);
    await expectNoAdminRoutes(ingest);
  });
});

/** Also for who has the credentials. */
async function expectNoAdminRoutes(service: Service): Promise<void> {
  const { operations } = describedApi((await service.get("/openapi.json")).text);
  for (const path of ["/admin/replay", "/admin/transform/test"]) {
    const answer = await service.post({ topic: "x" }, { path, headers: { authorization: "Bearer of-the-operator" } });
    expect([answer.status, answer.json()]).toEqual([404, { error: "Not found" }]);
    expect(operations).not.toContain(`POST ${path}`);
  }
}

/** Which families of metrics a process shows. */
async function names(service: Service) {
  const { text } = await service.get("/metrics");
  return {
    inbox: text.includes("# TYPE svc_inbox_messages_total "),
    relay: text.includes("# TYPE svc_inbox_relay_errors_total "),
    outbox: text.includes("# TYPE svc_outbox_messages_total "),
  };
}

describe("all roles in one process", () => {
  let receiver: Receiver;
  let replicas: readonly Service[];
  beforeAll(async () => {
    const [database, anyone] = await Promise.all([services.database(), services.receiver()]);
    receiver = anyone;
    const intervals = { outbox: { pollIntervalMs: 60_000 }, inbox: { relay: { pollIntervalMs: 60_000 } } };
    const config = ordersTo(receiver, intervals);
    replicas = await Promise.all(Array.from({ length: 3 }, () => services.start({ database, config })));
  });

  test("may start several times at once on an empty database", async () => {
    for (const [n, replica] of replicas.entries()) {
      expect((await replica.post({ id: `r-${n}`, type: "created" })).status).toBe(202);
    }
    const requests = await receiver.received(3);
    const ids = requests.map(({ headers }) => headers["x-idempotency-key"]);
    expect(ids.toSorted()).toEqual(["r-0", "r-1", "r-2"]);
  });

  test("wake each other without the database", async () => {
    const [service, ...others] = replicas;
    await Promise.all(others.map((other) => other.stop()));
    for (let n = 1; n <= 3; n += 1) {
      await service?.post({ id: `m-${n}`, type: "created" });
      await receiver.received(3 + n);
    }
  });

  test("have everything on the data port if there is no management port", async () => {
    const [service] = replicas as readonly [Service];
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
    await expectNoAdminRoutes(service);
  });
});

describe("a management port", () => {
  let receiver: Receiver;
  let service: Service;
  let managementPort: number;
  beforeAll(async () => {
    managementPort = await freePort();
    const [database, anyone] = await Promise.all([services.database(), services.receiver()]);
    receiver = anyone;
    service = await services.start({ database, config: ordersTo(receiver, { server: { managementPort } }) });
  });

  test("has health and metrics alone, and not the inbox", async () => {
    for (const path of ["/health/live", "/health/ready", "/health", "/metrics"]) {
      expect([path, (await service.get(path)).status]).toEqual([path, 404]);
      expect([path, (await service.get(path, managementPort)).status]).toEqual([path, 200]);
    }
    expect((await service.get("/")).text).toBe("Service is running!");
    expect((await service.get("/", managementPort)).status).toBe(404);
    expect((await service.get("/inbox/orders", managementPort)).status).toBe(404);
  });

  test("counts messages on their way in and out", async () => {
    receiver.answerNext({ status: 500 });
    expect((await service.post({ id: "m-1", type: "created" })).status).toBe(202);
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
      const { text } = await service.get("/metrics", managementPort);
      const seen = Object.keys(metrics).map((name) => [name, sumOfSamples(text, name)]);
      expect(Object.fromEntries(seen)).toEqual(metrics);
    });
  });
});
