import type { Channel, ConsumeMessage } from "amqplib";
import { errorText, StoppingError } from "../../../model/errors.ts";
import type { BrokerMessage, Intake } from "../../../ports/source.ts";
import { pause } from "../../../time/wait.ts";
import { type AmqpConnection, CLOSE_TIMEOUT_MS } from "../../brokers/rabbitmq/connection.ts";
import { faultCode, faultOf, RabbitmqFault, reasonOf } from "../../brokers/rabbitmq/fault.ts";
import { brokerMessageOf } from "./message.ts";
import type { RabbitmqSourceConfig } from "./schema.ts";

/**
 * Consumes one queue on one connection. What arrives while a `take` runs is taken together by the next one and
 * acknowledged together; the broker sends no more than `prefetchCount` ahead of the acknowledgements. What the inbox
 * table refuses stays unacknowledged and is offered again, while other messages go on.
 */
export class Consumption {
  readonly #connection: AmqpConnection;
  readonly #config: RabbitmqSourceConfig;
  readonly #intake: Intake;
  readonly #retryMs: number;
  readonly #over = new AbortController();
  /** Aborts when a `take` that waits for its database waits no longer. */
  readonly #impatience = new AbortController();
  #channel: Channel | null = null;
  #consumerTag: string | null = null;
  #arrived: ConsumeMessage[] = [];
  /** Messages that the inbox table refused: they stay unacknowledged, and are offered again. */
  #refused: ConsumeMessage[] = [];
  /** Runs from the first refusal until the refused messages are offered again. */
  #retry: NodeJS.Timeout | undefined;
  #retryIsDue = false;
  #isRenewing = false;
  #taking: Promise<void> | null = null;
  #isFinishing = false;
  #hasAcknowledged = false;

  /** @param retryMs wait before refused messages are offered again */
  constructor(connection: AmqpConnection, config: RabbitmqSourceConfig, intake: Intake, retryMs: number) {
    this.#connection = connection;
    this.#config = config;
    this.#intake = intake;
    this.#retryMs = retryMs;
  }

  /** Aborts when nothing can be taken or acknowledged any more; its reason is the fault. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  get isConsuming(): boolean {
    return this.#consumerTag !== null && !this.#isFinishing && !this.over.aborted;
  }

  /** Whether anything was taken and acknowledged. */
  get hasAcknowledged(): boolean {
    return this.#hasAcknowledged;
  }

