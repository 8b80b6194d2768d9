import { expect, test } from "@jest/globals";
import type { RoleContext } from "../../../roles/context.ts";
import { brokerSources } from "../../../roles/ingest.ts";
import { loadConfig } from "../../../src/config/load.ts";
import { NO_TRACING } from "../../../src/setup/tracing.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../support/recorders.ts";

test("a broker source decides readiness unless it says that it is not required", async () => {
  const yaml = `
database: { url: "jdbc:postgresql://h/d", username: u, password: p }
sources:
  orders: { queueName: q, connectionUrl: amqp://h }
  events: { servers: h, stream: S, durable: d, required: false }
  clicks: { bootstrapServers: "h:9092", topics: [t], groupId: g, required: false }
`;
  const context = {
    config: loadConfig({ env: {}, file: "svc.yml", readFile: () => yaml }).config,
    clock: new ManualClock(),
    log: recordingLog().log,
    metrics: recordingMetrics().metrics,
    redact: (text: string) => text,
    tracing: NO_TRACING,
    evaluator: { evaluate: async () => "null" },
  } as unknown as RoleContext;
  const { health } = await brokerSources(context, async () => []);
  expect(health.map(({ name, decidesReadiness }) => [name, decidesReadiness])).toEqual([
    ["rabbitmq.orders", true],
    ["nats.events", false],
    ["kafka.clicks", false],
  ]);
});
