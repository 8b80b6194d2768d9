import kafkajs, { type Kafka, type KafkaConfig, type KafkaMessage } from "kafkajs";
import { Secret } from "../../src/model/secret.ts";
import {
  type KafkaAddress,
  type OwnServer,
  ownServerForBlock,
  serverForBlock,
  sharedKafka,
  startKafka,
  unique,
} from "./brokers/index.ts";
import { createTopics } from "./brokers/kafkaTools.ts";

/** The user of the brokers that ask for one. */
export const SASL_LOGIN = { username: "svc", password: "svc-secret" };

export type SaslMechanism = "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";

/** The settings of an adapter that logs in. */
export function saslLogin(saslMechanism: SaslMechanism, password: string = SASL_LOGIN.password) {
  return {
    securityProtocol: "SASL_PLAINTEXT",
    saslMechanism,
    saslUsername: SASL_LOGIN.username,
    saslPassword: new Secret(password),
  } as const;
}

/** The run's broker for the tests of a `describe` block, and a client of theirs. */
export function sharedKafkaForBlock(): { readonly server: () => KafkaAddress; readonly kafka: () => Kafka } {
  const server = serverForBlock(sharedKafka);
  return { server, kafka: () => kafkaClient(server()) };
}

/** A broker that asks for a login, for the tests of a `describe` block alone, and a client of theirs that has logged in. */
export function ownSaslKafkaForBlock(): {
  readonly server: () => OwnServer & KafkaAddress;
  readonly kafka: () => Kafka;
} {
  const server = ownServerForBlock(() => startKafka({ sasl: true }));
  return { server, kafka: () => kafkaClient(server(), { mechanism: "plain", ...SASL_LOGIN }) };
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
    await createTopics(admin, [{ topic, numPartitions, replicationFactor: 1, configEntries }]);
  } finally {
    await admin.disconnect();
  }
}

/** A record that was read. */
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
