import type { Infer } from "../../../model/schema.ts";
import { kafkaConnectionKeys } from "../../brokers/kafka/schema.ts";

/** Keys of a Kafka source (spec, "Log-broker source"). */
export const kafkaSourceSchema = {
  type: "object",
  description:
    "Consumes topics; commits offsets after the inbox commit. Replicas with the same `groupId` share partitions.",
  required: ["bootstrapServers", "topics", "groupId"],
  properties: {
    bootstrapServers: kafkaConnectionKeys.bootstrapServers,
    topics: {
      type: "array",
      items: { type: "string", syntax: "notBlank" },
      minItems: 1,
      description: "Topics to consume.",
    },
    groupId: { type: "string", syntax: "notBlank", description: "Consumer group." },
    autoOffsetReset: {
      type: "string",
      enum: ["earliest", "latest"],
      default: "earliest",
      description: "Where a group without committed offset begins.",
    },
    maxPollRecords: { type: "integer", minimum: 1, default: 100, description: "Most records handled at a time." },
    eventTypeFromHeader: {
      type: "boolean",
      default: false,
      description: "Every publisher sets the event type header.",
    },
    securityProtocol: kafkaConnectionKeys.securityProtocol,
    saslMechanism: kafkaConnectionKeys.saslMechanism,
    saslUsername: kafkaConnectionKeys.saslUsername,
    saslPassword: kafkaConnectionKeys.saslPassword,
  },
} as const;

export type KafkaSourceConfig = Infer<typeof kafkaSourceSchema>;
