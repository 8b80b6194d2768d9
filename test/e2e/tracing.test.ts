import { writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import { sharedEnd } from "../support/brokerEnds/index.ts";
import { describeWith, START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { Collector, type ReceivedSpan } from "../support/collector.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const TRACED = { tracing: { enabled: true } };
/** Of a sender. */
const SENDER = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" };
const TRACEPARENT = `00-${SENDER.traceId}-${SENDER.spanId}-01`;

interface Running {
  readonly database: TestDatabase;
  readonly receiver: Receiver;
  readonly collector: Collector;
}

async function parts(): Promise<Running> {
  const collector = await Collector.start();
  services.defer(() => collector.close());
  return { database: await services.database(), receiver: await services.receiver(), collector };
}

const order = (id: string): object => ({ id, key: "k", type: "created" });
const contextOf = ({ traceId, spanId }: ReceivedSpan): string => `00-${traceId}-${spanId}-01`;
const identity = ({ traceId, spanId }: Pick<ReceivedSpan, "traceId" | "spanId">) => ({ traceId, spanId });

describe("in one process", () => {
  async function start(over: ConfigTree = {}, env: Readonly<Record<string, string>> = {}) {
    const running = await parts();
    const config = ordersTo(running.receiver, merged(TRACED, over));
    const service = await services.start({
      database: running.database,
      config,
      env: { ...running.collector.env, ...env },
    });
    return { ...running, service };
  }

  test("a message is one trace, from its receipt to its settlement", async () => {
    const { service, receiver, collector, database } = await start();

    await service.post(order("o-1"), { headers: { traceparent: TRACEPARENT, tracestate: "vendor=1" } });

    const [request] = await receiver.received(1);
    const [settled] = await collector.named("settle");
    const [received] = await collector.named("receive orders");
    const [stored] = await collector.named("store");
    const [sent] = await collector.named("send receiver");
    if (!received || !stored || !sent || !settled) throw new Error("a span is missing");
    // The sender is not trusted: its trace is linked.
    expect(received).toMatchObject({ kind: "server", parentSpanId: "", links: [SENDER] });
    expect(received.traceId).not.toBe(SENDER.traceId);
    for (const span of [stored, sent])
      expect(span).toMatchObject({ traceId: received.traceId, parentSpanId: received.spanId });
    expect(stored).toMatchObject({ kind: "client", links: [identity(received)] });
    expect(sent).toMatchObject({ kind: "client", attributes: { "svc.attempt": 1, "svc.outcome": "sent" } });
    expect(settled).toMatchObject({ traceId: received.traceId, parentSpanId: sent.spanId, links: [identity(sent)] });
    expect(request?.headers.traceparent).toBe(contextOf(sent));
    expect(request?.headers.tracestate).toBeUndefined();
    expect(sent.schemaUrl).toBe("https://opentelemetry.io/schemas/1.45.0");
    expect(sent.resource).toMatchObject({ "service.name": "svc" });
    // The receipt relays and claims, as without tracing.
    expect(collector.spans.map(({ name }) => name)).not.toContain("relay");
    const [rows] = await database.query(
      "SELECT i.headers ->> 'traceparent' AS inbox, o.headers ->> 'traceparent' AS outbox FROM inbox i, outbox o",
    );
    expect(rows).toEqual({ inbox: TRACEPARENT, outbox: contextOf(received) });
  });

  test("a trusted sender's span is the parent, and its flag decides", async () => {
    const { service, receiver, collector } = await start({ sources: { orders: { tracing: { trust: true } } } });

    await service.post(order("o-1"), { headers: { Traceparent: TRACEPARENT, tracestate: "vendor=1", baggage: "a=b" } });
    await service.post(order("o-2"), { headers: { traceparent: TRACEPARENT.replace(/01$/, "00") } });

    const requests = await receiver.received(2);
    const [received] = await collector.named("receive orders");
    expect(received).toMatchObject({ traceId: SENDER.traceId, parentSpanId: SENDER.spanId, links: [] });
    const [sent] = await collector.named("send receiver");
    expect(requests[0]?.headers).toMatchObject({ tracestate: "vendor=1", baggage: "a=b" });
    expect(requests[0]?.headers.traceparent).toBe(sent && contextOf(sent));
    expect(requests[1]?.headers.traceparent).toMatch(new RegExp(`^00-${SENDER.traceId}-[0-9a-f]{16}-00$`));
    await service.stop();
    expect(collector.spans.filter(({ name }) => name === "receive orders")).toHaveLength(1);
  });

  test("an application joins by its own headers, and each attempt is a span", async () => {
    const { receiver, collector, database } = await start({ outbox: { retryBaseDelayMs: 10 } });
    receiver.answer = (_, response) => response.writeHead(receiver.requests.length === 1 ? 503 : 200).end();

    await database.query(
      `INSERT INTO outbox (topic, payload, headers) VALUES ('orders.created', '{}', '{"traceparent": "${TRACEPARENT}"}')`,
    );

    const attempts = await collector.named("send receiver", 2);
    expect(attempts).toEqual([
      expect.objectContaining({
        ...SENDER,
        spanId: expect.any(String),
        parentSpanId: SENDER.spanId,
        isError: true,
        attributes: expect.objectContaining({
          "svc.attempt": 1,
          "svc.outcome": "retry",
          "error.type": "status_5xx",
          "http.response.status_code": 503,
        }),
      }),
      expect.objectContaining({
        traceId: SENDER.traceId,
        parentSpanId: SENDER.spanId,
        isError: false,
        attributes: expect.objectContaining({ "svc.attempt": 2, "svc.outcome": "sent" }),
      }),
    ]);
  });

  test("a list is a span for each destination, each with what the receiver gets", async () => {
    const { service, receiver, collector } = await start({
      destinations: { second: { baseUrl: "http://127.0.0.1:9", path: "/second" } },
      routes: [{ topicPattern: "orders.**", destinations: ["receiver", "second"] }],
      outbox: { maxAttempts: 1 },
    });

    await service.post(order("o-1"));

    const [request] = await receiver.received(1);
    const [sent] = await collector.named("send receiver");
    const [failed] = await collector.named("send second");
    const [received] = await collector.named("receive orders");
    for (const span of [sent, failed]) {
      expect(span).toMatchObject({ traceId: received?.traceId, parentSpanId: received?.spanId });
    }
    expect(request?.headers.traceparent).toBe(sent && contextOf(sent));
    expect(failed).toMatchObject({ isError: true, attributes: { "error.type": "connection_refused" } });
  });

  test("transforms are inside the receipt and the attempt", async () => {
    const transform = { expression: '$merge([$, {"seen": true}])' };
    const { service, receiver, collector } = await start({
      sources: { orders: { transform } },
      destinations: { receiver: { transform } },
      routes: [{ topicPattern: "orders.**", destination: "receiver", transform }],
    });

    await service.post(order("o-1"));

    await receiver.received(1);
    const transforms = await collector.named("transform", 3);
    const [received] = await collector.named("receive orders");
    const [sent] = await collector.named("send receiver");
    const parents = Object.fromEntries(transforms.map((span) => [span.attributes["svc.transform"], span.parentSpanId]));
    expect(parents).toEqual({ source: received?.spanId, route: sent?.spanId, destination: sent?.spanId });
  });

  test("no transform or expression sees the context, and no sender forges one", async () => {
    const { service, receiver, database } = await start({
      sources: {
        orders: { idempotencyKeyExpression: "$string($headers)", transform: { expression: '{"headers": $headers}' } },
      },
    });
    const headers = { "x-a": "b", "Svc-Traceparent": TRACEPARENT, "svc-tracestate": "forged=1" };

    expect((await service.post(order("o-1"), { headers })).status).toBe(202);
    expect((await service.post(order("o-1"), { headers })).json()).toEqual({ status: "duplicate" });

    const [request] = await receiver.received(1);
    expect(request?.body.toString()).not.toMatch(/svc-trace/i);
    const [row] = await database.query("SELECT headers FROM inbox");
    const stored = Object.entries(row?.headers as object).filter(([name]) => /^svc-/i.test(name));
    expect(stored).toEqual([["svc-traceparent", expect.not.stringContaining(SENDER.traceId)]]);
  });

  test("tables of an owner without the columns of later versions are served as without tracing", async () => {
    const { database, receiver, collector } = await parts();
    const start = (config: ConfigTree) =>
      services.start({ database, config: ordersTo(receiver, config), env: collector.env });
    await (await start({})).stop();
    await database.query("ALTER TABLE outbox DROP COLUMN expires_at");
    const service = await start({ ...TRACED, database: { migrate: false } });

    await service.post(order("o-1"));

    await receiver.received(1);
    await collector.named("settle");
  });

  test.each([
    ["link", {}],
    ["parent", { parentMaxAgeMs: 0 }],
  ])("a delivery is linked with %s and an age of %j", async (deliveries, age) => {
    const { receiver, collector, database } = await start({ tracing: { deliveries, ...age } });

    await database.query(
      `INSERT INTO outbox (topic, payload, headers, created_at) VALUES ('orders.created', '{}', '{"traceparent": "${TRACEPARENT}"}', now() - interval '1 s')`,
    );

    const [request] = await receiver.received(1);
    const [sent] = await collector.named("send receiver");
    expect(sent).toMatchObject({ parentSpanId: "", links: [SENDER] });
    expect(sent?.traceId).not.toBe(SENDER.traceId);
    expect(request?.headers.traceparent).toBe(sent && contextOf(sent));
  });

  test("a new trace has no link, and only chosen headers travel", async () => {
    const { service, receiver, collector } = await start({ tracing: { deliveries: "new", propagate: ["tracestate"] } });

    await service.post(order("o-1"), { headers: { traceparent: TRACEPARENT, baggage: "user=7" } });

    const [request] = await receiver.received(1);
    const [sent] = await collector.named("send receiver");
    expect(sent).toMatchObject({ parentSpanId: "", links: [] });
    expect(request?.headers).not.toHaveProperty("traceparent");
    expect(request?.headers).not.toHaveProperty("baggage");
  });

  test("a replay and a pull client are linked to the message", async () => {
    const admin = { authorization: "Bearer admin-sesame-1" };
    const { service, receiver, collector, database } = await start({
      sources: { pulled: { path: "/pulled", idempotencyKeyPath: "$.id", consumption: "pull" } },
      inbox: { pull: { enabled: true, auth: { token: "pull-sesame-1" } } },
      admin: { enabled: true, auth: { token: "admin-sesame-1" } },
    });
    await service.post(order("o-1"));
    await receiver.received(1);
    const [received] = await collector.named("receive orders");
    await collector.named("settle");

    await service.post({ topics: ["orders.created"] }, { path: "/admin/replay", headers: admin });

    expect(await database.query("SELECT event FROM outbox_history")).toEqual([{ event: "replayed" }]);
    const [replayed] = await collector.named("replay");
    expect(replayed).toMatchObject({ traceId: received?.traceId, links: [received && identity(received)] });
    await collector.named("send receiver", 2);

    await service.post({ id: "p-1" }, { path: "/inbox/pulled" });
    const pull = { headers: { authorization: "Bearer pull-sesame-1" } };
    const claim = (await service.post({ max: 1 }, { path: "/pull/pulled/claim", ...pull })).json() as {
      claimToken: string;
      messages: { headers: Record<string, string> }[];
    };
    await service.post({ claimToken: claim.claimToken }, { path: "/pull/pulled/ack", ...pull });
    const [pulled] = await collector.named("receive pulled");
    const [claimed] = await collector.named("claim pulled");
    const [acknowledged] = await collector.named("ack pulled");
    for (const span of [claimed, acknowledged]) {
      expect(span).toMatchObject({ traceId: pulled?.traceId, links: [pulled && identity(pulled)] });
    }
    expect(claim.messages[0]?.headers).toEqual(expect.objectContaining({ traceparent: pulled && contextOf(pulled) }));
  });

  test("no attribute holds what a message holds, and log lines lead to its trace", async () => {
    const { service, receiver, collector } = await start(
      {
        outbox: { maxAttempts: 1 },
        destinations: { receiver: { transform: { expression: "$error('held payload-marker')" } } },
      },
      { LOG_LEVEL: "debug" },
    );
    receiver.answer = (_, response) => response.writeHead(500).end("answer-marker");

    await service.post(
      { id: "id-marker", key: "key-marker", type: "type-marker", text: "payload-marker" },
      { headers: { "x-tenant": "header-marker", cookie: "cookie-marker", baggage: "baggage-marker=1" } },
    );

    const [sent] = await collector.named("send receiver");
    await collector.named("settle");
    expect(JSON.stringify(collector.spans)).not.toMatch(/marker/);
    const line = await service.process.waitForLine(/"msg":"delivery attempted"/);
    expect(JSON.parse(line.input)).toMatchObject({ trace_id: sent?.traceId, span_id: sent?.spanId });
  });

  test("a killed process loses the spans of a second at most, and no trace is cut in two", async () => {
    const { service, receiver, collector, database } = await start({ outbox: { claimTimeoutMs: 5000 } });
    await service.post(order("o-1"));
    const [received] = await collector.named("receive orders");
    await collector.named("settle");
    receiver.answer = () => {};
    await service.post(order("o-2"));
    await receiver.received(2);
    await collector.named("receive orders", 2);
    await service.kill();

    receiver.answer = { status: 200 };
    await services.start({
      database,
      config: ordersTo(receiver, merged(TRACED, { outbox: { claimTimeoutMs: 5000 } })),
      env: collector.env,
    });

    const sent = await collector.named("send receiver", 2);
    expect(sent.map(({ traceId }) => traceId)).toEqual(
      (await collector.named("receive orders", 2)).map(({ traceId }) => traceId),
    );
    expect(new Set(collector.spans.map(({ spanId }) => spanId)).size).toBe(collector.spans.length);
    expect(sent[0]?.traceId).toBe(received?.traceId);
  });

  test("a collector that hangs costs one warning and no message, and the stop stays in its time", async () => {
    const { service, receiver, collector } = await start({}, { OTEL_EXPORTER_OTLP_TIMEOUT: "200" });
    collector.answer = () => {};

    for (let n = 0; n < 20; n++) {
      await service.post(order(`o-${n}`));
      await receiver.received(n + 1);
    }
    await service.process.waitForLine(/the collector takes no spans/);
    const startedAt = performance.now();
    expect(await service.stop()).toEqual({ code: 0, signal: null });
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    expect(service.process.lines.filter((line) => line.includes("the collector takes no spans"))).toHaveLength(1);
  });
});

describe("without tracing", () => {
  /** Prints the loaded modules of OpenTelemetry at the end of a process. */
  function loadedModules(): Readonly<Record<string, string>> {
    const file = path.join(services.folder(), "loaded.cjs");
    // prom-client loads the package of the API by itself.
    const listing = "Object.keys(require.cache).filter((file) => /@opentelemetry.(?!api.)/.test(file)).length";
    writeFileSync(file, `process.on("exit", () => require("node:fs").writeSync(2, "loaded: " + ${listing} + "\\n"));`);
    return { NODE_OPTIONS: `--require ${file}` };
  }

  test.each([
    ["off", {}, {}, /loaded: 0$/],
    ["disabled by OTEL_SDK_DISABLED", TRACED, { OTEL_SDK_DISABLED: "true" }, /loaded: 0$/],
    ["on", TRACED, {}, /loaded: [1-9]\d*$/],
  ] as const)("%s: the modules of OpenTelemetry", async (_, config, env, loaded) => {
    const { database, receiver, collector } = await parts();
    const service = await services.start({
      database,
      config: ordersTo(receiver, config),
      env: { ...collector.env, ...env, ...loadedModules() },
    });
    await service.post(order("o-1"), { headers: { traceparent: TRACEPARENT } });
    const [request] = await receiver.received(1);
    await service.stop();

    expect(service.process.stderr.at(-1)).toMatch(loaded);
    if (config !== TRACED) expect(request?.headers.traceparent).toBe(TRACEPARENT);
  });

  test("a sender's headers of the receipt's names are not stored", async () => {
    const { database, receiver } = await parts();
    const service = await services.start({ database, config: ordersTo(receiver) });
    const headers = { traceparent: TRACEPARENT, "svc-traceparent": "garbage", "SVC-Tracestate": "x" };

    await service.post(order("o-1"), { headers });

    const [request] = await receiver.received(1);
    expect(request?.headers.traceparent).toBe(TRACEPARENT);
    expect(Object.keys(request?.headers ?? {}).filter((name) => name.startsWith("svc-"))).toEqual([]);
  });

  test("another protocol of OpenTelemetry stops the start", async () => {
    const { database, receiver } = await parts();
    const service = await services.launch({
      database,
      config: ordersTo(receiver, TRACED),
      env: { OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" },
    });

    expect((await service.process.exited).code).toBe(2);
    expect(service.process.stderr.join("\n")).toContain(
      'OTEL_EXPORTER_OTLP_PROTOCOL: found "grpc", expected http/protobuf',
    );
  });
});

for (const kind of ["kafka", "rabbitmq", "nats"] as const) {
  describeWith([kind], `through ${kind} and two processes`, () => {
    test(
      "out over the broker, in again and on over HTTP is one connected trace",
      async () => {
        const { database, receiver, collector } = await parts();
        const end = await sharedEnd(kind);
        services.defer(() => end[Symbol.asyncDispose]());
        const config = ordersTo(receiver, {
          ...TRACED,
          sources: {
            back: { ...end.returning, idempotencyKeyPath: "$.id", topic: "back", tracing: { trust: true } },
          },
          destinations: { broker: end.destination },
          routes: [
            { topicPattern: "orders.**", destination: "broker" },
            { topicPattern: "back", destination: "receiver" },
          ],
        });
        const start = (roles: readonly string[], name: string) =>
          services.start({ database, config, roles, env: { ...collector.env, OTEL_SERVICE_NAME: name } });
        const ingest = await start(["ingest", "relay"], "ingest");
        await start(["poller"], "poller");

        await ingest.post(order("o-1"));

        const [request] = await receiver.received(1);
        await collector.named("settle", 2);
        const [received] = await collector.named("receive orders");
        const [toBroker] = await collector.named("send broker");
        const [returned] = await collector.named("receive back");
        const [sent] = await collector.named("send receiver");
        if (!received || !toBroker || !returned || !sent) throw new Error("a span is missing");
        const way = [received, toBroker, returned, sent];
        expect(way.map(({ parentSpanId }) => parentSpanId)).toEqual([
          "",
          ...way.slice(0, -1).map(({ spanId }) => spanId),
        ]);
        expect(way.map(({ resource }) => resource["service.name"])).toEqual(["ingest", "poller", "ingest", "poller"]);
        expect(way.map((span) => span.kind)).toEqual(["server", "producer", "consumer", "client"]);
        expect(toBroker.attributes).toMatchObject({
          "messaging.system.name": kind,
          "messaging.operation.type": "send",
        });
        expect(new Set(collector.spans.map(({ traceId }) => traceId))).toEqual(new Set([received.traceId]));
        expect(request?.headers.traceparent).toBe(contextOf(sent));
      },
      3 * START_TIMEOUT_MS,
    );
  });
}
