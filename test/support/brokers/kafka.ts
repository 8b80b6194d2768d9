import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { Kafka, logLevel } from "kafkajs";
import { launchProgram } from "./launch.ts";
import { lastingPorts } from "./ports.ts";
import type { KafkaPrograms } from "./programs.ts";
import { serverFolder } from "./runFolder.ts";
import { once } from "./shared.ts";
import type { KafkaAddress, Launch } from "./types.ts";

const HOST = "127.0.0.1";
const USER = "svc";
const PASSWORD = "svc-secret";

/** Starts soon and stays small, for a broker that lives for minutes. */
const JAVA_OPTIONS = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"];

export interface KafkaServerOptions {
  /**
   * Whether clients must log in, as user `svc` with password `svc-secret`, by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, over
   * SASL_PLAINTEXT (default false: PLAINTEXT).
   */
  readonly sasl?: boolean;
}

/** A Kafka broker that is its own controller, of the jars of this machine, on 127.0.0.1 only. */
export async function launchKafka(
  programs: KafkaPrograms,
  shared: boolean,
  options: KafkaServerOptions = {},
): Promise<Launch<KafkaAddress>> {
  const { sasl = false } = options;
  const folder = serverFolder("kafka");
  const [port = 0, controllerPort = 0, internalPort = 0] = await lastingPorts(3);
  const configFile = path.join(folder, "server.properties");
  const ports = { port, controllerPort, internalPort };
  const data = path.join(folder, "data");
  writeFileSync(configFile, kafkaConfiguration(ports, data, sasl));
  layOut(data, await once("kafka-storage", () => formatStorage(programs)));

  return launchProgram({
    name: "the Kafka broker",
    program: programs.java,
    args: [`-Djava.io.tmpdir=${folder}`, ...javaArguments(programs), "kafka.Kafka", configFile],
    env: { HOME: folder },
    folder,
    shared,
    address: kafkaAddress(port),
    answers: () => kafkaAnswers(port, sasl),
  });
}

/** The options of Java for a program of Kafka's; the name of its class and its arguments follow. */
export function javaArguments({ classPath, classes }: KafkaPrograms): readonly string[] {
  // An archive of another Java or of other jars is passed over, in silence.
  const archive = classes === undefined ? [] : [`-XX:SharedArchiveFile=${classes}`, "-Xlog:cds=off,cds+dynamic=off"];
  return [...JAVA_OPTIONS, ...archive, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classPath];
}

/**
 * Has Kafka's own tool format a data folder, for a broker with and without a login alike. One is enough for all brokers of a run: the tool
 * is a Java of its own.
 *
 * @returns the folder
 */
async function formatStorage(programs: KafkaPrograms): Promise<string> {
  const folder = serverFolder("kafka-storage");
  const data = path.join(folder, "data");
  const configFile = path.join(folder, "server.properties");
  writeFileSync(configFile, kafkaConfiguration({ port: 9092, controllerPort: 9093, internalPort: 9094 }, data, false));
  const format = ["kafka.tools.StorageTool", "format", "-t", clusterId(), "-c", configFile, ...scramUsers(true)];
  const options = { cwd: folder, env: { PATH: process.env.PATH }, timeout: 60_000 };
  await promisify(execFile)(programs.java, [...javaArguments(programs), ...format], options);
  return data;
}

/** Copies a formatted folder, for a cluster of its own. */
function layOut(data: string, formatted: string): void {
  cpSync(formatted, data, { recursive: true });
  const file = path.join(data, "meta.properties");
  const properties = readFileSync(file, "utf8").replace(
    /^((?:cluster|directory)\.id)=.*$/gm,
    (_, key) => `${key}=${clusterId()}`,
  );
  writeFileSync(file, properties);
}

interface KafkaPorts {
  readonly port: number;
  readonly controllerPort: number;
  /** The port at which the broker reaches itself. */
  readonly internalPort: number;
}

/** The text of the properties of a broker that is its own controller. */
function kafkaConfiguration(ports: KafkaPorts, dataFolder: string, sasl: boolean): string {
  const { port, controllerPort, internalPort } = ports;
  const jaas = "org.apache.kafka.common.security";
  return Object.entries({
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": `1@${HOST}:${controllerPort}`,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    listeners: `CLIENTS://${HOST}:${port},INTERNAL://${HOST}:${internalPort},CONTROLLER://${HOST}:${controllerPort}`,
    "advertised.listeners": `CLIENTS://${HOST}:${port},INTERNAL://${HOST}:${internalPort}`,
    "listener.security.protocol.map": `CLIENTS:${sasl ? "SASL_PLAINTEXT" : "PLAINTEXT"},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT`,
    ...(sasl && {
      "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
      "listener.name.clients.plain.sasl.jaas.config": `${jaas}.plain.PlainLoginModule required user_${USER}="${PASSWORD}";`,
      "listener.name.clients.scram-sha-256.sasl.jaas.config": `${jaas}.scram.ScramLoginModule required;`,
      "listener.name.clients.scram-sha-512.sasl.jaas.config": `${jaas}.scram.ScramLoginModule required;`,
    }),
    "log.dirs": dataFolder,
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    // A broker that comes back after a crash is let in when the controller has given up its former life.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
  })
    .map(([key, value]) => `${key}=${value}\n`)
    .join("");
}

function kafkaAddress(port: number): KafkaAddress {
  return { host: HOST, port, bootstrapServers: `${HOST}:${port}` };
}

/** 16 random bytes in the alphabet Kafka takes. The command line would read an id that begins with a hyphen as an option. */
function clusterId(): string {
  const id = Buffer.from(randomUUID().replaceAll("-", ""), "hex").toString("base64url");
  return id.startsWith("-") ? `A${id.slice(1)}` : id;
}

/** The options of the formatting tool for the users who may log in. */
function scramUsers(sasl: boolean): readonly string[] {
  if (!sasl) return [];
  return ["256", "512"].flatMap((bits) => ["--add-scram", `SCRAM-SHA-${bits}=[name=${USER},password=${PASSWORD}]`]);
}

/** Asks, as a client would, who controls the cluster and who keeps a group's offsets: their topic is made at the first question. */
async function kafkaAnswers(port: number, sasl: boolean): Promise<void> {
  const client = new Kafka({
    brokers: [`${HOST}:${port}`],
    logLevel: logLevel.NOTHING,
    connectionTimeout: 5000,
    retry: { retries: 0 },
    ...(sasl && { sasl: { mechanism: "scram-sha-256" as const, username: USER, password: PASSWORD } }),
  });
  const admin = client.admin();
  try {
    await admin.connect();
    const { brokers } = await admin.describeCluster();
    if (brokers.length === 0) throw new Error("no broker has registered with the controller yet");
    await admin.fetchOffsets({ groupId: "answers" });
  } finally {
    await admin.disconnect();
  }
}
