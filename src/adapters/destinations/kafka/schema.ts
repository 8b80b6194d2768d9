import type { Infer } from "../../../model/infer.ts";

/** Keys of a log-broker destination (spec, "Log-broker destination"). */
export const kafkaDestinationSchema = {
  type: "object",
  description: "Publishes records with acks=all and an idempotent producer.",
  required: ["bootstrapServers", "topic"],
  properties: {
    bootstrapServers: {
      type: "string",
      syntax: "notBlank",
      description: "Brokers to ask first, comma-separated `host:port`.",
    },
    topic: { type: "string", syntax: "address", description: "Topic: a name or an address template." },
    topicFrom: {
      type: "string",
      enum: ["aggregate_type", "topic", "key"],
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
      description: "Budget of a whole publish, the broker's acknowledgement included.",
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

export type KafkaDestinationConfig = Infer<typeof kafkaDestinationSchema>;
