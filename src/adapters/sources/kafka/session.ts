import { setImmediate as nextTurn } from "node:timers/promises";
import type { Consumer, EachBatchPayload, KafkaMessage } from "kafkajs";
import { StoppingError } from "../../../model/errors.ts";
import { REFUSED_RETRY_MS, type SourceTools } from "../../../ports/kinds.ts";
import type { BrokerMessage } from "../../../ports/source.ts";
import { pause, untilAborted } from "../../../time/wait.ts";
import { headerText } from "../../brokers/headerText.ts";
import { createKafkaClient, type KafkaClient, retryOptions } from "../../brokers/kafka/client.ts";
import { kafkaFault } from "../../brokers/kafka/faults.ts";
import type { KafkaSourceConfig } from "./schema.ts";

/** Times of a member of a consumer group, in ms. */
export interface GroupTimes {
  /** After so long without heartbeat the broker gives the partitions to others. */
  readonly sessionMs: number;
  readonly heartbeatMs: number;
  /** Longest time that the others wait for a member in a rebalance. */
  readonly rebalanceMs: number;
  /** Longest wait of a fetch for records. A stop waits as long. */
  readonly fetchWaitMs: number;
}

export const GROUP_TIMES: GroupTimes = { sessionMs: 30_000, heartbeatMs: 2000, rebalanceMs: 60_000, fetchWaitMs: 2000 };

const CONNECT_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 10_000;
const RETRIES = 2;
/** Partitions whose records are taken beside each other. */
const CONCURRENT_PARTITIONS = 4;
/** Within a batch offsets are committed no more often: what is read again after a fault the inbox knows. */
const COMMIT_INTERVAL_MS = 200;
/** Without a sign of life for so long the source counts as down. */
const SILENT_MS = 10_000;
/** How long leaving the group may take once nothing is being taken. */
const LEAVE_MS = 5000;

/**
 * One membership in a consumer group: from the connection to the first fault from which the client does not recover in a moment.
 *
 * The client's own restarts after a crash are off: some crashes it does not recover from, and some restarts outlive its `disconnect`.
 */
export class GroupSession {
  readonly #config: KafkaSourceConfig;
  readonly #tools: SourceTools;
  readonly #times: GroupTimes;
  readonly #client: KafkaClient;
  readonly #consumer: Consumer;
  readonly #firstServer: number;
  readonly #takes = new Set<Promise<unknown>>();
  readonly #abandon = new AbortController();
  /** Aborts with the end of the session. */
  readonly #closed = new AbortController();
  /** Aborts when a `take` that waits for its database waits no longer. */
  readonly #impatience = new AbortController();
  readonly #over: Promise<void>;
  #end: (error?: unknown) => void = () => {};
  #ended = false;
  #joined = false;
  #joinedAt: number | undefined;
  /** Counts the assignments: what was read under an earlier one must not be committed under a later one. */
  #assignment = 0;
  #lastSign: number;
  #heartbeat: () => Promise<void> = async () => {};

