import { setImmediate as nextTurn } from "node:timers/promises";
import type { Consumer, EachBatchPayload, KafkaMessage, TopicPartitionOffset } from "kafkajs";
import { StoppingError } from "../../../model/errors.ts";
import { REFUSED_RETRY_MS, type SourceTools } from "../../../ports/kinds.ts";
import type { BrokerMessage, Source } from "../../../ports/source.ts";
import { Backoff, pause, untilAborted } from "../../../time/wait.ts";
import { headerText } from "../../brokers/headerText.ts";
import { createKafkaClient, type KafkaClient, METADATA_MAX_AGE_MS, retryOptions } from "../../brokers/kafka/client.ts";
import { kafkaFault } from "../../brokers/kafka/faults.ts";
import type { KafkaSourceConfig } from "./kind.ts";

/** After a session of this length the next fault is retried after the shortest wait. */
const STABLE_MS = 10_000;

/**
 * A Kafka source (spec, "Log-broker source"): consumes topics as a member of a consumer group, and commits an offset
 * only after the intake has everything before it. The batches of a partition are taken in turn, several partitions
 * concurrently.
 *
 * @param times times of the membership, for tests
 */
export function createKafkaSource(
  config: KafkaSourceConfig,
  tools: SourceTools,
  times: GroupTimes = GROUP_TIMES,
): Source {
  const { log, clock } = tools;
  const stopping = new AbortController();
  const backoff = new Backoff(tools.random);
  let session: GroupSession | undefined;
  let isLater = false;
  let fault = "the source has not been started";
  let running: Promise<void> | undefined;

  const run = async (): Promise<void> => {
    for (let attempt = 0; !stopping.signal.aborted; attempt++) {
      const current = new GroupSession(config, tools, times, attempt, isLater);
      session = current;
      try {
        await current.run();
      } catch (error) {
        const { code, text } = kafkaFault(error);
        const { joinedAt } = current;
        session = undefined;
        isLater ||= joinedAt !== undefined;
        if (stopping.signal.aborted) return;
        fault = text;
        if (joinedAt !== undefined && clock.monotonic() - joinedAt > STABLE_MS) backoff.reset();
        const retryMs = backoff.next();
        log.warn({ code, reason: text, retryMs }, "the Kafka source does not consume");
        await pause(retryMs, stopping.signal);
      }
    }
  };

  const problem = (): string | undefined => {
    if (session === undefined || stopping.signal.aborted) return fault;
    // Until it is a member again, the last fault says more.
    return session.joinedAt === undefined ? fault || session.problem : session.problem;
  };

  return {
    name: `kafka.${tools.name}`,
    async start() {
      if (stopping.signal.aborted) return;
      fault = "";
      running ??= run();
    },
    async stop(cutoff) {
      fault = "the source was stopped";
      stopping.abort();
      await session?.stop(cutoff);
      await running;
    },
    async check() {
      const reason = problem();
      if (reason === undefined) return;
      const { topics, groupId, bootstrapServers } = config;
      throw new Error(`not consuming ${topics.join(", ")} as group ${groupId} from ${bootstrapServers}: ${reason}`);
    },
  };
}

/** Times of a consumer group member, in ms. */
interface GroupTimes {
  /** Without a heartbeat for this long the broker reassigns the partitions. */
  readonly sessionMs: number;
  readonly heartbeatMs: number;
  /** Longest wait of the other members in a rebalance. */
  readonly rebalanceMs: number;
  /** Longest wait of a fetch for records; a stop takes as long. */
  readonly fetchWaitMs: number;
}

const GROUP_TIMES: GroupTimes = { sessionMs: 30_000, heartbeatMs: 2000, rebalanceMs: 60_000, fetchWaitMs: 2000 };

const CONNECT_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 10_000;
const RETRIES = 2;
/** Partitions whose records are taken concurrently. */
const CONCURRENT_PARTITIONS = 4;
/** Shortest interval of commits within a batch: the inbox de-duplicates what is read again after a fault. */
const COMMIT_INTERVAL_MS = 200;
/** The source counts as down after this long without an answer. */
const SILENT_MS = 10_000;
/** The broker's answer for a partition without an offset of the group. */
const NO_OFFSET = "-1";
/** Timeout for leaving the group once nothing is being taken. */
const LEAVE_MS = 5000;

