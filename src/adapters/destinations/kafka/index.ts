import { setImmediate as nextTurn } from "node:timers/promises";
import kafkajs, { type Admin, type PartitionerArgs, type Producer } from "kafkajs";
import { PublishError } from "../../../model/errors.ts";
import { NETWORK_FAULT_CODES } from "../../../model/networkFaults.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import type { Log } from "../../../ports/runtime.ts";
import { atMost, Backoff, pause, resolvesWithin } from "../../../time/wait.ts";
import { createKafkaClient, METADATA_MAX_AGE_MS, retryOptions, type Sockets } from "../../brokers/kafka/client.ts";
import { kafkaFault } from "../../brokers/kafka/faults.ts";
import type { KafkaConnection } from "../../brokers/kafka/schema.ts";
import { brokerDestination } from "../brokerDestination.ts";
import { checkedTopic, kafkaError, publishErrorOf } from "./errors.ts";
import type { KafkaDestinationConfig } from "./kind.ts";
import { type Group, groupByTopic, PendingRecord, PublishQueue } from "./queue.ts";

/**
 * A Kafka destination (spec, "Log-broker destination"): acks=all, idempotent producer; topics are never created.
 * Publishes that are ready together are sent together. A publish that ends by timeout or signal while its record is in
 * flight may still be stored: the row's retry then stores it again.
 */
export function createKafkaDestination(config: KafkaDestinationConfig, tools: AdapterTools): Destination {
  const { timeoutMs, bootstrapServers } = config;
  const sender = new Sender(config, timeoutMs, tools);
  return brokerDestination({
    timeoutMs,
    prepare: (message, bounds) => new PendingRecord(checkedTopic(message.address), message, bounds, bootstrapServers),
    send: (pending) => sender.add(pending),
    closedText: (verb) => `the destination on ${bootstrapServers} ${verb} closed`,
    close: () => sender.close(),
  });
}

/**
 * Sends records, one request at a time: publishes of one turn of the event loop, or that arrive during a request, share
 * the next one. That keeps the order of publishes, even over the client's own retries.
 *
 * A producer is discarded after its first failed request: its record numbers may differ from the broker's, which would
 * then take new records for old ones. The records of a failed request are split until the faulty ones are alone.
 */
class Sender {
  readonly #connection: KafkaConnection;
  readonly #timeoutMs: number;
  readonly #tools: AdapterTools;
  readonly #queue = new PublishQueue();
  readonly #closing = new AbortController();
  readonly #backoff: Backoff;
  readonly #checking = new Set<string>();
  #producer: KafkaProducer | undefined;
  /** Connections so far, so that each starts with another bootstrap server. */
  #connections = 0;
  /** Earliest time of the next connection, in ms of the monotonic clock. */
  #nextConnectionAt = 0;
  #sending = false;
  /** Replace the producer once its request has ended. */
  #replaceAfterSend = false;
  #running = false;
  #loop: Promise<void> | undefined;

  constructor(connection: KafkaConnection, timeoutMs: number, tools: AdapterTools) {
    this.#connection = connection;
    this.#timeoutMs = timeoutMs;
    this.#tools = tools;
    this.#backoff = new Backoff(tools.random);
  }

  add(pending: PendingRecord): void {
    this.#queue.add(pending);
    this.#wake();
  }