  constructor(config: KafkaSourceConfig, tools: SourceTools, times: GroupTimes, firstServer: number) {
    this.#config = config;
    this.#tools = tools;
    this.#times = times;
    this.#firstServer = firstServer;
    this.#client = this.#createClient();
    this.#consumer = this.#client.kafka.consumer({
      groupId: config.groupId,
      sessionTimeout: times.sessionMs,
      heartbeatInterval: times.heartbeatMs,
      rebalanceTimeout: times.rebalanceMs,
      maxWaitTimeInMs: times.fetchWaitMs,
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

  /** Since when it has been a member, in ms of the monotonic clock. */
  get joinedAt(): number | undefined {
    return this.#joinedAt;
  }

  /** Why it does not consume now; undefined when it does. */
  get problem(): string | undefined {
    const silentMs = this.#tools.clock.monotonic() - this.#lastSign;
    if (silentMs > SILENT_MS) return `the broker has not answered for ${Math.round(silentMs / 1000)} s`;
    return this.#joinedAt === undefined ? "it is about to connect and to join the group" : undefined;
  }

  /**
   * Consumes until `stop`.
   *
   * @throws Error for an operator when it cannot begin or go on
   */
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

  /** Takes no more, lets the running takes end, commits them and leaves the group; all of that at once when `cutoff` aborts. */
  async stop(cutoff: AbortSignal): Promise<void> {
    this.#impatience.abort(new StoppingError());
    const cut = () => {
      this.#abandon.abort(cutoff.reason);
      this.#end();
    };
    if (cutoff.aborted) cut();
    cutoff.addEventListener("abort", cut, { once: true });
    // While it is still joining, the client's own disconnect would be overtaken by the join, which then goes on for ever.
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
    // One by one, so that an error tells which of them is missing.
    for (const topic of topics) {
      try {
        await this.#consumer.subscribe({ topics: [topic], fromBeginning: autoOffsetReset === "earliest" });
      } catch (error) {
        throw topicFault(topic, error);
      }
    }
    await this.#consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: CONCURRENT_PARTITIONS,
      eachBatch: (payload) => this.#consume(payload),
    });
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
      if (this.#config.autoOffsetReset === "latest") this.#settleEnds(payload.memberAssignment);
      else this.#joinedAt ??= this.#lastSign;
    });
    this.#consumer.on(events.REBALANCING, () => {
      this.#joined = false;
    });
    this.#consumer.on(events.CRASH, ({ payload }) => this.#end(payload.error));
    this.#consumer.on(events.END_BATCH_PROCESS, ({ payload: { batchSize, topic, partition, lastOffset } }) => {
      // Nothing but markers of transactions or aborted records: the client skips them, and commits nothing.
      if (batchSize > 0) return;
      const offset = following(lastOffset);
      this.#consumer.commitOffsets([{ topic, partition, offset }]).catch(() => {});
    });
  }

  /** Reads nothing before the group has an offset for each of its new partitions. Runs within the join, before the first fetch. */
  #settleEnds(assignment: Assignment): void {
    const partitions = Object.entries(assignment).map(([topic, numbers]) => ({ topic, partitions: [...numbers] }));
    const now = this.#assignment;
    this.#consumer.pause(partitions);
    commitEnds(this.#createClient(), this.#consumer, this.#config.groupId, assignment).then(
      () => {
        if (now !== this.#assignment || this.#ended) return;
        this.#consumer.resume(partitions);
        this.#joinedAt ??= this.#tools.clock.monotonic();
      },
      (error) => {
        if (now === this.#assignment) this.#end(error);
      },
    );
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
      if (isRefused && !this.#impatience.signal.aborted) this.#resumeLater(hold());
      if (last === undefined || !isOurs()) return;
      const isEnd = isRefused || from + most >= messages.length;
      const now = this.#tools.clock.monotonic();
      if (!isEnd && isRunning() && now - committedAt < COMMIT_INTERVAL_MS) continue;
      committedAt = now;
      // What follows the last record of a batch, up to its end, are markers of transactions.
      const offset = following(isEnd && !isRefused ? batch.lastOffset() : last.offset);
      await commitOffsetsIfNecessary({ topics: [{ topic, partitions: [{ partition, offset }] }] });
      // After the commit: one that fails is followed by reading, taking and committing again.
      if (!isOurs()) return;
      resolveOffset(last.offset);
      await heartbeat();
      if (isRefused) return;
    }
  }

  /**
   * @returns how many records from the first on are taken and may be committed. A partition is read in order, so one
   *   that the inbox table refuses holds up those behind it, which are read again; none when the source stopped before
   *   all of them were taken
   */
  async #take(records: readonly KafkaMessage[], topic: string, partition: number): Promise<number> {
    const messages = records.map((record) => brokerMessage(record, topic, partition));
    const taking = this.#tools.intake.take(messages, this.#impatience.signal);
    this.#takes.add(taking);
    try {
      const refused = await taking;
      return refused.length === 0 ? messages.length : messages.findIndex((message) => refused.includes(message));
    } catch (error) {
      if (this.#impatience.signal.aborted) return 0;
      throw error;
    } finally {
      this.#takes.delete(taking);
    }
  }

  /** Reads on in a partition after a while; the others go on meanwhile. */
  #resumeLater(resume: () => void): void {
    pause(this.#tools.refusedRetryMs ?? REFUSED_RETRY_MS, this.#closed.signal).then((isTime) => {
      if (isTime) resume();
    });
  }

  /** Keeps the membership while the intake waits for its database, and ends a session in which nothing moves any more. */
  #watch(): void {
    // A heartbeat that fails tells of a rebalance or a lost session, which the commit or the next heartbeat will find out too.
    if (this.#takes.size > 0) this.#heartbeat().catch(() => {});
    const silentMs = this.#tools.clock.monotonic() - this.#lastSign;
    const patienceMs = this.#times.rebalanceMs + this.#times.sessionMs;
    if (silentMs > patienceMs) this.#end(new Error(`the broker has not answered for ${Math.round(silentMs / 1000)} s`));
  }

  /** Until no take runs any more; when they were abandoned, until they have had the time to notice: an insert may go on behind. */
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

/** The offset behind one. */
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

/** Partitions by topic. */
type Assignment = Readonly<Record<string, readonly number[]>>;

/**
 * Commits the present end of each partition for which a group has no offset yet, so that `latest` is decided once: a group that is only kept in
 * memory would begin at the end again after the next fault, past what came meanwhile.
 *
 * @param client ended afterwards
 */
async function commitEnds(
  client: KafkaClient,
  consumer: Consumer,
  groupId: string,
  assignment: Assignment,
): Promise<void> {
  const admin = client.kafka.admin();
  try {
    await admin.connect();
    const committed = await admin.fetchOffsets({ groupId, topics: Object.keys(assignment) });
    for (const { topic, partitions } of committed) {
      const isNew = (partition: number) =>
        assignment[topic]?.includes(partition) === true &&
        partitions.some((each) => each.partition === partition && Number(each.offset) < 0);
      if (!partitions.some(({ partition }) => isNew(partition))) continue;
      const ends = (await admin.fetchTopicOffsets(topic)).filter(({ partition }) => isNew(partition));
      await consumer.commitOffsets(ends.map(({ partition, high }) => ({ topic, partition, offset: high })));
    }
    await admin.disconnect();
  } finally {
    client.sockets.cut();
  }
}

/**
 * A record as the intake takes it.
 *
 * The key is text, in base64 where it is not UTF-8; an empty key counts as none, since all records with it would count as the same one. Of a header
 * that occurs several times the last value counts, as in Kafka's own `lastHeader`; one without value is left out.
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
      "x-kafka-timestamp": timeOf(timestamp),
    },
    recordKey: headerText(key) || undefined,
  };
}

/** @param timestamp ms since the Unix epoch; below 0 when the record has none */
function timeOf(timestamp: string): string | null {
  const time = new Date(Number(timestamp));
  return Number(timestamp) < 0 || Number.isNaN(time.getTime()) ? null : time.toISOString();
}
