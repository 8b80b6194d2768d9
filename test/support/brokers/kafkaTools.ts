import { spawn } from "node:child_process";
import { type Admin, type ITopicConfig, Kafka, logLevel } from "kafkajs";
import { eventually } from "../eventually.ts";
import { javaArguments } from "./kafka.ts";
import { findKafka, type KafkaPrograms } from "./programs.ts";
import type { KafkaAddress } from "./types.ts";

export type Codec = "gzip" | "snappy" | "lz4" | "zstd";

/**
 * Makes topics; settles when each partition has a leader that serves it: a leader that is only named answers that it is
 * not the leader. Without `waitForLeaders`: right after the creation the broker may not know the topic yet, which ends
 * that wait.
 */
export async function createTopics(admin: Admin, topics: ITopicConfig[]): Promise<void> {
  await admin.createTopics({ topics, waitForLeaders: false });
  await eventually(async () => {
    const described = await admin.fetchTopicMetadata({ topics: topics.map(({ topic }) => topic) });
    return described.topics.every(({ partitions }) => partitions.length > 0 && partitions.every((p) => p.leader >= 0));
  });
  // Asks each leader, and fails if a leader does not serve its partition yet.
  await eventually(() => Promise.all(topics.map(({ topic }) => admin.fetchTopicOffsets(topic))));
}

/** Makes a topic; settles when its partitions can be written and read. */
export async function createTopic(server: KafkaAddress, topic: string, partitions = 1): Promise<void> {
  const admin = new Kafka({ brokers: server.bootstrapServers.split(","), logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  try {
    await createTopics(admin, [{ topic, numPartitions: partitions, replicationFactor: 1 }]);
  } finally {
    await admin.disconnect();
  }
}

/**
 * Writes one record per line by Kafka's own console producer, in batches of a codec.
 *
 * @param lines the values; none may hold a line break
 * @param options.keys whether each line is a key, a tab and a value (default false: no key)
 * @throws Error with the output of the producer when it fails, or when the jars of Kafka are not on this machine
 */
export async function produceCompressed(
  server: KafkaAddress,
  topic: string,
  codec: Codec,
  lines: readonly string[],
  options: { readonly keys?: boolean } = {},
): Promise<void> {
  const target = ["--bootstrap-server", server.bootstrapServers, "--topic", topic, "--compression-codec", codec];
  const args = [...target, ...(options.keys === true ? ["--property", "parse.key=true"] : [])];
  const input = lines.map((line) => `${line}\n`).join("");
  const programs = findKafka();
  if (programs === undefined) throw new Error("no Kafka on this machine: run test/services/install.sh");
  const { code, output } = await runProducer(programs, args, input);
  // It reports a record that it could not write, and ends with 0 all the same.
  if (code !== 0 || /ERROR|Exception/.test(output)) {
    throw new Error(`Kafka's console producer ended with ${code}:\n${output}`);
  }
}

async function runProducer(
  programs: KafkaPrograms,
  args: readonly string[],
  input: string,
): Promise<{ readonly code: number | string; readonly output: string }> {
  const producer = spawn(
    programs.java,
    [...javaArguments(programs), "org.apache.kafka.tools.ConsoleProducer", ...args],
    {
      env: { PATH: process.env.PATH },
      stdio: ["pipe", "pipe", "pipe"],
      timeout: 60_000,
    },
  );
  const output: string[] = [];
  producer.stdout.setEncoding("utf8").on("data", (text: string) => output.push(text));
  producer.stderr.setEncoding("utf8").on("data", (text: string) => output.push(text));
  producer.stdin.on("error", () => {}); // The producer has ended; its exit code and output tell why.
  producer.stdin.end(input);
  const [code, signal] = await new Promise<[number | null, string | null]>((resolve, reject) => {
    producer.once("error", reject);
    producer.once("close", (...end) => resolve(end));
  });
  return { code: code ?? signal ?? "no code", output: output.join("") };
}
