import type { Secret } from "../../../model/secret.ts";
import type { When } from "../../../ports/kinds.ts";
import { checkServers } from "../serverList.ts";
import { KAFKA_SERVER } from "./schema.ts";

interface KafkaKeys {
  readonly bootstrapServers: string;
  readonly securityProtocol: string;
  readonly saslMechanism?: string;
  readonly saslUsername?: string;
  readonly saslPassword?: Secret;
}

const SASL_KEYS = ["saslMechanism", "saslUsername", "saslPassword"] as const;

/** The rules of a Kafka entry: a `SASL_` protocol needs mechanism, user name and password; another one uses none of them. */
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
