import kafkajs, { type Admin, type PartitionerArgs, type Producer, type RecordMetadata } from "kafkajs";
import type { Log } from "../../../ports/runtime.ts";
import { atMost, resolvesWithin } from "../../../time/wait.ts";
import { createKafkaClient, type KafkaConnection, retryOptions, type Sockets } from "../../brokers/kafka/client.ts";
import { kafkaError } from "./errors.ts";
import { groupByTopic, type PendingRecord } from "./queue.ts";

/** Retries by the client; the broker drops duplicates. */
const RETRIES = 2;
const MAX_CONNECT_MS = 10_000;
/** Longest wait for a graceful close. */
const CLOSE_MS = 1000;

/** One life of an idempotent producer, from its connection to its first fault; then it must be discarded. */
export interface KafkaProducer {
  /** Connects and gets a producer id. Rejects after at most 10 seconds. */
  connect(): Promise<void>;
  /** Whether a topic is known to exist. */
  knows(topic: string): boolean;
  /**
   * Finds out whether a topic exists, on its own connection and concurrently with sends: the client would refresh all
   * its topics for a new one, and let all of them fail or wait for a missing one.
   *
   * @throws what the client throws
   */
  checkExists(topic: string): Promise<void>;
  /**
   * Sends records in one request per broker, and waits until all in-sync replicas have them. After a failure the state
   * of the producer is unknown.
   *
   * @throws what the client throws
   */
  send(records: readonly PendingRecord[]): Promise<void>;
  /** Closes its connections at once; requests in flight fail. */
  cut(): void;
  /** Closes its connections gracefully if that is quick. */
  close(): Promise<void>;
}

interface KafkaProducerOptions {
  readonly timeoutMs: number;
  /** Which bootstrap server to ask first. */
  readonly firstServer: number;
  readonly log: Log;
}

export function createKafkaProducer(connection: KafkaConnection, options: KafkaProducerOptions): KafkaProducer {
  const { timeoutMs, firstServer, log } = options;
  const connectTimeoutMs = Math.min(timeoutMs, MAX_CONNECT_MS);
  const settings = { connectTimeoutMs, retries: RETRIES, firstServer, log };
  const producing = createKafkaClient(connection, { ...settings, requestTimeoutMs: timeoutMs });
  const asking = createKafkaClient(connection, { ...settings, requestTimeoutMs: connectTimeoutMs });
  const producer = producing.kafka.producer({
    idempotent: true,
    allowAutoTopicCreation: false,
    createPartitioner,
    retry: retryOptions(RETRIES),
  });
  const admin = asking.kafka.admin({ retry: retryOptions(RETRIES) });
  const allSockets = [producing.sockets, asking.sockets];
  const known = new Set<string>();
  let asked: Promise<unknown> = Promise.resolve();

  return {
    connect: async () => {
      if (await resolvesWithin(connectTimeoutMs, producer.connect())) return;
      throw kafkaError("timeout", `${connection.bootstrapServers} did not answer within ${connectTimeoutMs} ms`);
    },
    knows: (topic) => known.has(topic),
    checkExists(topic) {
      // In sequence: concurrent calls make the client connect twice.
      const checked = asked.then(async () => {
        await admin.connect();
        await admin.fetchTopicMetadata({ topics: [topic] });
        known.add(topic);
      });
      asked = checked.catch(() => {});
      return checked;
    },
    async send(records) {
      const answers = await producer.sendBatch({
        acks: -1,
        timeout: timeoutMs,
        topicMessages: [...groupByTopic(records)].map(([topic, parts]) => ({
          topic,
          messages: parts.map(({ record }) => record),
        })),
      });
      const confirmed = confirmedPartitions(answers);
      for (const { topic, record } of records) {
        if (record.partition !== undefined && confirmed.get(topic)?.has(record.partition)) continue;
        // On a retry the client omits a partition that moved to a broker that has already answered, and reports
        // success.
        throw kafkaError("producer_state", `the broker did not confirm every record for topic "${topic}"`);
      }
    },
    cut: () => cut(allSockets),
    close: () => close(producer, admin, allSockets),
  };
}

/**
 * Chooses partitions like Kafka's own clients, and keeps a record on its partition when the client retries. Otherwise a
 * record without a key would move to another partition, whose broker knows records only by number and would drop a new
 * record as a duplicate.
 */
function createPartitioner(): (args: PartitionerArgs) => number {
  const choose = kafkajs.Partitioners.DefaultPartitioner();
  return (args) => {
    args.message.partition ??= choose(args);
    return args.message.partition;
  };
}

/** The partitions per topic that a request was stored in. */
function confirmedPartitions(answers: readonly RecordMetadata[]): ReadonlyMap<string, ReadonlySet<number>> {
  const byTopic = new Map<string, Set<number>>();
  for (const { topicName, partition } of answers) {
    const partitions = byTopic.get(topicName);
    if (partitions === undefined) byTopic.set(topicName, new Set([partition]));
    else partitions.add(partition);
  }
  return byTopic;
}

function cut(allSockets: readonly Sockets[]): void {
  for (const sockets of allSockets) sockets.cut();
}

async function close(producer: Producer, admin: Admin, allSockets: readonly Sockets[]): Promise<void> {
  await atMost(CLOSE_MS, Promise.allSettled([producer.disconnect(), admin.disconnect()]));
  cut(allSockets);
}
