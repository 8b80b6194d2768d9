import { type Infer, ms, text } from "../../../model/schema.ts";
import { destinationKind } from "../../../ports/kinds.ts";
import { bootstrapServers, checkKafka, kafkaSecurityKeys } from "../../brokers/kafka/schema.ts";
import { addressColumn, addressTemplate } from "../../brokers/schema.ts";

/** Keys of a Kafka destination (spec, "Log-broker destination"). */
const kafkaDestinationSchema = {
  type: "object",
  description: "Publishes records with acks=all and an idempotent producer.",
  required: ["bootstrapServers", "topic"],
  properties: {
    bootstrapServers,
    topic: addressTemplate("Topic"),
    topicFrom: addressColumn("topic"),
    keyTemplate: text("Record key; only `{{ key }}` and `{{ topic }}` render. Empty: no key.", {
      syntax: "routingKey",
      default: "{{ key }}",
    }),
    timeoutMs: ms("Longest publish, acknowledgement included.", { minimum: 2000, default: 30000 }),
    ...kafkaSecurityKeys,
  },
} as const;

export type KafkaDestinationConfig = Infer<typeof kafkaDestinationSchema>;

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
