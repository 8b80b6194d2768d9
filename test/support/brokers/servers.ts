import { given, howToGet } from "./availability.ts";
import { launchKafka } from "./kafka.ts";
import { launchNats, type NatsServerOptions } from "./nats.ts";
import { findKafka, findNats, findRabbitmq } from "./programs.ts";
import { launchRabbitmq, type RabbitmqLaunch } from "./rabbitmq.ts";
import { once } from "./shared.ts";
import type {
  BrokerKind,
  KafkaAddress,
  Launch,
  NatsAddress,
  OwnRabbitmq,
  OwnServer,
  RabbitmqAddress,
} from "./types.ts";

export { createTopic, produceCompressed } from "./kafkaTools.ts";
export { natsStream } from "./natsTools.ts";
export { START_TIMEOUT_MS } from "./ready.ts";
export type { BrokerKind, KafkaAddress, NatsAddress, OwnRabbitmq, OwnServer, RabbitmqAddress } from "./types.ts";
export { unique } from "./unique.ts";

/** The RabbitMQ server of the run, started when the first test asks. Never stop it; use names of your own (`unique`). */
export async function sharedRabbitmq(): Promise<RabbitmqAddress> {
  const url = given("rabbitmq");
  if (url !== undefined) return rabbitmqAddressOf(url);
  return once("rabbitmq", async () => (await rabbitmq(true)).address);
}

/** The NATS server of the run, with JetStream, started when the first test asks. Never stop it; use names of your own (`unique`). */
export async function sharedNats(): Promise<NatsAddress> {
  const url = given("nats");
  if (url !== undefined) return { ...hostAndPort(url, 4222), url };
  return once("nats", async () => (await nats(true)).address);
}

/** The Kafka broker of the run, started when the first test asks. Never stop it; use names of your own (`unique`). */
export async function sharedKafka(): Promise<KafkaAddress> {
  const servers = given("kafka");
  if (servers !== undefined) {
    return { ...hostAndPort(`kafka://${servers.split(",")[0]}`, 9092), bootstrapServers: servers };
  }
  return once("kafka", async () => (await kafka(true)).address);
}

/** A RabbitMQ server of the test's own; allow START_TIMEOUT_MS. */
export async function startRabbitmq(): Promise<OwnRabbitmq & RabbitmqAddress> {
  const server = await rabbitmq(false);
  return { ...flat(server), evaluate: server.evaluate };
}

/** A NATS server of the test's own; allow START_TIMEOUT_MS. */
export async function startNats(options: NatsServerOptions = {}): Promise<OwnServer & NatsAddress> {
  return flat(await nats(false, options));
}

/**
 * A Kafka broker of the test's own; allow START_TIMEOUT_MS.
 *
 * @param options.sasl whether clients must log in as user `svc` with password `svc-secret`, by PLAIN, SCRAM-SHA-256 or
 *   SCRAM-SHA-512, over SASL_PLAINTEXT (default false)
 */
export async function startKafka(options: { readonly sasl?: boolean } = {}): Promise<OwnServer & KafkaAddress> {
  return flat(await kafka(false, options));
}

function rabbitmq(shared: boolean): Promise<RabbitmqLaunch> {
  const programs = findRabbitmq();
  return programs === undefined ? unavailable("rabbitmq") : launchRabbitmq(programs, shared);
}

function nats(shared: boolean, options: NatsServerOptions = {}): Promise<Launch<NatsAddress>> {
  const program = findNats();
  return program === undefined ? unavailable("nats") : launchNats(program, shared, options);
}

function kafka(shared: boolean, options: { readonly sasl?: boolean } = {}): Promise<Launch<KafkaAddress>> {
  const programs = findKafka();
  return programs === undefined ? unavailable("kafka") : launchKafka(programs, shared, options);
}

function unavailable(kind: BrokerKind): Promise<never> {
  return Promise.reject(new Error(`${howToGet([kind])} Declare the tests with describeWith(["${kind}"], ...).`));
}

function flat<A extends object>({ address, ...server }: Launch<A>): OwnServer & A {
  return { ...address, ...server };
}

function rabbitmqAddressOf(text: string): RabbitmqAddress {
  const url = new URL(text);
  const [user, password] = [url.username, url.password].map((part) => decodeURIComponent(part) || "guest");
  return { ...hostAndPort(text, 5672), user: user ?? "guest", password: password ?? "guest", url: text };
}

function hostAndPort(text: string, defaultPort: number): { readonly host: string; readonly port: number } {
  const { hostname, port } = new URL(text);
  return { host: hostname, port: Number(port || defaultPort) };
}
