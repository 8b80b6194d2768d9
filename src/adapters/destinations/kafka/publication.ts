import type { Message } from "kafkajs";
import type { OutboundMessage } from "../../../ports/destination.ts";

/** What a record takes beside its key, value and headers, at most. */
const RECORD_OVERHEAD_BYTES = 40;

/** One publish that is waiting or under way: its record and who waits for it. */
export class Publication {
  readonly topic: string;
  readonly record: Message;
  /** Size of the record on the wire, to a few bytes. */
  readonly bytes: number;
  /** `performance.now()` at which its time is over. */
  readonly deadline: number;
  /** Resolves or rejects the publish when it is settled. */
  readonly outcome: Promise<void>;
  readonly #resolve: () => void;
  readonly #reject: (reason: unknown) => void;
  #settled = false;

  constructor(topic: string, message: OutboundMessage, deadline: number) {
    const key = message.routingKey === "" ? null : message.routingKey;
    this.topic = topic;
    this.record = { key, value: message.body, headers: { ...message.headers } };
    this.bytes = RECORD_OVERHEAD_BYTES + Buffer.byteLength(key ?? "") + Buffer.byteLength(message.body);
    for (const [name, value] of Object.entries(message.headers)) {
      this.bytes += 4 + Buffer.byteLength(name) + Buffer.byteLength(value);
    }
    this.deadline = deadline;
    let resolve = () => {};
    let reject = (_: unknown) => {};
    this.outcome = new Promise((onResolve, onReject) => {
      resolve = onResolve;
      reject = onReject;
    });
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** Whether nobody waits for it any more. */
  get settled(): boolean {
    return this.#settled;
  }

  succeed(): void {
    this.#settled = true;
    this.#resolve();
  }

  fail(reason: unknown): void {
    this.#settled = true;
    this.#reject(reason);
  }
}

/** The publications of each topic, in their order. */
export function groupByTopic(publications: readonly Publication[]): ReadonlyMap<string, readonly Publication[]> {
  const byTopic = new Map<string, Publication[]>();
  for (const publication of publications) {
    const part = byTopic.get(publication.topic);
    if (part === undefined) byTopic.set(publication.topic, [publication]);
    else part.push(publication);
  }
  return byTopic;
}
