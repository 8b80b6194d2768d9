import { KAFKA_SERVER } from "../../adapters/brokers/kafka/schema.ts";
import { NATS_SERVER } from "../../adapters/brokers/nats/schema.ts";
import type { Secret } from "../../model/secret.ts";
import type { KeyPath } from "../keyPath.ts";
import { maskUrl } from "../mask.ts";
import type { Report, Rules } from "./rules.ts";

/** Rules that the destination and the source of a broker share. */

interface Sasl {
  readonly securityProtocol: string;
  readonly saslMechanism?: string;
  readonly saslUsername?: string;
  readonly saslPassword?: Secret;
}

const SASL_KEYS = ["saslMechanism", "saslUsername", "saslPassword"] as const;

/** A `SASL_` protocol needs mechanism, user name and password; another one uses none of them. */
export function checkSasl(base: KeyPath, entry: Sasl, rules: Rules): void {
  for (const key of SASL_KEYS) {
    rules.when(base, ["securityProtocol", key], (report) => {
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
}

interface NatsCredentials {
  readonly username?: string;
  readonly password?: Secret;
  readonly token?: Secret;
}

/** User name and password need each other; a token stands alone. */
export function checkNatsCredentials(base: KeyPath, entry: NatsCredentials, rules: Rules): void {
  rules.when(base, ["username", "password"], (report) => {
    if (entry.username !== undefined && entry.password === undefined)
      report.error("password", "is required by username");
    if (entry.password !== undefined && entry.username === undefined)
      report.error("username", "is required by password");
  });
  rules.when(base, ["username", "token"], (report) => {
    if (entry.token === undefined || entry.username === undefined) return;
    report.error("token", "cannot stand beside username: set a token or a user name, not both");
  });
}

/** Only a warning: the specification reads any text here, a `file:` string too. */
export function checkAmqpUri(key: string, uri: string, report: Report): void {
  if (/^amqps?:\/\/./i.test(uri)) return;
  const file = uri.startsWith("file:") ? "; no file is read for this key" : "";
  report.warning(
    key,
    `expected an AMQP URI such as amqp://host:5672/vhost, found ${JSON.stringify(maskUrl(uri))}${file}`,
  );
}

/** Every entry of a comma-separated list of servers is one; it is named by its place, since it may hold a password. */
export function checkServers(key: "servers" | "bootstrapServers", list: string, report: Report): void {
  const { entry: form, expected } = SERVER_LISTS[key];
  const entries = list.split(",").map((entry) => entry.trim());
  entries.forEach((entry, index) => {
    const port = Number(form.exec(entry)?.at(-1) ?? 1);
    if (form.test(entry) && port >= 1 && port <= 65_535) return;
    // A comma at the end of a list is common, and says nothing.
    if (entry === "" && entries.length > 1) return;
    report.error(key, `entry ${index + 1} of the list is no server: expected ${expected}`);
  });
}

const SERVER_LISTS = {
  servers: { entry: NATS_SERVER, expected: "nats://host:port, tls://host:port or host:port" },
  bootstrapServers: { entry: KAFKA_SERVER, expected: "host:port, without a scheme" },
} as const;
