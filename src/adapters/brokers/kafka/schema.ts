import type { Secret } from "../../../model/secret.ts";
import type { When } from "../../../ports/kinds.ts";
import { checkServers } from "../serverList.ts";

/** Connection keys of Kafka sources and destinations (spec, "Log-broker destination" and "Log-broker source"). */
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

/** One entry of `bootstrapServers`: host, port; an IPv6 address is in brackets. */
const KAFKA_SERVER = /^(\[[0-9a-f:.%]+\]|[^\s:/@[\]]+)(?::(\d{1,5}))?$/i;

interface KafkaKeys {
  readonly bootstrapServers: string;
  readonly securityProtocol: string;
  readonly saslMechanism?: string;
  readonly saslUsername?: string;
  readonly saslPassword?: Secret;
}

const SASL_KEYS = ["saslMechanism", "saslUsername", "saslPassword"] as const;

/** A `SASL_` protocol requires mechanism, user name and password; the others use none of them. */
export function checkKafka(entry: KafkaKeys, when: When): void {
  for (const key of SASL_KEYS) {
    when(["securityProtocol", key], (report) => {
      const sasl = entry.securityProtocol.startsWith("SASL_");
      const present = entry[key] !== undefined;
      if (sasl && !present) report.error(key, `is required by securityProtocol ${entry.securityProtocol}`);
      if (!sasl && present) {
        report.warning(
          key,
          `has no effect with securityProtocol ${entry.securityProtocol}: SASL_PLAINTEXT or SASL_SSL uses it`,
        );
      }
    });
  }
  when(["bootstrapServers"], (report) =>
    checkServers("bootstrapServers", entry.bootstrapServers, KAFKA_SERVER, "host:port, without a scheme", report),
  );
}
