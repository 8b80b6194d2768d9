import { boolean, type Infer, integer, text } from "../../../model/schema.ts";
import { amqpUri } from "../../brokers/rabbitmq/uri.ts";

/** Keys of an AMQP source (spec, "AMQP source"). */
export const rabbitmqSourceSchema = {
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
