import type { Infer } from "../../../model/schema.ts";
import { ADDRESS_COLUMNS } from "../../../ports/kinds.ts";
import { kafkaConnectionKeys } from "../../brokers/kafka/schema.ts";

/** Keys of a Kafka destination (spec, "Log-broker destination"). */
export const kafkaDestinationSchema = {
  type: "object",
  description: "Publishes records with acks=all and an idempotent producer.",
  required: ["bootstrapServers", "topic"],
  properties: {
    bootstrapServers: kafkaConnectionKeys.bootstrapServers,
    topic: { type: "string", syntax: "address", description: "Topic: a name or an address template." },
    topicFrom: {
      type: "string",
      enum: ADDRESS_COLUMNS,
      description: "Row column that holds the topic; wins over `topic`.",
    },
    keyTemplate: {
      type: "string",
      syntax: "routingKey",
      default: "{{ key }}",
      description:
        "Record key; only `{{ key }}` and `{{ topic }}` render. An empty result sends no key. A route's `routingKeyTemplate` wins.",
    },
    timeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 2000,
      default: 30000,
      description: "Longest publish, acknowledgement included.",
    },
    securityProtocol: kafkaConnectionKeys.securityProtocol,
    saslMechanism: kafkaConnectionKeys.saslMechanism,
    saslUsername: kafkaConnectionKeys.saslUsername,
    saslPassword: kafkaConnectionKeys.saslPassword,
  },
} as const;

export type KafkaDestinationConfig = Infer<typeof kafkaDestinationSchema>;