/**
 * One membership in a consumer group, from the connection to the first fault without a quick recovery. The client's own
 * restarts after a crash are off: it does not recover from all crashes, and some restarts outlive its `disconnect`.
 */
class GroupSession {
  readonly #config: KafkaSourceConfig;
  readonly #tools: SourceTools;
  readonly #times: GroupTimes;
  readonly #client: KafkaClient;
  readonly #consumer: Consumer;
  readonly #firstServer: number;
  readonly #isLater: boolean;
  readonly #takes = new Set<Promise<unknown>>();
  readonly #abandon = new AbortController();
  /** Aborts with the end of the session. */
  readonly #closed = new AbortController();
  /** Aborts to stop a `take` from waiting for its database. */
  readonly #stopping = new AbortController();
  readonly #over: Promise<void>;
  #end: (error?: unknown) => void = () => {};
  #ended = false;
  /** The offsets from which the first join reads. */
  #ends: readonly TopicPartitionOffset[] = [];
  #joined = false;
  #joinedAt: number | undefined;
  /** Counts the assignments: records read under an earlier one must not be committed under a later one. */
  #assignment = 0;
  #lastSign: number;
  #heartbeat: () => Promise<void> = async () => {};

  /** @param isLater whether an earlier session has resolved `latest` */
  constructor(config: KafkaSourceConfig, tools: SourceTools, times: GroupTimes, firstServer: number, isLater: boolean) {
    this.#config = config;
    this.#tools = tools;
    this.#times = times;
    this.#firstServer = firstServer;
    this.#isLater = isLater;
    this.#client = this.#createClient();
    this.#consumer = this.#client.kafka.consumer({
      groupId: config.groupId,
      sessionTimeout: times.sessionMs,
      heartbeatInterval: times.heartbeatMs,
      rebalanceTimeout: times.rebalanceMs,
      maxWaitTimeInMs: times.fetchWaitMs,
      metadataMaxAge: METADATA_MAX_AGE_MS,
      allowAutoTopicCreation: false,
      retry: { ...retryOptions(RETRIES), restartOnFailure: async () => false },
    });
    this.#lastSign = tools.clock.monotonic();
    this.#over = new Promise((resolve, reject) => {
      this.#end = (error) => {
        this.#ended = true;
        this.#closed.abort();
        if (error === undefined) resolve();
        else reject(error);
      };
    });
    this.#over.catch(() => {});
  }

  /** Start of the membership, in ms of the monotonic clock. */
  get joinedAt(): number | undefined {
    return this.#joinedAt;
  }

  /** Why it does not consume; undefined when it does. */
  get problem(): string | undefined {
    const silentMs = this.#tools.clock.monotonic() - this.#lastSign;
    if (silentMs > SILENT_MS) return `the broker has not answered for ${Math.round(silentMs / 1000)} s`;
    return this.#joinedAt === undefined ? "the source is connecting and joining the group" : undefined;
  }

  /** Consumes until `stop`. @throws Error for an operator when it cannot start or continue */
  async run(): Promise<void> {
    this.#listen();
    const watch = setInterval(() => this.#watch(), this.#times.heartbeatMs);
    try {
      await Promise.race([this.#begin(), this.#over]);
      await this.#over;
    } finally {
      this.#end();
      clearInterval(watch);
      this.#client.sockets.cut();
      this.#consumer.disconnect().catch(() => {});
      await this.#takesEnded();
    }
  }

  /** Takes no more, waits for running takes, commits them and leaves the group; at once when `cutoff` aborts. */
  async stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping.abort(new StoppingError());
    const cut = () => {
      this.#abandon.abort(cutoff.reason);
      this.#end();
    };
    if (cutoff.aborted) cut();
    cutoff.addEventListener("abort", cut, { once: true });
    // While it is joining, the join would overtake the client's disconnect and continue for ever.
    if (this.#joined) {
      this.#consumer.disconnect().then(
        () => this.#end(),
        () => this.#end(),
      );
    } else if (this.#takes.size === 0) this.#end();
    const left = new AbortController();
    this.#takesEnded()
      .then(() => pause(LEAVE_MS, left.signal))
      .then(() => this.#end());
    await this.#over.catch(() => {});
    await this.#takesEnded();
    left.abort();
    cutoff.removeEventListener("abort", cut);
  }

  async #begin(): Promise<void> {
    const { topics, autoOffsetReset } = this.#config;
    await this.#consumer.connect();
    // One at a time, so that an error names the missing topic.
    for (const topic of topics) {
      try {
        // With `latest` too: the ends are found first, and what is new or out of range later must not be skipped.
        await this.#consumer.subscribe({ topics: [topic], fromBeginning: true });
      } catch (error) {
        throw topicFault(topic, error);
      }
    }
    if (autoOffsetReset === "latest") this.#ends = await this.#findEnds();
    await this.#consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: CONCURRENT_PARTITIONS,
      eachBatch: (payload) => this.#consume(payload),
    });
    if (this.#ended) return;
    await this.#consumer.commitOffsets([...this.#ends]);
    this.#ends = [];
    this.#joinedAt = this.#tools.clock.monotonic();
  }

  #listen(): void {
    const { events } = this.#consumer;
    const alive = () => {
      this.#lastSign = this.#tools.clock.monotonic();
    };
    for (const event of [events.FETCH, events.HEARTBEAT, events.COMMIT_OFFSETS] as const)
      this.#consumer.on(event, alive);
    this.#consumer.on(events.GROUP_JOIN, ({ payload }) => {
      alive();
      this.#assignment += 1;
      this.#joined = true;
      // Before the first fetch. Only assigned partitions: the client would seek the others when it gets them.
      const assigned = payload.memberAssignment;
      for (const end of this.#ends) if (assigned[end.topic]?.includes(end.partition)) this.#consumer.seek(end);
    });
    this.#consumer.on(events.REBALANCING, () => {
      this.#joined = false;
    });
    this.#consumer.on(events.CRASH, ({ payload }) => this.#end(payload.error));
    this.#consumer.on(events.END_BATCH_PROCESS, ({ payload: { batchSize, topic, partition, lastOffset } }) => {
      // Only transaction markers or aborted records: the client skips them and commits nothing.
      if (batchSize > 0) return;
      const offset = following(lastOffset);
      this.#consumer.commitOffsets([{ topic, partition, offset }]).catch(() => {});
    });
  }

  /**
   * Resolves `latest`, once per group and topic.
   *
   * @returns the ends of topics for which the group has no offset, to be committed. In another topic, a partition
   * without a valid offset begins at its first record
   */
  async #findEnds(): Promise<readonly TopicPartitionOffset[]> {
    const { groupId, topics } = this.#config;
    const client = this.#createClient();
    const admin = client.kafka.admin();
    const ends: TopicPartitionOffset[] = [];
    try {
      await admin.connect();
      for (const { topic, partitions } of await admin.fetchOffsets({ groupId, topics: [...topics] })) {
        if (this.#isLater || partitions.some(({ offset }) => offset !== NO_OFFSET)) continue;
        const found = await admin.fetchTopicOffsets(topic);
        ends.push(...found.map(({ partition, high }) => ({ topic, partition, offset: high })));
      }
      await admin.disconnect();
      return ends;
    } finally {
      client.sockets.cut();
    }
  }

  async #consume(payload: EachBatchPayload): Promise<void> {
    const { batch, heartbeat, resolveOffset, commitOffsetsIfNecessary, isRunning, isStale, pause: hold } = payload;
    const { topic, partition, messages } = batch;
    const assignment = this.#assignment;
    const isOurs = () => !this.#ended && assignment === this.#assignment;
    this.#heartbeat = heartbeat;
    const most = this.#config.maxPollRecords;
    let committedAt = this.#tools.clock.monotonic();
    for (let from = 0; from < messages.length && isRunning() && !isStale() && isOurs(); from += most) {
      const part = messages.slice(from, from + most);
      const taken = await this.#take(part, topic, partition);
      const last = part[taken - 1];
      const isRefused = taken < part.length;
      if (isRefused && !this.#stopping.signal.aborted) this.#resumeLater(hold());
      if (last === undefined || !isOurs()) return;
      const isEnd = isRefused || from + most >= messages.length;
      const now = this.#tools.clock.monotonic();
      if (!isEnd && isRunning() && now - committedAt < COMMIT_INTERVAL_MS) continue;
      committedAt = now;
      // Transaction markers fill the rest of a batch after its last record.
      const offset = following(isEnd && !isRefused ? batch.lastOffset() : last.offset);
      await commitOffsetsIfNecessary({ topics: [{ topic, partitions: [{ partition, offset }] }] });
      // After the commit: if it fails, the records are read, taken and committed again.
      if (!isOurs()) return;
      resolveOffset(last.offset);
      await heartbeat();
      if (isRefused) return;
    }
  }

  /**
   * @returns how many leading records are taken and may be committed. A partition is read in order: a record that the
   * inbox table refuses holds up those after it, which are read again. 0 when the source stopped before all were taken
   */
  async #take(records: readonly KafkaMessage[], topic: string, partition: number): Promise<number> {
    const messages = records.map((record) => brokerMessage(record, topic, partition));
    const taking = this.#tools.intake.take(messages, this.#stopping.signal);
    this.#takes.add(taking);
    try {
      const refused = await taking;
      return refused.length === 0 ? messages.length : messages.findIndex((message) => refused.includes(message));
    } catch (error) {
      if (this.#stopping.signal.aborted) return 0;
      throw error;
    } finally {
      this.#takes.delete(taking);
    }
  }

  /** Resumes a partition after a while; the others continue meanwhile. */
  #resumeLater(resume: () => void): void {
    pause(this.#tools.refusedRetryMs ?? REFUSED_RETRY_MS, this.#closed.signal).then((isTime) => {
      if (isTime) resume();
    });
  }

  /** Keeps the membership while the intake waits for its database, and ends a session without progress. */
  #watch(): void {
    // A heartbeat fails on a rebalance or a lost session; the commit or the next heartbeat detects both.
    if (this.#takes.size > 0) this.#heartbeat().catch(() => {});
    const silentMs = this.#tools.clock.monotonic() - this.#lastSign;
    const longestSilenceMs = this.#times.rebalanceMs + this.#times.sessionMs;
    if (silentMs > longestSilenceMs)
      this.#end(new Error(`the broker has not answered for ${Math.round(silentMs / 1000)} s`));
  }

  /** Waits for all takes; for abandoned ones, until they have had time to notice: an insert may still run. */
  async #takesEnded(): Promise<void> {
    const { signal } = this.#abandon;
    while (this.#takes.size > 0 && !signal.aborted) await untilAborted(Promise.allSettled(this.#takes), signal);
    if (signal.aborted) await nextTurn();
  }

  #createClient(): KafkaClient {
    return createKafkaClient(this.#config, {
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      requestTimeoutMs: REQUEST_TIMEOUT_MS,
      retries: RETRIES,
      firstServer: this.#firstServer,
      log: this.#tools.log,
    });
  }
}

