import type { Message } from "kafkajs";
import type { PublishError } from "../../../model/errors.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { BrokerPublication, type PublicationBounds } from "../../brokers/publication.ts";
import { kafkaError } from "./errors.ts";

/** What a record takes beside its key, value and headers, at most. */
const RECORD_OVERHEAD_BYTES = 40;

/** One publish and its record. */
export class Publication extends BrokerPublication {
  readonly topic: string;
  readonly record: Message;
  /** Size of the record on the wire, to a few bytes. */
  readonly bytes: number;
  readonly #bootstrapServers: string;

  /** @param bootstrapServers for the message of a timeout */
  constructor(topic: string, message: OutboundMessage, bounds: PublicationBounds, bootstrapServers: string) {
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
