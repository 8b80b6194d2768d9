import type { Message } from "kafkajs";
import type { PublishError } from "../../../model/errors.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { PendingPublish, type PublishBounds } from "../pendingPublish.ts";
import { kafkaError } from "./errors.ts";

/** Most records per request: beyond it, the client's work per record grows. */
const MAX_RECORDS = 500;
const MAX_BYTES = 4 * 1024 * 1024;
/** Most bytes per request for one topic: all may go to one partition in one batch, limited to 1 MiB by default. */
const MAX_TOPIC_BYTES = 900 * 1024;

/** Records of one topic that failed together and are retried separately. */
export interface Group {
  readonly records: readonly PendingRecord[];
  /** The same records were retried before. */
  readonly repeated: boolean;
}

/** The waiting publishes, and how they form requests. */
export class PublishQueue {
  readonly #byTopic = new Map<string, PendingRecord[]>();
  readonly #groups: Group[] = [];
  /** Topics with a lower limit than {@link MAX_TOPIC_BYTES}. */
  readonly #smallTopics = new Map<string, number>();

  add(pending: PendingRecord): void {
    const waiting = this.#byTopic.get(pending.topic);
    if (waiting === undefined) this.#byTopic.set(pending.topic, [pending]);
    else waiting.push(pending);
  }

  addGroup(group: Group): void {
    this.#groups.push(group);
  }

  /** The broker refused several records of a topic as too large together: send fewer from now on. */
  shrink(topic: string, bytes: number): void {
    this.#smallTopics.set(topic, Math.ceil(Math.min(bytes, this.#topicBytes(topic)) / 2));
  }

  /** The topics with waiting publishes; drops the publishes that have ended. */
  topics(): ReadonlySet<string> {
    for (const [topic, waiting] of this.#byTopic) {
      if (waiting.every(({ settled }) => settled)) this.#byTopic.delete(topic);
    }
    for (let i = this.#groups.length - 1; i >= 0; i--) {
      if (this.#groups[i]?.records.every(({ settled }) => settled)) this.#groups.splice(i, 1);
    }
    return new Set([...this.#byTopic.keys(), ...this.#groups.flatMap((group) => topicOf(group))]);
  }

  /**
   * Takes the next request: a group to retry, or the first waiting records of each topic for which `isReady` holds.
   *
   * @returns an empty group when nothing waits for a ready topic
   */
  take(isReady: (topic: string) => boolean): Group {
    const retried = this.#groups.findIndex((group) => topicOf(group).every(isReady));
    const [group] = retried < 0 ? [] : this.#groups.splice(retried, 1);
    if (group !== undefined) return group;
    const taken: PendingRecord[] = [];
    let bytes = 0;
    for (const [topic, waiting] of [...this.#byTopic]) {
      if (!isReady(topic)) continue;
      const count = this.#fitting(topic, waiting, MAX_RECORDS - taken.length, MAX_BYTES - bytes, taken.length === 0);
      if (count === 0) continue;
      const part = waiting.splice(0, count);
      taken.push(...part.filter(({ settled }) => !settled));
      bytes += part.reduce((sum, pending) => sum + pending.bytes, 0);
      // To the end, so that a busy topic does not hold up the others.
      this.#byTopic.delete(topic);
      if (waiting.length > 0) this.#byTopic.set(topic, waiting);
      if (taken.length >= MAX_RECORDS || bytes >= MAX_BYTES || part.some((each) => each.bytes > MAX_TOPIC_BYTES)) break;
    }
    return { records: taken, repeated: false };
  }

  /** Fails everything that waits for a topic, or for any. */
  fail(reason: unknown, topic?: string): void {
    for (const [name, waiting] of this.#byTopic) {
      if (topic === undefined || name === topic) for (const pending of waiting) pending.fail(reason);
    }
    for (const group of this.#groups) {
      if (topic === undefined || topicOf(group).includes(topic))
        for (const pending of group.records) pending.fail(reason);
    }
    this.topics();
  }

  /** How many of a topic's first records fit into a request; a record that exceeds the limits goes alone. */
  #fitting(
    topic: string,
    waiting: readonly PendingRecord[],
    records: number,
    requestBytes: number,
    isFirst: boolean,
  ): number {
    const bound = Math.min(this.#topicBytes(topic), requestBytes);
    let count = 0;
    let bytes = 0;
    for (const pending of waiting) {
      if (count >= records || bytes + pending.bytes > bound) break;
      bytes += pending.bytes;
      count += 1;
    }
    if (count > 0) return count;
    const isLarge = (waiting[0]?.bytes ?? 0) > this.#topicBytes(topic);
    return isFirst && isLarge ? 1 : 0;
  }

  #topicBytes(topic: string): number {
    return this.#smallTopics.get(topic) ?? MAX_TOPIC_BYTES;
  }
}

function topicOf({ records }: Group): readonly string[] {
  const [first] = records;
  return first === undefined ? [] : [first.topic];
}

/** Upper bound for a record without its key, value and headers. */
const RECORD_OVERHEAD_BYTES = 40;

/** One publish and its record. */
export class PendingRecord extends PendingPublish {
  readonly topic: string;
  readonly record: Message;
  /** Size of the record on the wire, within a few bytes. */
  readonly bytes: number;
  readonly #bootstrapServers: string;

  /** @param bootstrapServers for the timeout error */
  constructor(topic: string, message: OutboundMessage, bounds: PublishBounds, bootstrapServers: string) {
    super(bounds);
    const key = message.routingKey === "" ? null : message.routingKey;
    this.topic = topic;
    this.#bootstrapServers = bootstrapServers;
    this.record = { key, value: message.body, headers: { ...message.headers } };
    this.bytes = RECORD_OVERHEAD_BYTES + Buffer.byteLength(key ?? "") + Buffer.byteLength(message.body);
    for (const [name, value] of Object.entries(message.headers)) {
      this.bytes += 4 + Buffer.byteLength(name) + Buffer.byteLength(value);
    }
  }

  protected override expiryError(): PublishError {
    const what = `publish to topic "${this.topic}" on ${this.#bootstrapServers}`;
    return kafkaError("timeout", `${what} was not acknowledged within ${this.timeoutMs} ms`);
  }
}

export function groupByTopic(records: readonly PendingRecord[]): ReadonlyMap<string, readonly PendingRecord[]> {
  const byTopic = new Map<string, PendingRecord[]>();
  for (const pending of records) {
    const part = byTopic.get(pending.topic);
    if (part === undefined) byTopic.set(pending.topic, [pending]);
    else part.push(pending);
  }
  return byTopic;
}
