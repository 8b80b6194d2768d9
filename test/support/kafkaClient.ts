import kafkajs, { type Kafka, type KafkaConfig, type KafkaMessage } from "kafkajs";
import type { BrokerTools } from "../../src/adapters/brokers/tools.ts";
import type { KafkaAddress } from "./brokers/index.ts";
import { unique } from "./brokers/index.ts";
import { type LogLine, recordingLog } from "./recorders.ts";

/** The user of the brokers that ask for one. */
export const SASL_LOGIN = { username: "svc", password: "svc-secret" };

/** What an adapter is given, and the lines it logs. */
export function brokerTools(): { readonly tools: BrokerTools; readonly lines: LogLine[] } {
  const { log, lines } = recordingLog();
  const clock = { now: () => Date.now(), monotonic: () => performance.now() };
  return { tools: { log, clock, random: Math.random }, lines };
}

/** A client of the test's own, that says nothing. */
export function kafkaClient({ bootstrapServers }: KafkaAddress, sasl?: KafkaConfig["sasl"]): Kafka {
  return new kafkajs.Kafka({
    brokers: bootstrapServers.split(","),
    logLevel: kafkajs.logLevel.NOTHING,
    requestTimeout: 5000,
    retry: { retries: 5, initialRetryTime: 50 },
    ...(sasl !== undefined && { sasl }),
  });
}

/** Makes a topic as a user that has logged in. */
export async function makeTopic(kafka: Kafka, topic: string, numPartitions = 1, configuration = {}): Promise<void> {
  const admin = kafka.admin();
  await admin.connect();
  try {
    const configEntries = Object.entries(configuration).map(([name, value]) => ({ name, value: String(value) }));
    await admin.createTopics({
      topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }],
      waitForLeaders: true,
    });
  } finally {
    await admin.disconnect();
  }
}

/** A record as it was read. */
export type ReadRecord = KafkaMessage & { readonly partition: number };

/** Waits until `count` records of a topic are there, and reads them from the beginning; those of one partition in their order. */
export async function readTopic(kafka: Kafka, topic: string, count: number): Promise<readonly ReadRecord[]> {
  const consumer = kafka.consumer({ groupId: unique("reader"), maxWaitTimeInMs: 50, allowAutoTopicCreation: false });
  const records: ReadRecord[] = [];
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await new Promise<void>((resolve, reject) => {
      consumer
        .run({
          eachMessage: async ({ message, partition }) => {
            records.push({ ...message, partition });
            if (records.length === count) resolve();
          },
        })
        .catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
  return records;
}

/** What a group has not read yet of a topic, in records; transaction markers count too. */
export async function lagOf(kafka: Kafka, groupId: string, topic: string): Promise<number> {
  const admin = kafka.admin();
  await admin.connect();
  try {
    const ends = await admin.fetchTopicOffsets(topic);
    const [group] = await admin.fetchOffsets({ groupId, topics: [topic] });
    return ends.reduce((lag, { partition, high, low }) => {
      const committed = Number(group?.partitions.find((each) => each.partition === partition)?.offset ?? -1);
      return lag + Number(high) - (committed < 0 ? Number(low) : committed);
    }, 0);
  } finally {
    await admin.disconnect();
  }
}
