import { destinationKind } from "../../../ports/kinds.ts";
import { checkAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { rabbitmqDestinationSchema } from "./schema.ts";

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
