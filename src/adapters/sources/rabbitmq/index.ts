import { createHash } from "node:crypto";
import type { Channel, ConsumeMessage } from "amqplib";
import { errorText, StoppingError } from "../../../model/errors.ts";
import { REFUSED_RETRY_MS, type SourceTools } from "../../../ports/kinds.ts";
import type { BrokerMessage, Intake, Source } from "../../../ports/source.ts";
import { Backoff, pause, untilAborted } from "../../../time/wait.ts";
import { headerText } from "../../brokers/headerText.ts";
import { type AmqpConnection, CLOSE_TIMEOUT_MS, openConnection } from "../../brokers/rabbitmq/connection.ts";
import { faultCode, faultOf, RabbitmqFault, reasonOf } from "../../brokers/rabbitmq/fault.ts";
import { timeOf, type UndecodableProperties } from "../../brokers/rabbitmq/properties.ts";
import { type AmqpTarget, parseAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import type { RabbitmqSourceConfig } from "./kind.ts";

/** After consuming for this long the next fault is retried after the shortest wait, in ms. */
const STEADY_MS = 5000;

/**
 * An AMQP source (spec, "AMQP source"): consumes `queueName` and acknowledges a delivery after the intake has taken it.
 * Retries with backoff while the broker is away or refuses it. An invalid `connectionUrl` is a permanent fault.
 */
export function createRabbitmqSource(config: RabbitmqSourceConfig, tools: SourceTools): Source {
  const { log, clock, intake, refusedRetryMs = REFUSED_RETRY_MS } = tools;
  const { queueName } = config;
  const stopping = new AbortController();
  const { signal } = stopping;
  const backoff = new Backoff(tools.random);
  let running: Promise<void> | undefined;
  let current: { readonly connection: AmqpConnection; readonly consumption: Consumption } | undefined;
  let fault = new RabbitmqFault("other", "the source has not been started");

  const run = async (): Promise<void> => {
    const target = targetOf();
    if (target === null) return;
    fault = new RabbitmqFault("other", `the source connects to ${target.name}`);
    while (!signal.aborted) {
      const ended = await consume(target);
      if (signal.aborted) return;
      fault = ended;
      const retryMs = backoff.next();
      log.warn(
        { broker: target.name, queue: queueName, reason: ended.message, retryMs },
        "the source does not consume, retrying",
      );
      await pause(retryMs, signal);
    }
  };

  const targetOf = (): AmqpTarget | null => {
    try {
      return parseAmqpUri(config.connectionUrl);
    } catch (error) {
      fault = faultOf("connectionUrl", error);
      log.error({ reason: fault.message }, "the source cannot consume");
      return null;
    }
  };

  /** Consumes on one connection, until it ends. @returns what ended it */
  const consume = async (target: AmqpTarget): Promise<RabbitmqFault> => {
    let connection: AmqpConnection;
    try {
      connection = await openConnection(target, signal);
    } catch (error) {
      return faultOf(`cannot connect to ${target.name}`, error);
    }
    const consumption = new Consumption(connection, config, intake, refusedRetryMs);
    current = { connection, consumption };
    const end = eitherAborts(signal, consumption.over);
    const since = clock.monotonic();
    try {
      await Promise.race([consumption.open(), end]);
      if (consumption.isConsuming) log.info({ broker: target.name, queue: queueName }, "the source consumes");
      await end;
    } catch (error) {
      consumption.abort(error);
    }
    const ended = faultOf("the source stops", consumption.over.reason);
    await consumption.finish();
    await connection.close();
    if (consumption.hasAcknowledged || clock.monotonic() - since > STEADY_MS) backoff.reset();
    current = undefined;
    return ended;
  };

  return {
    name: `rabbitmq.${tools.name}`,
    async start() {
      if (!signal.aborted) running ??= run();
    },
    async stop(cutoff) {
      stopping.abort(new StoppingError());
      await untilAborted(running, cutoff);
      if (cutoff.aborted) {
        // Its insert still completes, but nobody waits for it; the connection is closed.
        current?.consumption.abort(cutoff.reason);
        current?.connection.destroy();
      }
      fault = new RabbitmqFault("closed", "the source is stopped");
    },
    async check() {
      const consumption = current?.consumption;
      if (consumption?.isConsuming) return;
      throw consumption?.over.aborted ? consumption.over.reason : fault;
    },
  };
}

function eitherAborts(one: AbortSignal, other: AbortSignal): Promise<void> {
  const heard = new AbortController();
  return new Promise((resolve) => {
    const end = () => {
      heard.abort();
      resolve();
    };
    for (const signal of [one, other]) {
      if (signal.aborted) end();
      else signal.addEventListener("abort", end, { once: true, signal: heard.signal });
    }
  });
}

/**
 * Consumes one queue on one connection. Messages that arrive during a `take` are taken together by the next one and
 * acknowledged together; the broker sends at most `prefetchCount` ahead of the acknowledgements. What the inbox table
 * refuses stays unacknowledged and is taken again, while other messages continue as far as `prefetchCount` allows.
 */
class Consumption {
  readonly #connection: AmqpConnection;
  readonly #config: RabbitmqSourceConfig;
  readonly #intake: Intake;
  readonly #retryMs: number;
  readonly #over = new AbortController();
  /** Aborts to stop a `take` from waiting for its database. */
  readonly #stopping = new AbortController();
  #channel: Channel | null = null;
  #consumerTag: string | null = null;
  readonly #arrived: ConsumeMessage[] = [];
  /** How many messages wait, unacknowledged, to be taken again. */
  #refusedCount = 0;
  #taking: Promise<void> | null = null;
  #isFinishing = false;
  #hasAcknowledged = false;

  /** @param retryMs wait before refused messages are retried */
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

  get hasAcknowledged(): boolean {
    return this.#hasAcknowledged;
  }

  /** Starts to consume. @throws RabbitmqFault with why the queue cannot be consumed */
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
      // The cause of the close arrives a moment later.
      channel.on("close", () => queueMicrotask(() => this.abort(this.#fault(step, fault))));
      this.#channel = channel;
      await channel.prefetch(prefetchCount);
      if (await isStream(this.#connection, queueName)) throw this.#streamFault();
      step = "declared";
      if (declareQueue) await channel.assertQueue(queueName, { durable: true });
      step = "consumed";
      const { consumerTag } = await channel.consume(queueName, (message) => this.#deliver(message));
      this.#consumerTag = consumerTag;
    } catch (error) {
      throw this.#fault(step, error);
    }
  }

  /** Ends at once: takes nothing more and does not acknowledge a running `take`. */
  abort(reason: unknown): void {
    this.#over.abort(reason);
    this.#stopping.abort(reason);
  }

  /** Takes nothing more, and acknowledges a running `take`; the rest returns to the queue with the channel. */
  async finish(): Promise<void> {
    this.#isFinishing = true;
    this.#stopping.abort(new StoppingError());
    const channel = this.#channel;
    // Other consumers of the queue get all later messages. The close below, or the end of the connection, settles this
    // call.
    if (this.#consumerTag !== null && !this.over.aborted) channel?.cancel(this.#consumerTag).catch(() => {});
    await this.#taking;
    if (channel !== null && !this.over.aborted) {
      // After the acknowledgements on the same channel, so that the broker has them first.
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
    this.#takeSoon();
  }

  #takeSoon(): void {
    this.#taking ??= this.#takeAll().finally(() => {
      this.#taking = null;
    });
  }

  async #takeAll(): Promise<void> {
    // Messages of the same packet are taken together.
    await Promise.resolve();
    while (this.#arrived.length > 0 && !this.#isFinishing && !this.over.aborted) {
      const batch = this.#arrived.splice(0).sort((a, b) => a.fields.deliveryTag - b.fields.deliveryTag);
      const messages = batch.map(brokerMessageOf);
      try {
        const refused = new Set(await this.#intake.take(messages, this.#stopping.signal));
        this.#hold(batch.filter((_, n) => refused.has(messages[n] as BrokerMessage)));
        this.#acknowledge(batch.filter((_, n) => !refused.has(messages[n] as BrokerMessage)));
      } catch (error) {
        // They return to the queue with the channel.
        if (this.#isFinishing) return;
        this.abort(new RabbitmqFault("other", `the messages could not be taken: ${errorText(error)}`));
      }
    }
  }

  /** Acknowledges messages: up to the last delivery tag at once, unless an earlier message must stay unacknowledged. */
  #acknowledge(messages: readonly ConsumeMessage[]): void {
    const last = messages.at(-1);
    if (last === undefined || this.over.aborted) return;
    const { deliveryTag } = last.fields;
    const isFirst = this.#refusedCount === 0 && this.#arrived.every(({ fields }) => fields.deliveryTag > deliveryTag);
    if (isFirst) this.#channel?.ack(last, true);
    else for (const message of messages) this.#channel?.ack(message);
    this.#hasAcknowledged = true;
  }

  /** Keeps refused messages unacknowledged, and takes them again after a while. */
  #hold(refused: readonly ConsumeMessage[]): void {
    if (refused.length === 0) return;
    this.#refusedCount += refused.length;
    pause(this.#retryMs, this.over).then((isTime) => {
      if (!isTime || this.#isFinishing) return;
      this.#refusedCount -= refused.length;
      this.#arrived.push(...refused);
      this.#takeSoon();
    });
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

  /** What went wrong and what to do about it; the broker's own words follow. */
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
      return `${where} exists with other properties than durable alone: set declareQueue to false to consume it unchanged`;
    return `${where} cannot be ${step} any further`;
  }

  #where(): string {
    return `the queue ${JSON.stringify(this.#config.queueName)} of ${this.#connection.target.name}`;
  }
}

/** The current step with the queue, for errors. */
type Step = "prepared" | "declared" | "consumed";

/**
 * Whether a queue is a RabbitMQ stream, also false for unexpected answers. AMQP 0-9-1 has no query for it, so this asks
 * for a consumer that no broker grants: a stream refuses one without a prefetch count, any other queue refuses the
 * argument `x-stream-offset`. The refusal closes the channel, so it uses its own.
 */
async function isStream(connection: AmqpConnection, queueName: string): Promise<boolean> {
  try {
    const channel = await connection.createChannel();
    channel.on("error", () => {});
    await channel.prefetch(0);
    await channel.consume(queueName, () => {}, { arguments: { "x-stream-offset": "next" } });
    // A broker that grants it has no streams. Deliveries return to the queue with the channel.
    await channel.close();
    return false;
  } catch (error) {
    return /prefetch count is not set/i.test(errorText(error));
  }
}

/** AMQP properties that become headers with these names, unless the message already has them. */
const PROPERTY_HEADERS = {
  "content-type": "contentType",
  "content-encoding": "contentEncoding",
  type: "type",
  "app-id": "appId",
  "reply-to": "replyTo",
} as const;

/**
 * Converts a delivery for the intake. Header tables and lists (such as `x-death`) become JSON, times ISO 8601, decimals
 * decimal text; the properties of {@link PROPERTY_HEADERS} become headers unless the message has them.
 */
export function brokerMessageOf({ content, fields, properties }: ConsumeMessage): BrokerMessage {
  const { undecodable } = properties as Partial<UndecodableProperties>;
  const headers: [string, string][] = [];
  const names = new Set<string>();
  const add = (name: string, value: unknown) => {
    const text = headerText(value);
    if (text !== null) headers.push([name, text]);
  };
  for (const [name, value] of Object.entries(properties.headers ?? {})) {
    names.add(name.toLowerCase());
    add(name, value);
  }
  for (const [name, property] of Object.entries(PROPERTY_HEADERS))
    if (!names.has(name)) add(name, properties[property]);
  const { timestamp } = properties;
  if (!names.has("timestamp") && typeof timestamp === "number") add("timestamp", timeOf(timestamp));
  return {
    body: content,
    headers: Object.fromEntries(headers),
    origin: {
      "x-amqp-exchange": fields.exchange || null,
      "x-amqp-routing-key": fields.routingKey || null,
      "x-amqp-type": textOf(properties.type) ?? null,
      "x-amqp-app-id": textOf(properties.appId) ?? null,
      "x-amqp-priority": headerText(properties.priority),
      "x-amqp-properties": undecodable?.bytes.toString("base64") ?? null,
    },
    undecodable:
      undecodable &&
      `the AMQP properties cannot be read: ${undecodable.reason}; x-amqp-properties holds their bytes in base64`,
    messageId: undecodable === undefined ? textOf(properties.messageId) : digestOf(undecodable.bytes, content),
    correlationId: textOf(properties.correlationId),
    publishedAt: typeof timestamp === "number" ? timestamp * 1000 : undefined,
  };
}

/** Tells messages with unread properties apart: two with the same body are two dead rows. */
function digestOf(...parts: readonly Buffer[]): string {
  return `sha256:${parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest("hex")}`;
}

/** An empty text counts as unset. */
function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
