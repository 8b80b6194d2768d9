import { destinationKind } from "../../../ports/kinds.ts";
import { checkKafka } from "../../brokers/kafka/schema.ts";
import { kafkaDestinationSchema } from "./schema.ts";

/** A Kafka destination (spec, "Log-broker destination"). */
export const kafkaDestination = destinationKind({
  schema: kafkaDestinationSchema,
  check: checkKafka,
  address: { name: "topic", template: "topic", from: "topicFrom" },
  routingKey: { name: "record key", template: "keyTemplate", fields: "columns", emptyMeansNone: true },
  cloudEvents: { prefix: "ce_", isEncoded: false },
  explain: ({ bootstrapServers }) => ({ name: "broker", text: bootstrapServers }),
  create: async (config, tools) => (await import("./index.ts")).createKafkaDestination(config, tools),
});
