import { boolean, type Infer, integer, text } from "../../../model/schema.ts";
import { sourceKind } from "../../../ports/kinds.ts";
import { amqpUri, checkAmqpUri } from "../../brokers/rabbitmq/uri.ts";

/** Keys of an AMQP source (spec, "AMQP source"). */
const rabbitmqSourceSchema = {
  type: "object",
  description: "Consumes a queue; acknowledges after the inbox commit.",
  required: ["queueName", "connectionUrl"],
  properties: {
    queueName: text("Queue to consume.", { syntax: "notBlank" }),
    connectionUrl: amqpUri,
    prefetchCount: integer("Most unacknowledged deliveries.", { minimum: 1, maximum: 65535, default: 10 }),
    declareQueue: boolean("Declare the queue durable before consuming.", { default: false }),
    eventTypeFromHeader: boolean("Every publisher sets the event type header.", { default: false }),
  },
} as const;

export type RabbitmqSourceConfig = Infer<typeof rabbitmqSourceSchema>;

/** A RabbitMQ source (spec, "AMQP source"). */
export const rabbitmqSource = sourceKind({
  schema: rabbitmqSourceSchema,
  check: ({ connectionUrl }, when) =>
    when(["connectionUrl"], (report) => checkAmqpUri("connectionUrl", connectionUrl, report)),
  attributes: { idempotencyKey: [{ property: "messageId", text: "AMQP property messageId" }], aggregateId: [] },
  readsFrom: ({ queueName }) => queueName,
  create: async (config, tools) => (await import("./index.ts")).createRabbitmqSource(config, tools),
});