  /** Ends every connection. All records must be settled before. */
  async close(): Promise<void> {
    this.#closing.abort();
    if (this.#sending) this.#producer?.cut();
    await this.#loop;
    await this.#producer?.close();
  }

  #wake(): void {
    if (this.#running) return;
    this.#running = true;
    this.#loop = this.#run();
  }

  async #run(): Promise<void> {
    try {
      for (;;) {
        // Publishes triggered by a success join the next request.
        await nextTurn();
        const topics = this.#queue.topics();
        if (topics.size === 0 || this.#closing.signal.aborted) return;
        const producer = await this.#connected();
        if (producer === undefined) continue;
        for (const topic of topics) this.#checkExists(producer, topic);
        const group = this.#queue.take((topic) => producer.knows(topic));
        if (group.records.length > 0) await this.#send(producer, group);
        // Publishes that wait for their topic are woken then.
        else if ([...topics].every((topic) => !producer.knows(topic))) return;
      }
    } finally {
      this.#running = false;
    }
  }

  async #connected(): Promise<KafkaProducer | undefined> {
    if (this.#producer !== undefined) return this.#producer;
    const { clock, log } = this.#tools;
    const waitMs = this.#nextConnectionAt - clock.monotonic();
    if (waitMs > 0 && !(await pause(waitMs, this.#closing.signal))) return undefined;
    const firstServer = this.#connections++;
    const producer = new KafkaProducer(this.#connection, { timeoutMs: this.#timeoutMs, firstServer, log });
    const onClose = () => producer.cut();
    this.#closing.signal.addEventListener("abort", onClose, { once: true });
    try {
      await producer.connect();
    } catch (error) {
      producer.cut();
      const failure = publishErrorOf(`the connection to ${this.#connection.bootstrapServers}`, error);
      const retryMs = this.#backoff.next();
      this.#nextConnectionAt = clock.monotonic() + retryMs;
      if (!this.#closing.signal.aborted) {
        log.warn({ code: failure.code, reason: failure.message, retryMs }, "cannot connect to Kafka");
      }
      this.#queue.fail(failure);
      return undefined;
    } finally {
      this.#closing.signal.removeEventListener("abort", onClose);
    }
    if (this.#backoff.failures > 0) log.info({}, "connected to Kafka again");
    this.#backoff.reset();
    this.#producer = producer;
    this.#replaceAfterSend = false;
    return producer;
  }

  #checkExists(producer: KafkaProducer, topic: string): void {
    if (producer.knows(topic) || this.#checking.has(topic)) return;
    this.#checking.add(topic);
    producer
      .checkExists(topic)
      .catch((error) => {
        // A discarded producer failed for other reasons: the next one checks again.
        if (producer !== this.#producer) return;
        this.#queue.fail(this.#topicError(topic, error), topic);
        if (!CONNECTION_CODES.has(codeOf(error))) return;
        if (this.#sending) this.#replaceAfterSend = true;
        else this.#discard(producer);
      })
      .finally(() => {
        this.#checking.delete(topic);
        this.#wake();
      });
  }

  async #send(producer: KafkaProducer, group: Group): Promise<void> {
    const live = group.records.filter(({ settled }) => !settled);
    if (live.length === 0) return;
    this.#sending = true;
    try {
      const sent = producer.send(live);
      const deadline = Math.max(...live.map((pending) => pending.deadline));
      if (!(await resolvesWithin(Math.max(0, deadline - performance.now()), sent))) {
        // Each publish has its own error. The next ones must not wait for a broker that hangs.
        this.#discard(producer);
        return;
      }
      for (const pending of live) pending.succeed();
      if (this.#replaceAfterSend) this.#discard(producer);
    } catch (error) {
      this.#discard(producer);
      if (!this.#closing.signal.aborted) this.#takeApart(live, group.repeated, error);
    } finally {
      this.#sending = false;
    }
  }

  #takeApart(records: readonly PendingRecord[], repeated: boolean, error: unknown): void {
    const byTopic = groupByTopic(records);
    const code = codeOf(error);
    const divides = code === "message_too_large" || code === "message_refused" || code === "other";
    if (!CONNECTION_CODES.has(code) && byTopic.size > 1) {
      for (const part of byTopic.values()) this.#queue.addGroup({ records: part, repeated: false });
    } else if (divides && records.length > 1) {
      const middle = Math.ceil(records.length / 2);
      const [topic = ""] = byTopic.keys();
      const bytes = records.reduce((sum, pending) => sum + pending.bytes, 0);
      if (code === "message_too_large") this.#queue.shrink(topic, bytes);
      this.#queue.addGroup({ records: records.slice(0, middle), repeated: false });
      this.#queue.addGroup({ records: records.slice(middle), repeated: false });
    } else if (code === "producer_state" && !repeated) {
      this.#queue.addGroup({ records, repeated: true });
    } else {
      for (const pending of records) pending.fail(this.#topicError(pending.topic, error));
    }
  }

  #topicError(topic: string, error: unknown): PublishError {
    const failure = publishErrorOf(`publish to topic "${topic}" on ${this.#connection.bootstrapServers}`, error);
    const advice = ADVICE[failure.code];
    return advice === undefined
      ? failure
      : new PublishError(failure.code, `${failure.message}; ${advice}`, { status: failure.status });
  }

  #discard(producer: KafkaProducer): void {
    if (this.#producer === producer) this.#producer = undefined;
    producer.cut();
  }
}

const ADVICE: Readonly<Record<string, string>> = {
  topic_missing: "create the topic, or correct the destination's topic or topicFrom: the service creates none",
  message_too_large: "raise max.message.bytes of the topic, or make the payload smaller",
};

/** Failures unrelated to the records and their topics. */
const CONNECTION_CODES: ReadonlySet<string> = new Set([...NETWORK_FAULT_CODES, "authentication"]);

function codeOf(error: unknown): string {
  return error instanceof PublishError ? error.code : kafkaFault(error).code;
}

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
class KafkaProducer {
  readonly #servers: string;
  readonly #timeoutMs: number;
  readonly #connectTimeoutMs: number;
  readonly #sockets: readonly Sockets[];
  readonly #producer: Producer;
  readonly #admin: Admin;
  readonly #knownTopics = new Set<string>();
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

  knows(topic: string): boolean {
    return this.#knownTopics.has(topic);
  }

  /**
   * Checks that a topic exists, on its own connection and concurrently with sends: the client would refresh all its
   * topics for a new one, and let all of them fail or wait for a missing one.
   */
  checkExists(topic: string): Promise<void> {
    // In sequence: concurrent calls make the client connect twice.
    const checked = this.#asked.then(async () => {
      await this.#admin.connect();
      await this.#admin.fetchTopicMetadata({ topics: [topic] });
      this.#knownTopics.add(topic);
    });
    this.#asked = checked.catch(() => {});
    return checked;
  }

  /**
   * Sends records in one request per broker, and waits until all in-sync replicas have them. After a failure the state
   * of the producer is unknown.
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