function following(offset: string): string {
  return String(BigInt(offset) + 1n);
}

function topicFault(topic: string, error: unknown): unknown {
  const { code, text } = kafkaFault(error);
  if (code === "topic_missing") {
    return new Error(`the topic "${topic}" does not exist: create it, or correct topics; the service creates none`);
  }
  if (code === "topic_invalid" || code === "authorization") return new Error(`the topic "${topic}": ${text}`);
  return error;
}

/**
 * Converts a record for the intake. The key is text, or base64 if it is not UTF-8; an empty key counts as none, since
 * all such records would share it. Of repeated headers the last one counts, as in Kafka's own `lastHeader`; a header
 * without a value is dropped.
 */
function brokerMessage(
  { key, value, headers = {}, offset, timestamp }: KafkaMessage,
  topic: string,
  partition: number,
): BrokerMessage {
  const texts = Object.entries(headers).flatMap(([name, values]) => {
    const text = headerText(Array.isArray(values) ? values.at(-1) : values);
    return text === null ? [] : [[name, text] as const];
  });
  return {
    body: value,
    headers: Object.fromEntries(texts),
    origin: {
      "x-kafka-topic": topic,
      "x-kafka-partition": String(partition),
      "x-kafka-offset": offset,
      // Below 0 when the record has none.
      "x-kafka-timestamp": Number(timestamp) < 0 ? null : headerText(new Date(Number(timestamp))),
    },
    recordKey: headerText(key) || undefined,
    publishedAt: Number(timestamp),
  };
}
