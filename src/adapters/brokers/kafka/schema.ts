import { type Infer, text } from "../../../model/schema.ts";
import type { When } from "../../../ports/kinds.ts";
import { checkServers } from "../schema.ts";

/** Connection keys of Kafka sources and destinations (spec, "Log-broker destination" and "Log-broker source"). */
export const bootstrapServers = text("Brokers, comma-separated `host:port`.", {
  url: true,
  syntax: "notBlank",
});
const SASL = "Required by a `SASL_` protocol.";

export const kafkaSecurityKeys = {
  securityProtocol: text("Transport and authentication.", {
    enum: ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
    default: "PLAINTEXT",
  }),
  saslMechanism: text(SASL, {
    enum: ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
  }),
  saslUsername: text(SASL),
  saslPassword: text(SASL, { secret: true }),
} as const;

export type KafkaConnection = { readonly bootstrapServers: string } & Infer<{
  readonly type: "object";
  readonly properties: typeof kafkaSecurityKeys;
}>;

/** One entry of `bootstrapServers`: host, port; an IPv6 address is in brackets. */
const KAFKA_SERVER = /^(\[[0-9a-f:.%]+\]|[^\s:/@[\]]+)(?::(\d{1,5}))?$/i;
const SASL_KEYS = ["saslMechanism", "saslUsername", "saslPassword"] as const;

/** A `SASL_` protocol requires mechanism, user name and password; the others use none of them. */
export function checkKafka(entry: KafkaConnection, when: When): void {
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
