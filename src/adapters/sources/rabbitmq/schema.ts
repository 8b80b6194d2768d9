import type { Infer } from "../../../model/schema.ts";

/** Keys of an AMQP source (spec, "AMQP source"). */
export const rabbitmqSourceSchema = {
  type: "object",
  description: "Consumes a queue; acknowledges after the inbox commit.",
  required: ["queueName", "connectionUrl"],
  properties: {
    queueName: { type: "string", syntax: "notBlank", description: "Queue to consume." },
    connectionUrl: {
      type: "string",
      url: true,
      description: "AMQP URI such as `amqp://user:password@host:5672/vhost`. Takes no `file:`.",
    },
    prefetchCount: {
      type: "integer",
      minimum: 1,
      maximum: 65535,
      default: 10,
      description: "Most unacknowledged deliveries.",
    },
    declareQueue: { type: "boolean", default: false, description: "Declare the queue durable before consuming." },
    eventTypeFromHeader: {
      type: "boolean",
      default: false,
      description: "Every publisher sets the event type header.",
    },
  },
} as const;

export type RabbitmqSourceConfig = Infer<typeof rabbitmqSourceSchema>;
