import kafkajs, { type Kafka, type KafkaConfig, type LogEntry, type RetryOptions, type SASLOptions } from "kafkajs";
import type { Infer } from "../../../model/infer.ts";
import { Secret } from "../../../model/secret.ts";
import type { Log } from "../../../ports/runtime.ts";
import { brokerAddresses } from "./addresses.ts";
import { registerCodecs } from "./codecs.ts";
import { quietRequestQueue } from "./requestQueue.ts";
import type { kafkaConnectionKeys } from "./schema.ts";
import { Sockets } from "./sockets.ts";

/** The keys that say how to reach a log broker. */
export type KafkaConnection = Infer<{
  readonly type: "object";
  readonly properties: typeof kafkaConnectionKeys;
  readonly required: readonly ["bootstrapServers"];
}>;

export interface KafkaClientOptions {
  /** Longest wait for a connection, TLS included, in ms. */
  readonly connectTimeoutMs: number;
  /** Longest wait for an answer, in ms. */
  readonly requestTimeoutMs: number;
  /** Tries of the client itself after a failed one, before it reports the failure. */
  readonly retries: number;
  /** Which of the bootstrap servers is asked first, counted on without end. */
  readonly firstServer: number;
  readonly log: Log;
}

/** A client, and the means to end all it does. */
export interface KafkaClient {
  readonly kafka: Kafka;
  readonly sockets: Sockets;
}

let prepared = false;

/** Makes a client; it connects when it is used. */
export function createKafkaClient(connection: KafkaConnection, options: KafkaClientOptions): KafkaClient {
  if (!prepared) {
    registerCodecs();
    quietRequestQueue();
    prepared = true;
  }
  const sockets = new Sockets();
  const servers = brokerAddresses(connection.bootstrapServers);
  const first = options.firstServer % Math.max(1, servers.length);
  const config: KafkaConfig = {
    clientId: "svc",
    brokers: [...servers.slice(first), ...servers.slice(0, first)],
    ssl: connection.securityProtocol.endsWith("SSL"),
    connectionTimeout: options.connectTimeoutMs,
    authenticationTimeout: options.connectTimeoutMs,
    requestTimeout: options.requestTimeoutMs,
    retry: retryOptions(options.retries),
    socketFactory: sockets.create,
    logLevel: kafkajs.logLevel.INFO,
    logCreator: () => (entry) => forward(entry, options.log),
    ...(connection.securityProtocol.startsWith("SASL_") && { sasl: saslOptions(connection) }),
  };
  return { kafka: new kafkajs.Kafka(config), sockets };
}

/**
 * The retries of the client, in full: what is left out would come from a set of defaults that depends on `NODE_ENV`.
 *
 * @param retries tries after the first one
 */
export function retryOptions(retries: number): RetryOptions {
  return { retries, initialRetryTime: 50, maxRetryTime: 500, factor: 0.2, multiplier: 2 };
}

function saslOptions(connection: KafkaConnection): SASLOptions {
  const { saslMechanism = "PLAIN", saslUsername: username = "", saslPassword = new Secret("") } = connection;
  const password = saslPassword.reveal();
  switch (saslMechanism) {
    case "PLAIN":
      return { mechanism: "plain", username, password };
    case "SCRAM-SHA-256":
      return { mechanism: "scram-sha-256", username, password };
    case "SCRAM-SHA-512":
      return { mechanism: "scram-sha-512", username, password };
    default:
      return saslMechanism satisfies never;
  }
}

/**
 * The faults of connections are told once by whoever uses the client, and the client tells each of its own tries: those lines are for
 * debugging. What the consumer group finds out (offsets out of range, foreign topics) nobody else says.
 */
function forward({ namespace, level, log: { message, broker } }: LogEntry, log: Log): void {
  const fields = { namespace, detail: message, ...(typeof broker === "string" && { broker }) };
  const matters = namespace === "ConsumerGroup" && level <= kafkajs.logLevel.WARN;
  if (matters) log.warn(fields, "the log broker's client reports a problem");
  else log.debug(fields, "the log broker's client reports");
}
