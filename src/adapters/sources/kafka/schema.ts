import type { Infer } from "../../../model/infer.ts";

/** Keys of a log-broker source (spec, "Log-broker source"). */
export const kafkaSourceSchema = {
  type: "object",
  description:
    "Consumes topics; an offset is committed after the inbox row commits. Replicas with the same `groupId` share partitions.",
  required: ["bootstrapServers", "topics", "groupId"],
  properties: {
    bootstrapServers: {
      type: "string",
      syntax: "notBlank",
      description: "Brokers to ask first, comma-separated `host:port`.",
    },
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
      description: "Declares that every publisher sets the event type header.",
    },
    securityProtocol: {
      type: "string",
      enum: ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
      default: "PLAINTEXT",
      description: "Transport and whether to authenticate.",
    },
    saslMechanism: {
      type: "string",
      enum: ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
      description: "SASL mechanism; required by a `SASL_` protocol.",
    },
    saslUsername: { type: "string", description: "SASL user name; required by a `SASL_` protocol." },
    saslPassword: { type: "string", secret: true, description: "SASL password; required by a `SASL_` protocol." },
  },
} as const;

export type KafkaSourceConfig = Infer<typeof kafkaSourceSchema>;
