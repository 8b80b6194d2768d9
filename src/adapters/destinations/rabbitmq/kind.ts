import { boolean, type Infer, text } from "../../../model/schema.ts";
import { destinationKind } from "../../../ports/kinds.ts";
import { amqpUri, checkAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { addressColumn, addressTemplate } from "../../brokers/schema.ts";

/** Keys of an AMQP destination (spec, "AMQP destination"). */
const rabbitmqDestinationSchema = {
  type: "object",
  description: "Publishes with the mandatory flag and waits for the confirm.",
  required: ["url", "exchange"],
  properties: {
    url: amqpUri,
    exchange: addressTemplate("Exchange"),
    exchangeFrom: addressColumn("exchange"),
    exchangeType: text("Type of a declared exchange.", {
      enum: ["topic", "direct", "fanout"],
      default: "topic",
    }),
    declareExchange: boolean("Declare the exchange; with `false` only check that it exists.", { default: true }),
    routingKeyTemplate: text("Routing key when the matched route sets none.", {
      syntax: "routingKey",
      default: "{{ topic }}",
    }),
    deliveryMode: text("Whether the broker keeps messages on disk.", {
      enum: ["persistent", "transient"],
      default: "persistent",
    }),
  },
} as const;

export type RabbitmqDestinationConfig = Infer<typeof rabbitmqDestinationSchema>;

/** A RabbitMQ destination (spec, "AMQP destination"). */
export const rabbitmqDestination = destinationKind({
  schema: rabbitmqDestinationSchema,
  check: ({ url }, when) => when(["url"], (report) => checkAmqpUri("url", url, report)),
  address: { name: "exchange", template: "exchange", from: "exchangeFrom" },
  routingKey: { name: "routing key", template: "routingKeyTemplate", fields: "all", emptyMeansNone: false },
  cloudEvents: { prefix: "cloudEvents_", isEncoded: false },
  explain: ({ url }) => ({ name: "broker", text: url }),
  create: async (config, tools) => (await import("./index.ts")).createRabbitmqDestination(config, tools),
});
