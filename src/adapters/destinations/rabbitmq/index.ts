import type { ConfirmChannel } from "amqplib";
import { PublishError } from "../../../model/errors.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { type AmqpConnection, openConnection } from "../../brokers/rabbitmq/connection.ts";
import { faultCode, faultOf, RabbitmqFault, reasonOf } from "../../brokers/rabbitmq/fault.ts";
import { type AmqpTarget, parseAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { SharedConnection } from "../../brokers/sharedConnection.ts";
import { brokerDestination } from "../brokerDestination.ts";
import type { RabbitmqDestinationConfig } from "./kind.ts";
import { checkShortString, envelopeOf, PendingMessage, publishErrorOf, rabbitmqError } from "./message.ts";

interface RabbitmqDestinationTools extends AdapterTools {
  /** Timeout of one publish, connection included, in ms. Default 30,000: this kind has no key for it. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 30_000;
/** Idle exchanges whose channels stay open: rows can name any number of exchanges. */
const MAX_IDLE_CHANNELS = 64;

/**
 * An AMQP destination (spec, "AMQP destination"): declares the exchange (durable, `exchangeType`) or, without
 * `declareExchange`, checks that it exists, once per connection, publishes with the mandatory flag, and waits for the
 * broker's confirm. An invalid AMQP URI fails each publish with `url_invalid`.
 */
export function createRabbitmqDestination(
  config: RabbitmqDestinationConfig,
  tools: RabbitmqDestinationTools,
): Destination {
  try {
    return destinationOn(parseAmqpUri(config.url), config, tools);
  } catch (error) {
    if (!(error instanceof RabbitmqFault)) throw error;
    tools.log.error({ reason: error.message }, "an AMQP destination cannot publish");
    return unusable(error);
  }
}

function destinationOn(
  target: AmqpTarget,
  { deliveryMode, exchangeType, declareExchange }: RabbitmqDestinationConfig,
  tools: RabbitmqDestinationTools,
): Destination {
  const channels = new Map<string, ExchangeChannel>();
  const { name: broker } = target;
  const connection = new SharedConnection<AmqpConnection>({
    broker,
    async connect(signal) {
      const opened = await openConnection(target, signal);
      opened.onBlockedChange = () => {
        const fields = { broker, reason: opened.blocked };
        if (opened.blocked !== null) tools.log.warn(fields, "RabbitMQ blocks publishers");
        else {
          tools.log.info(fields, "RabbitMQ takes messages again");
          for (const channel of channels.values()) channel.flush();
        }
      };
      return opened;
    },
    onEnd: ({ ended }, callback) =>
      ended.addEventListener("abort", () => callback(faultOf("the connection ended", ended.reason).message), {
        once: true,
      }),
    disconnect: (opened) => opened.close(),
    tools,
  });

  const ended = (channel: ExchangeChannel, left: readonly PendingMessage[]) => {
    if (channels.get(channel.exchange) === channel) channels.delete(channel.exchange);
    for (const pending of left) channelOf(pending.exchange).send(pending);
  };
  const channelOf = (exchange: string): ExchangeChannel => {
    const known = channels.get(exchange);
    if (known !== undefined) return known;
    const channel = new ExchangeChannel(exchange, {
      connection,
      // Names that begin with `amq.` are reserved for the broker and cannot be declared.
      declaredType: declareExchange && !exchange.startsWith("amq.") ? exchangeType : null,
      onEnd: ended,
    });
    channels.set(exchange, channel);
    if (channels.size > MAX_IDLE_CHANNELS) [...channels.values()].find(({ isIdle }) => isIdle)?.close();
    return channel;
  };

  return brokerDestination({
    timeoutMs: tools.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    prepare(message, bounds) {
      checkShortString("the name of the exchange", message.address ?? "");
      checkShortString("the routing key", message.routingKey ?? "");
      const envelope = envelopeOf(message, deliveryMode === "persistent", tools.clock.now());
      return new PendingMessage(message, envelope, bounds);
    },
    send: (pending) => channelOf(pending.exchange).send(pending),
    closedText: () => `publishing to ${broker} was ended: the destination is closed`,
    async close() {
      for (const channel of [...channels.values()]) channel.close();
      await connection.close(new RabbitmqFault("closed", `the connection to ${broker} was closed`));
    },
  });
}

function unusable(fault: RabbitmqFault): Destination {
  return {
    async publish(_message, signal) {
      signal.throwIfAborted();
      throw publishErrorOf(fault);
    },
    close: async () => {},
  };
}

interface SentMessage {
  readonly id: string;
  readonly routingKey: string;
  /** Null when it has ended and nobody waits for it. */
  pending: PendingMessage | null;
  /** Why the broker returned it; null when it did not. */
  returned: string | null;
}

/** What all channels of a destination share. */
interface ExchangeChannelTools {
  readonly connection: SharedConnection<AmqpConnection>;
  /** Null for an exchange that is only checked. */
  readonly declaredType: "topic" | "direct" | "fanout" | null;
  /**
   * Called when the channel has ended: the next publish to the exchange needs a new one, and so do `left`, which lost
   * the channel because of another message; in the order of sending.
   */
  readonly onEnd: (channel: ExchangeChannel, left: readonly PendingMessage[]) => void;
}

/** The library's buffer for the header table, in bytes. */
const HEADER_TABLE_BYTES = 65_536;
/** What a frame adds to its payload, in bytes. */
const FRAME_OVERHEAD = 8;

/**
 * Publishes to one exchange, on a channel of its own: the broker closes a channel for a missing permission, a wrong
 * exchange type or an oversized message, and with it fails everything in flight. The exchange is declared or checked on
 * that channel before the first message.
 *
 * Messages leave in order of arrival, many at a time; each has its own confirm. They wait while the channel's buffer is
 * full or the broker blocks publishers; a message that times out meanwhile is not sent.
 */
class ExchangeChannel {
  readonly exchange: string;
  readonly #tools: ExchangeChannelTools;
  readonly #waiting = new Set<PendingMessage>();
  /** In the order of sending. */
  readonly #sentMessages = new Set<SentMessage>();
  #phase: "connecting" | "declaring" | "open" | "ended" = "connecting";
  #connection: AmqpConnection | null = null;
  #channel: ConfirmChannel | null = null;
  #full = false;

  constructor(exchange: string, tools: ExchangeChannelTools) {
    this.exchange = exchange;
    this.#tools = tools;
    this.#open().catch((error) => this.#end(error));
  }

  get isIdle(): boolean {
    return this.#phase === "open" && this.#waiting.size === 0 && this.#sentMessages.size === 0;
  }

  /** Sends a message as soon as possible; the pending ends with the broker's confirm. */
  send(pending: PendingMessage): void {
    this.#waiting.add(pending);
    pending.onExpire = () => this.#expired(pending);
    pending.onEnd = () => this.#waiting.delete(pending);
    this.flush();
  }

  /** Sends waiting messages, as far as the broker and the buffer allow. */
  flush(): void {
    const connection = this.#connection;
    const channel = this.#channel;
    if (connection === null || channel === null || this.#phase !== "open") return;
    for (const pending of this.#waiting) {
      if (this.#full || connection.blocked !== null) return;
      this.#waiting.delete(pending);
      this.#write(channel, connection, pending);
    }
  }

  /** Ends it, and closes the channel at the broker. */
  close(): void {
    const channel = this.#channel;
    this.#end(new RabbitmqFault("closed", `publishing to ${this.#where()} was ended`));
    // It rejects when the connection ends meanwhile.
    channel?.close().catch(() => {});
  }

  async #open(): Promise<void> {
    const connection = await this.#tools.connection.get();
    if (this.#hasEnded()) return;
    this.#connection = connection;
    this.#phase = "declaring";
    const channel = await connection.createConfirmChannel();
    this.#listen(channel);
    if (this.#hasEnded()) {
      await channel.close();
      return;
    }
    this.#channel = channel;
    const { declaredType } = this.#tools;
    if (declaredType === null) await channel.checkExchange(this.exchange);
    else await channel.assertExchange(this.exchange, declaredType, { durable: true });
    if (this.#hasEnded()) return;
    this.#phase = "open";
    this.flush();
  }

  #listen(channel: ConfirmChannel): void {
    let fault: unknown = null;
    channel.on("error", (error) => {
      fault = error;
    });
    // Before the library's own listener, which fails every confirm with a poorer error. The cause of the close arrives
    // a moment later.
    channel.prependListener("close", () => {
      this.#channel = null;
      queueMicrotask(() => this.#end(fault));
    });
    channel.on("drain", () => {
      this.#full = false;
      this.flush();
    });
    channel.on("return", (message) => this.#returned(message.properties.messageId, message.fields));
  }

  #hasEnded(): boolean {
    return this.#phase === "ended";
  }

  #write(channel: ConfirmChannel, connection: AmqpConnection, pending: PendingMessage): void {
    const { envelope, body, routingKey } = pending;
    const sent: SentMessage = { id: pending.id, routingKey, pending, returned: null };
    pending.onEnd = () => {
      sent.pending = null;
    };
    const tooLarge = tooLargeFor(connection, pending);
    if (tooLarge !== null) {
      pending.fail(tooLarge);
      return;
    }
    try {
      const hasRoom = channel.publish(this.exchange, routingKey, body, envelope.options, (error) =>
        this.#confirmed(sent, error),
      );
      this.#full = !hasRoom;
      this.#sentMessages.add(sent);
    } catch (error) {
      pending.fail(rabbitmqError("other", `publishing to ${this.#where()} failed: ${reasonOf(error)}`));
    }
  }

  /**
   * The broker returns an unroutable message before it confirms it, in the order of publishing. A row may be in flight
   * twice, after the timeout of its first publish: with the same routing key the answer is the same.
   */
  #returned(id: unknown, fields: object): void {
    const { replyText, routingKey } = fields as { readonly replyText?: unknown; readonly routingKey?: unknown };
    for (const sent of this.#sentMessages) {
      if (sent.id !== id || sent.routingKey !== routingKey || sent.returned !== null) continue;
      sent.returned = String(replyText ?? "NO_ROUTE");
      return;
    }
  }

  #confirmed(sent: SentMessage, error: unknown): void {
    // The library fails every confirm when the channel closes; `#end` has the reason.
    if (this.#channel === null) return;
    this.#sentMessages.delete(sent);
    const { pending } = sent;
    if (pending === null) return;
    if (sent.returned !== null) pending.fail(this.#unroutable(pending, sent.returned));
    else if (error !== null && error !== undefined) pending.fail(this.#nacked());
    else pending.succeed();
  }

  #unroutable(pending: PendingMessage, replyText: string): PublishError {
    return rabbitmqError(
      "unroutable",
      `${this.#where()} has no queue for the routing key ${JSON.stringify(pending.routingKey)} (${replyText}): check the exchange's ` +
        `bindings and the routing key template`,
    );
  }

  #nacked(): PublishError {
    return rabbitmqError(
      "nacked",
      `${this.#where()} did not take the message: a queue behind it is full with overflow reject-publish, or the broker could not store the message`,
    );
  }

  /** Ends everything in flight. Only the first call counts. */
  #end(error: unknown): void {
    if (this.#hasEnded()) return;
    const reason = this.#reason(error);
    const limit = bodyLimit(error);
    const left = [...[...this.#sentMessages].flatMap(({ pending }) => pending ?? []), ...this.#waiting];
    this.#phase = "ended";
    this.#channel = null;
    this.#sentMessages.clear();
    this.#waiting.clear();
    const again = limit === null ? [] : left.filter(({ isRepeated }) => !isRepeated);
    // All but the oversized one are sent again. Once: a broker may count more than the body.
    for (const pending of again) pending.isRepeated = true;
    if (limit !== null && this.#connection !== null) this.#connection.maxBodyBytes = limit;
    this.#tools.onEnd(this, again);
    for (const pending of left) if (!again.includes(pending)) pending.fail(reason);
  }

  #reason(error: unknown): PublishError {
    if (error instanceof PublishError) return error;
    const ended = this.#connection?.ended;
    if (error instanceof RabbitmqFault) return publishErrorOf(error);
    if (ended?.aborted) return publishErrorOf(faultOf("the connection ended", ended.reason));
    const code = faultCode(error);
    return rabbitmqError(code, `${this.#what(code)}: ${error === null ? "the channel was closed" : reasonOf(error)}`);
  }

  /** What went wrong and what to do about it; the broker's own words follow. */
  #what(code: string): string {
    const where = this.#where();
    const isDeclaring = this.#phase === "declaring";
    const user = JSON.stringify(this.#connection?.target.user ?? "");
    switch (code) {
      case "access_refused":
        return isDeclaring
          ? `${where} cannot be declared: give the user ${user} the permission to configure it, or set declareExchange to false if it exists`
          : `nothing may be published to ${where}: give the user ${user} the permission to write to it`;
      case "not_found":
        return isDeclaring
          ? `${where} does not exist, and is not declared: its name begins with "amq.", or declareExchange is false`
          : `${where} was deleted while messages were published; it is declared again with the next one`;
      case "precondition_failed":
        return isDeclaring
          ? `${where} exists with other properties than type ${this.#tools.declaredType} and durable: set declareExchange to false to use it unchanged`
          : `RabbitMQ refused a message to ${where}`;
      default:
        return isDeclaring ? `${where} could not be declared` : `publishing to ${where} was ended by RabbitMQ`;
    }
  }

  #expired(pending: PendingMessage): PublishError {
    const late = `publishing to ${this.#where()} took longer than ${pending.timeoutMs} ms`;
    const blocked = this.#connection?.blocked ?? null;
    if (blocked !== null)
      return rabbitmqError(
        "blocked",
        `${late}: RabbitMQ blocks publishers (${blocked}); free memory or disk space on the broker, or raise its limits`,
      );
    if (this.#phase === "connecting") return rabbitmqError("timeout", `${late}, waiting for the connection`);
    if (this.#phase === "declaring")
      return rabbitmqError("timeout", `${late}, waiting for the exchange to be declared`);
    if (this.#waiting.has(pending))
      return rabbitmqError("timeout", `${late}: RabbitMQ takes messages more slowly than they come`);
    return rabbitmqError("timeout", `${late}, waiting for RabbitMQ's confirm; it may have taken the message`);
  }

  #where(): string {
    const target = this.#connection?.target.name;
    const exchange = `the exchange ${JSON.stringify(this.exchange)}`;
    return target === undefined ? exchange : `${exchange} of ${target}`;
  }
}

/** Why a connection cannot carry a message; null when it can. */
function tooLargeFor(connection: AmqpConnection, { envelope, body }: PendingMessage): PublishError | null {
  const { target, frameMax, maxBodyBytes } = connection;
  if (body.length > maxBodyBytes)
    return rabbitmqError(
      "message_too_large",
      `the body has ${body.length} bytes, and ${target.name} takes ${maxBodyBytes}: send a smaller one, or raise max_message_size in the ` +
        "broker's configuration",
    );
  const room = Math.min(HEADER_TABLE_BYTES, frameMax - FRAME_OVERHEAD);
  if (envelope.bytes > room)
    return rabbitmqError(
      "message_too_large",
      `the headers of the message have ${envelope.bytes} bytes, and ${target.name} takes ${room}: send fewer or shorter ones`,
    );
  return null;
}

/** The broker's limit for a body in bytes, when a channel error reports a larger one. */
function bodyLimit(error: unknown): number | null {
  if (error === null) return null;
  const found = /message size \d+ is larger than (?:configured )?max size (\d+)/.exec(reasonOf(error));
  return found === null ? null : Number(found[1]);
}
