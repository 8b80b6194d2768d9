import type { NatsLink } from "../../brokers/nats/link.ts";
import type { BoundConsumer, ConsumerOptions } from "./consumer.ts";
import type { Delivery, Hand } from "./hand.ts";
import { brokerMessageOf, type IdempotencyFrom } from "./message.ts";
import { Pull } from "./pull.ts";

/** Answers to a delivery (NATS ADR-15). */
const ACKNOWLEDGED = "+ACK";
const NOT_TAKEN = "-NAK";
const IN_PROGRESS = "+WPI";

const MAX_EXPIRES_MS = 30_000;
/** A delivery is renewed three times in its acknowledgement wait, so that one that comes late does no harm. */
const RENEWALS_PER_WAIT = 3;
const MIN_RENEWAL_MS = 10;
/** Less than a stop waits for messages to be given back. */
const FORGET_TIMEOUT_MS = 1000;

/** Reads from one connection to the bound consumer into the hand, and answers for what is there. */
export class Session {
  /** Resolves with the reason when nothing more can be read here. */
  readonly failed: Promise<string>;
  readonly #link: NatsLink;
  readonly #consumer: Pick<ConsumerOptions, "stream" | "durable">;
  readonly #hand: Hand;
  readonly #pull: Pull;
  readonly #renewal: NodeJS.Timeout;

  /** @param onServed called whenever the server shows that it serves */
  constructor(
    link: NatsLink,
    { stream, durable, idempotencyFrom }: ConsumerOptions & { readonly idempotencyFrom: IdempotencyFrom },
    consumer: BoundConsumer,
    hand: Hand,
    onServed: () => void,
  ) {
    this.#link = link;
    this.#consumer = { stream, durable };
    this.#hand = hand;
    this.#pull = new Pull(link, {
      stream,
      durable,
      batch: consumer.maxBatch,
      expiresMs: Math.min(MAX_EXPIRES_MS, consumer.maxExpiresMs),
      onMessage: (message) =>
        hand.add({ acknowledgeTo: message.reply ?? "", message: brokerMessageOf(message, idempotencyFrom) }),
      onServed,
      hasRoom: () => hand.hasRoom,
    });
    const renewalMs = Math.max(MIN_RENEWAL_MS, Math.floor(consumer.ackWaitMs / RENEWALS_PER_WAIT));
    this.#renewal = setInterval(() => this.#answer(hand.all, IN_PROGRESS), renewalMs);
    this.failed = Promise.race([this.#pull.failed, link.ended]);
  }

  /** Room has come for more messages. */
  more(): void {
    this.#pull.more();
  }

  /** @returns those that could not be acknowledged, because the connection has ended */
  acknowledge(deliveries: readonly Delivery[]): readonly Delivery[] {
    return this.#answer(deliveries, ACKNOWLEDGED);
  }

  /** Has the server deliver messages again after a while; on a connection that has ended it does so anyway. */
  postpone(deliveries: readonly Delivery[], delayMs: number): void {
    this.#answer(deliveries, `${NOT_TAKEN} ${JSON.stringify({ delay: delayMs * 1_000_000 })}`);
  }

  /** Requests nothing more, at once. What was requested still arrives. */
  end(): void {
    this.#pull.end();
  }

  /** Reads nothing more; resolves when what was on its way has arrived. */
  async drain(): Promise<void> {
    await Promise.race([this.#pull.drain(), this.#link.ended]);
  }

  /** Gives what waits back, so that another replica gets it at once, and resolves when the server has every answer. */
  async giveBack(): Promise<void> {
    const waiting = this.#hand.release();
    if (waiting.length > 0) await this.#forgetRequest();
    this.#answer(waiting, NOT_TAKEN);
    await this.#link.flush();
  }

  /** Disconnects at once. */
  async close(): Promise<void> {
    clearInterval(this.#renewal);
    this.#pull.end();
    await this.#link.close();
  }

  /**
   * Makes the server forget the request that may still be open here. It would pick the first message that is given back for it, find nobody listening,
   * and put that message behind the others; NATS 2.9 then delivers the last one twice as well. Asked about a consumer, the server removes such
   * requests.
   */
  async #forgetRequest(): Promise<void> {
    const { stream, durable } = this.#consumer;
    const manager = await this.#link.connection.jetstreamManager({ checkAPI: false, timeout: FORGET_TIMEOUT_MS });
    // Without an answer the messages are given back all the same: what may suffer is their order.
    await manager.consumers.info(stream, durable).catch(() => {});
  }

  #answer(deliveries: readonly Delivery[], answer: string): readonly Delivery[] {
    return deliveries.filter(({ acknowledgeTo }) => {
      try {
        this.#link.connection.publish(acknowledgeTo, answer);
        return false;
      } catch {
        return true;
      }
    });
  }
}
