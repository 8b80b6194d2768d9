import { setImmediate as nextTurn } from "node:timers/promises";
import { PublishError } from "../../../model/errors.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { Backoff } from "../../../time/backoff.ts";
import { pause, resolvesWithin } from "../../../time/wait.ts";
import { brokerDestination } from "../../brokers/destination.ts";
import { kafkaFault } from "../../brokers/kafka/faults.ts";
import type { KafkaConnection } from "../../brokers/kafka/schema.ts";
import { NETWORK_FAULT_CODES } from "../../brokers/networkFaults.ts";
import { checkedTopic, publishErrorOf } from "./errors.ts";
import { KafkaProducer } from "./producer.ts";
import { type Group, groupByTopic, PendingRecord, PublishQueue } from "./queue.ts";
import type { KafkaDestinationConfig } from "./schema.ts";

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
