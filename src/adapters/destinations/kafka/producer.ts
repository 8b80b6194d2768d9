import kafkajs, { type Admin, type PartitionerArgs, type Producer } from "kafkajs";
import type { Log } from "../../../ports/runtime.ts";
import { atMost, resolvesWithin } from "../../../time/wait.ts";
import { createKafkaClient, METADATA_MAX_AGE_MS, retryOptions, type Sockets } from "../../brokers/kafka/client.ts";
import type { KafkaConnection } from "../../brokers/kafka/schema.ts";
import { kafkaError } from "./errors.ts";
import { groupByTopic, type PendingRecord } from "./queue.ts";

/** Retries by the client; the broker drops duplicates. */
const RETRIES = 2;
const MAX_CONNECT_MS = 10_000;
/** Longest wait for a graceful close. */
const CLOSE_MS = 1000;

interface KafkaProducerOptions {
  readonly timeoutMs: number;
  /** Which bootstrap server to ask first. */
  readonly firstServer: number;
  readonly log: Log;
}

/** One life of an idempotent producer, from its connection to its first fault; then it must be discarded. */
export class KafkaProducer {
  readonly #servers: string;
  readonly #timeoutMs: number;
  readonly #connectTimeoutMs: number;
  readonly #sockets: readonly Sockets[];
  readonly #producer: Producer;
  readonly #admin: Admin;
  readonly #known = new Set<string>();
  #asked: Promise<unknown> = Promise.resolve();

  constructor(connection: KafkaConnection, { timeoutMs, firstServer, log }: KafkaProducerOptions) {
    const connectTimeoutMs = Math.min(timeoutMs, MAX_CONNECT_MS);
    const settings = { connectTimeoutMs, retries: RETRIES, firstServer, log };
    const producing = createKafkaClient(connection, { ...settings, requestTimeoutMs: timeoutMs });
    const asking = createKafkaClient(connection, { ...settings, requestTimeoutMs: connectTimeoutMs });
    this.#servers = connection.bootstrapServers;
    this.#timeoutMs = timeoutMs;
    this.#connectTimeoutMs = connectTimeoutMs;
    this.#sockets = [producing.sockets, asking.sockets];
    this.#producer = producing.kafka.producer({
      idempotent: true,
      allowAutoTopicCreation: false,
      metadataMaxAge: METADATA_MAX_AGE_MS,
      createPartitioner,
      retry: retryOptions(RETRIES),
    });
    this.#admin = asking.kafka.admin({ retry: retryOptions(RETRIES) });
  }

  /** Connects and gets a producer id. Rejects after at most 10 seconds. */
  async connect(): Promise<void> {
    if (await resolvesWithin(this.#connectTimeoutMs, this.#producer.connect())) return;
    throw kafkaError("timeout", `${this.#servers} did not answer within ${this.#connectTimeoutMs} ms`);
  }

  /** Whether a topic is known to exist. */
  knows(topic: string): boolean {
    return this.#known.has(topic);
  }

  /**
   * Finds out whether a topic exists, on its own connection and concurrently with sends: the client would refresh all
   * its topics for a new one, and let all of them fail or wait for a missing one.
   *
   * @throws what the client throws
   */
  checkExists(topic: string): Promise<void> {
    // In sequence: concurrent calls make the client connect twice.
    const checked = this.#asked.then(async () => {
      await this.#admin.connect();
      await this.#admin.fetchTopicMetadata({ topics: [topic] });
      this.#known.add(topic);
    });
    this.#asked = checked.catch(() => {});
    return checked;
  }

  /**
   * Sends records in one request per broker, and waits until all in-sync replicas have them. After a failure the state
   * of the producer is unknown.
   *
   * @throws what the client throws
   */
  async send(records: readonly PendingRecord[]): Promise<void> {
    const answers = await this.#producer.sendBatch({
      acks: -1,
      timeout: this.#timeoutMs,
      topicMessages: [...groupByTopic(records)].map(([topic, parts]) => ({
        topic,
        messages: parts.map(({ record }) => record),
      })),
    });
    const confirmed = new Set(answers.map(({ topicName, partition }) => `${topicName} ${partition}`));
    for (const { topic, record } of records) {
      if (confirmed.has(`${topic} ${record.partition}`)) continue;
      // On a retry the client omits a partition that moved to a broker that has already answered, and reports success.
      throw kafkaError("producer_state", `the broker did not confirm every record for topic "${topic}"`);
    }
  }

  /** Closes its connections at once; requests in flight fail. */
  cut(): void {
    for (const sockets of this.#sockets) sockets.cut();
  }

  /** Closes its connections gracefully if that is quick. */
  async close(): Promise<void> {
    await atMost(CLOSE_MS, Promise.allSettled([this.#producer.disconnect(), this.#admin.disconnect()]));
    this.cut();
  }
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
