/** How to reach Kafka, for its sources and destinations (spec, "Log-broker destination" and "Log-broker source"). */
export const kafkaConnectionKeys = {
  bootstrapServers: {
    type: "string",
    url: true,
    syntax: "notBlank",
    description: "Brokers to ask first, comma-separated `host:port`.",
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
} as const;

/** One entry of `bootstrapServers`: host, port; an IPv6 address stands in brackets. */
export const KAFKA_SERVER = /^(\[[0-9a-f:.%]+\]|[^\s:/@[\]]+)(?::(\d{1,5}))?$/i;
