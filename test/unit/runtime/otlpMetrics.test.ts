import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { createMetrics } from "../../../src/runtime/metrics.ts";
import { MetricsPush } from "../../../src/runtime/otlpMetrics.ts";
import { eventually } from "../../support/eventually.ts";
import { manualTime } from "../../support/manualTime.ts";
import { recordingLog } from "../../support/recorders.ts";

interface Point {
  readonly attributes: readonly { readonly key: string; readonly value: object }[];
  readonly [figure: string]: unknown;
}
interface Metric {
  readonly name: string;
  readonly sum?: { readonly dataPoints: readonly Point[]; readonly isMonotonic: boolean };
  readonly gauge?: { readonly dataPoints: readonly Point[] };
  readonly histogram?: { readonly dataPoints: readonly Point[]; readonly aggregationTemporality: number };
}
interface Push {
  readonly resourceMetrics: readonly [
    {
      readonly resource: { readonly attributes: Point["attributes"] };
      readonly scopeMetrics: readonly [{ readonly metrics: readonly Metric[] }];
    },
  ];
}

const pushes: { readonly request: IncomingMessage; readonly body: Push }[] = [];
let status: number | undefined;
const server = createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => {
    body += chunk;
  });
  request.on("end", () => {
    pushes.push({ request, body: JSON.parse(body) as Push });
    if (status !== undefined) response.writeHead(status).end();
  });
});
beforeEach(async () => {
  status = 200;
  pushes.length = 0;
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function setup(env: NodeJS.ProcessEnv = {}) {
  const { clock } = manualTime();
  const registry = createMetrics({ version: "1", clock, processMetrics: false, deliveryBuckets: [1, 10] });
  const { log, lines } = recordingLog();
  const push = new MetricsPush({
    read: () => registry.figures(),
    version: "1.2.3",
    replica: "host-1",
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, ...env },
    intervalMs: 20,
    log,
    now: () => 1_700_000_000_000,
  });
  return { push, metrics: registry.metrics, lines };
}

test("counters, gauges and histograms are cumulative, with the labels and the resource", async () => {
  const { push, metrics } = setup({
    OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20x,bad",
    OTEL_RESOURCE_ATTRIBUTES: "team=shop",
    OTEL_SERVICE_NAME: "svc-poller",
  });
  metrics.outboxMessages("sent", 3);
  metrics.outboxPending(7);
  metrics.blockedKeys(Number.NaN);
  metrics.messageDelivery("orders", 0.5);
  metrics.messageDelivery("orders", 5);
  metrics.messageDelivery("orders", 50);

  await push.push();

  const [{ request, body } = { request: undefined, body: undefined }] = pushes;
  expect([request?.url, request?.headers.authorization, request?.headers["content-type"]]).toEqual([
    "/v1/metrics",
    "Bearer x",
    "application/json",
  ]);
  const [{ resource, scopeMetrics }] = body?.resourceMetrics ?? [expect.anything() as never];
  expect(resource.attributes).toEqual(
    [
      ["service.name", "svc-poller"],
      ["service.version", "1.2.3"],
      ["service.instance.id", "host-1"],
      ["team", "shop"],
    ].map(([key, stringValue]) => ({ key, value: { stringValue } })),
  );
  const named = (name: string) => scopeMetrics[0].metrics.find((metric) => metric.name === name);
  const time = { startTimeUnixNano: "1700000000000000000", timeUnixNano: "1700000000000000000" };
  expect(named("svc_outbox_messages_total")?.sum).toMatchObject({ aggregationTemporality: 2, isMonotonic: true });
  expect(named("svc_outbox_messages_total")?.sum?.dataPoints).toContainEqual({
    ...time,
    attributes: [{ key: "status", value: { stringValue: "sent" } }],
    asDouble: 3,
  });
  expect(named("svc_outbox_messages_pending")?.gauge?.dataPoints).toEqual([{ ...time, attributes: [], asDouble: 7 }]);
  expect(named("svc_message_delivery_duration_seconds")?.histogram).toEqual({
    aggregationTemporality: 2,
    dataPoints: [
      {
        ...time,
        attributes: [{ key: "destination", value: { stringValue: "orders" } }],
        sum: 55.5,
        count: "3",
        explicitBounds: [1, 10],
        bucketCounts: ["1", "1", "1"],
      },
    ],
  });
});

test("it pushes again and again, and once more at its stop", async () => {
  const { push } = setup();
  await push.start();
  await eventually(() => expect(pushes.length).toBeGreaterThanOrEqual(3));
  await push.stop(new AbortController().signal);
  const count = pushes.length;
  expect(count).toBeGreaterThanOrEqual(4);
});

test("neither the address of the collector nor its headers come into the log", async () => {
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: "http://user:sesame@127.0.0.1:9",
    OTEL_EXPORTER_OTLP_HEADERS: "a=sesame%0A",
  };
  const { push, lines } = setup(env);
  await push.push();
  expect(lines).toHaveLength(1);
  expect(JSON.stringify(lines)).not.toContain("sesame");
});

test("a collector that fails or hangs costs one warning until it takes metrics again", async () => {
  const { push, lines } = setup({ OTEL_EXPORTER_OTLP_TIMEOUT: "1500" });
  status = 503;
  await push.push();
  status = undefined;
  await push.push();
  expect(lines.map(({ level, fields }) => [level, fields])).toEqual([["warn", { reason: "it answered 503" }]]);
  status = 200;
  await push.push();
  await push.push();
  expect(lines.map(({ level }) => level)).toEqual(["warn", "info"]);
});
