import type { Channel, ConsumeMessage } from "amqplib";
import { errorText, StoppingError } from "../../../model/errors.ts";
import type { Intake } from "../../../ports/source.ts";
import { pause } from "../../brokers/pause.ts";
import { type AmqpConnection, CLOSE_TIMEOUT_MS } from "../../brokers/rabbitmq/connection.ts";
import { faultCode, faultOf, RabbitmqFault, reasonOf } from "../../brokers/rabbitmq/fault.ts";
import { brokerMessageOf } from "./message.ts";
import type { RabbitmqSourceConfig } from "./schema.ts";

/**
 * Consumes one queue on one connection. What arrives while a `take` runs is taken together by the next one and acknowledged together;
 * the broker sends no more than `prefetchCount` ahead of the acknowledgements.
 */
export class Consumption {
  readonly #connection: AmqpConnection;
  readonly #config: RabbitmqSourceConfig;
  readonly #intake: Intake;
  readonly #over = new AbortController();
  /** Aborts when a `take` that waits for its database waits no longer. */
  readonly #impatience = new AbortController();
  #channel: Channel | null = null;
  #consumerTag: string | null = null;
  #arrived: ConsumeMessage[] = [];
  #taking: Promise<void> | null = null;
  #isFinishing = false;
  #hasAcknowledged = false;

  constructor(connection: AmqpConnection, config: RabbitmqSourceConfig, intake: Intake) {
    this.#connection = connection;
    this.#config = config;
    this.#intake = intake;
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
   * @throws RabbitmqFault that says why the queue cannot be consumed
   */
  async open(): Promise<void> {
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
      step = "declared";
      if (declareQueue) await channel.assertQueue(queueName, { durable: true });
      step = "consumed";
      const { consumerTag } = await channel.consume(queueName, (message) => this.#deliver(message));
      this.#consumerTag = consumerTag;
    } catch (error) {
      throw this.#fault(step, error);
    }
  }

  /** Ends it at once: nothing more is taken, and what a running `take` has is not acknowledged. */
  abort(reason: unknown): void {
    this.#over.abort(reason);
    this.#impatience.abort(reason);
  }

  /** Takes nothing more, lets a running `take` end and acknowledges it; what was not acknowledged goes back to the queue with the channel. */
  async finish(): Promise<void> {
    this.#isFinishing = true;
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

  #deliver(message: ConsumeMessage | null): void {
    if (message === null) {
      this.abort(this.#cancelled());
      return;
    }
    this.#arrived.push(message);
    this.#taking ??= this.#takeAll().finally(() => {
      this.#taking = null;
    });
  }

  async #takeAll(): Promise<void> {
    // What came in the same packet is taken together.
    await Promise.resolve();
    while (this.#arrived.length > 0 && !this.#isFinishing && !this.over.aborted) {
      const batch = this.#arrived;
      this.#arrived = [];
      try {
        await this.#intake.take(batch.map(brokerMessageOf), this.#impatience.signal);
      } catch (error) {
        // They go back to the queue with the channel.
        if (this.#isFinishing) return;
        this.abort(new RabbitmqFault("other", `the messages could not be taken: ${errorText(error)}`));
      }
      this.#acknowledge(batch);
    }
  }

  /** Acknowledges a batch by its last message: deliveries of a channel are numbered in their order. */
  #acknowledge(batch: readonly ConsumeMessage[]): void {
    const last = batch.at(-1);
    if (last === undefined || this.over.aborted) return;
    this.#channel?.ack(last, true);
    this.#hasAcknowledged = true;
  }

  #cancelled(): RabbitmqFault {
    return new RabbitmqFault(
      "not_found",
      `RabbitMQ cancelled the consumer of ${this.#where()}: the queue was deleted, or the node that holds it went away`,
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

/** What is done with the queue at the moment, for errors. */
type Step = "prepared" | "declared" | "consumed";