  /**
   * Starts to consume.
   *
   * @param asksForStream whether it is not known yet that the queue is not a stream
   * @throws RabbitmqFault that says why the queue cannot be consumed
   */
  async open(asksForStream: boolean): Promise<void> {
    const { queueName, prefetchCount, declareQueue } = this.#config;
    const { ended } = this.#connection;
    ended.addEventListener("abort", () => this.abort(ended.reason), { once: true });
    let step: Step = "prepared";
    try {
      const channel = await this.#connection.createChannel();
      let fault: unknown = null;
      channel.on("error", (error) => {
        fault = error;
      });
      // What closed the connection is known a moment later.
      channel.on("close", () => queueMicrotask(() => this.abort(this.#fault(step, fault))));
      this.#channel = channel;
      await channel.prefetch(prefetchCount);
      if (asksForStream && (await isStream(this.#connection, queueName))) throw this.#streamFault();
      step = "declared";
      if (declareQueue) await channel.assertQueue(queueName, { durable: true });
      step = "consumed";
      await this.#consume(channel);
    } catch (error) {
      throw this.#fault(step, error);
    }
  }

  /** Ends it at once: nothing more is taken, and what a running `take` has is not acknowledged. */
  abort(reason: unknown): void {
    clearTimeout(this.#retry);
    this.#over.abort(reason);
    this.#impatience.abort(reason);
  }

  /** Takes nothing more, lets a running `take` end and acknowledges it; what was not acknowledged goes back to the queue with the channel. */
  async finish(): Promise<void> {
    this.#isFinishing = true;
    clearTimeout(this.#retry);
    this.#impatience.abort(new StoppingError());
    const channel = this.#channel;
    // Other consumers of the queue get what comes from now on. No answer is waited for: the close below brings it, or the connection's end.
    if (this.#consumerTag !== null && !this.over.aborted) channel?.cancel(this.#consumerTag).catch(() => {});
    await this.#taking;
    if (channel !== null && !this.over.aborted) {
      // On the way of the acknowledgements, so that the broker has them before.
      const closed = channel.close().catch(() => {});
      await Promise.race([closed, pause(CLOSE_TIMEOUT_MS, this.over)]);
    }
    this.abort(new RabbitmqFault("closed", "the consumption has ended"));
  }

  async #consume(channel: Channel): Promise<void> {
    const { consumerTag } = await channel.consume(this.#config.queueName, (message) => this.#deliver(message));
    this.#consumerTag = consumerTag;
  }

  #deliver(message: ConsumeMessage | null): void {
    if (message === null) {
      this.abort(this.#cancelled());
      return;
    }
    this.#arrived.push(message);
    this.#takeSoon();
  }

  #takeSoon(): void {
    this.#taking ??= this.#takeAll().finally(() => {
      this.#taking = null;
    });
  }

  async #takeAll(): Promise<void> {
    // What came in the same packet is taken together.
    await Promise.resolve();
    while ((this.#arrived.length > 0 || this.#retryIsDue) && !this.#isFinishing && !this.over.aborted) {
      const batch = this.#nextBatch();
      const messages = batch.map(brokerMessageOf);
      try {
        const refused = new Set(await this.#intake.take(messages, this.#impatience.signal));
        this.#keep(batch.filter((_, n) => refused.has(messages[n] as BrokerMessage)));
        this.#acknowledge(batch.filter((_, n) => !refused.has(messages[n] as BrokerMessage)));
      } catch (error) {
        // They go back to the queue with the channel.
        if (this.#isFinishing) return;
        this.abort(new RabbitmqFault("other", `the messages could not be taken: ${errorText(error)}`));
      }
    }
  }

  /** What has arrived, behind the refused messages when it is time for them; in the order of their delivery tags. */
  #nextBatch(): readonly ConsumeMessage[] {
    const arrived = this.#arrived;
    this.#arrived = [];
    if (!this.#retryIsDue) return arrived;
    this.#retryIsDue = false;
    this.#retry = undefined;
    return [...this.#refused.splice(0), ...arrived];
  }

  /**
   * Acknowledges messages: together by the last of them, since deliveries of a channel are numbered in their order,
   * unless others that came before it are to stay unacknowledged.
   */
  #acknowledge(messages: readonly ConsumeMessage[]): void {
    const last = messages.at(-1);
    if (last === undefined || this.over.aborted) return;
    const firstKept = Math.min(...this.#refused.map(({ fields }) => fields.deliveryTag));
    if (last.fields.deliveryTag < firstKept) this.#channel?.ack(last, true);
    else for (const message of messages) this.#channel?.ack(message);
    this.#hasAcknowledged = true;
  }

  /** Keeps messages that the table refused, unacknowledged, to offer them again. */
  #keep(refused: readonly ConsumeMessage[]): void {
    this.#refused.push(...refused);
    if (refused.length === 0 || this.over.aborted || this.#isFinishing) return;
    this.#retry ??= setTimeout(() => {
      this.#retryIsDue = true;
      this.#takeSoon();
    }, this.#retryMs);
    const ofConsumer = this.#refused.filter(({ fields }) => fields.consumerTag === this.#consumerTag).length;
    if (2 * ofConsumer >= this.#config.prefetchCount && this.#hasRoom()) void this.#renewConsumer();
  }

  #hasRoom(): boolean {
    const bytes = this.#refused.reduce((sum, { content }) => sum + content.length, 0);
    return this.#refused.length < MAX_REFUSED && bytes < MAX_REFUSED_BYTES;
  }

  /**
   * The refused messages take up the consumer's prefetch, and would end the reading: another consumer has all of it
   * again.
   */
  async #renewConsumer(): Promise<void> {
    const [channel, consumerTag] = [this.#channel, this.#consumerTag];
    if (this.#isRenewing || channel === null || consumerTag === null) return;
    this.#isRenewing = true;
    try {
      await channel.cancel(consumerTag);
      if (!this.#isFinishing) await this.#consume(channel);
    } catch (error) {
      if (!this.#isFinishing) this.abort(this.#fault("consumed", error));
    } finally {
      this.#isRenewing = false;
    }
  }

  #cancelled(): RabbitmqFault {
    return new RabbitmqFault(
      "not_found",
      `RabbitMQ cancelled the consumer of ${this.#where()}: the queue was deleted, or the node that holds it went away`,
    );
  }

  #streamFault(): RabbitmqFault {
    return new RabbitmqFault(
      "precondition_failed",
      `${this.#where()} is a stream, which does not remember how far a consumer has read: what is published while svc is away would be lost. ` +
        "Bind a classic or quorum queue to the same exchange and name it in queueName",
    );
  }

  #fault(step: Step, error: unknown): RabbitmqFault {
    if (error instanceof RabbitmqFault) return error;
    const { ended } = this.#connection;
    if (ended.aborted) return faultOf("the connection ended", ended.reason);
    const code = faultCode(error);
    const said = error === null ? "the channel was closed" : reasonOf(error);
    return new RabbitmqFault(code, `${this.#what(step, code)}: ${said}`);
  }

  /** What went wrong and what to do about it, before the broker's own words. */
  #what(step: Step, code: string): string {
    const where = this.#where();
    const user = JSON.stringify(this.#connection.target.user);
    const permission = step === "declared" ? "configure" : "read";
    if (code === "not_found")
      return `${where} does not exist: create it, or set declareQueue to true to have it declared`;
    if (code === "locked" || (code === "access_refused" && step === "consumed"))
      return `${where} cannot be consumed: it must not be exclusive to another consumer, and the user ${user} needs the permission to read it`;
    if (code === "access_refused")
      return `${where} cannot be ${step}: give the user ${user} the permission to ${permission} it`;
    if (code === "precondition_failed" && step === "declared")
      return `${where} exists with other properties than durable alone: set declareQueue to false to consume it as it is`;
    return `${where} cannot be ${step} any further`;
  }

  #where(): string {
    return `the queue ${JSON.stringify(this.#config.queueName)} of ${this.#connection.target.name}`;
  }
}

/**
 * Bounds of what is kept at a time after the inbox table has refused it: beyond them nothing more is read than the
 * prefetch allows.
 */
const MAX_REFUSED = 1000;
const MAX_REFUSED_BYTES = 16 * 1024 * 1024;

/** What is done with the queue at the moment, for errors. */
type Step = "prepared" | "declared" | "consumed";

/**
 * Whether a queue is a RabbitMQ stream, for which AMQP 0-9-1 has no question: a consumer is asked for that no broker
 * grants. A stream refuses one without a prefetch count; any other queue refuses the argument `x-stream-offset`. On a
 * channel of its own, which the refusal closes.
 *
 * @returns false also when the broker answers anything else: what is wrong then shows when the queue is consumed
 */
async function isStream(connection: AmqpConnection, queueName: string): Promise<boolean> {
  try {
    const channel = await connection.createChannel();
    channel.on("error", () => {});
    await channel.prefetch(0);
    await channel.consume(queueName, () => {}, { arguments: { "x-stream-offset": "next" } });
    // A broker that grants it knows no streams. What it has delivered goes back with the channel.
    await channel.close();
    return false;
  } catch (error) {
    return /prefetch count is not set/i.test(errorText(error));
  }
}
