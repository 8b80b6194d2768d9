import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import type { Clock } from "../../../time/clock.ts";
import { InFlight } from "../../brokers/pendingPublish.ts";
import { RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";
import { type AmqpTarget, parseAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { ExchangeChannel, type ExchangeChannelTools, SharedConnection } from "./channel.ts";
import { publishErrorOf, rabbitmqError } from "./errors.ts";
import { checkShortString, envelopeOf, PendingMessage } from "./message.ts";
import type { RabbitmqDestinationConfig } from "./schema.ts";

interface RabbitmqDestinationTools extends AdapterTools {
  /** Timeout of one publish, connection included, in ms. Default 30,000: this kind has no key for it. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 30_000;
/** Idle exchanges whose channels stay open: rows can name any number of exchanges. */
const MAX_IDLE_CHANNELS = 64;

/**
 * An AMQP destination (spec, "AMQP destination"): declares the exchange (durable, `exchangeType`) once per connection,
 * publishes with the mandatory flag, and waits for the broker's confirm. An invalid AMQP URI fails each publish with
 * `url_invalid`.
 */
export function createRabbitmqDestination(
  config: RabbitmqDestinationConfig,
  tools: RabbitmqDestinationTools,
): Destination {
  try {
    const target = parseAmqpUri(config.url);
    if (target.ignored.length > 0)
      tools.log.warn({ parameters: target.ignored }, "parameters of an AMQP destination's url that mean nothing here");
    return new RabbitmqDestination(config, target, tools);
  } catch (error) {
    if (!(error instanceof RabbitmqFault)) throw error;
    tools.log.error({ reason: error.message }, "an AMQP destination cannot publish");
    return unusable(error);
  }
}

class RabbitmqDestination implements Destination {
  readonly #name: string;
  readonly #isPersistent: boolean;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #connection: SharedConnection;
  readonly #channelTools: ExchangeChannelTools;
  readonly #channels = new Map<string, ExchangeChannel>();
  readonly #inFlight = new InFlight();
  #closed: Promise<void> | undefined;

  constructor(config: RabbitmqDestinationConfig, target: AmqpTarget, tools: RabbitmqDestinationTools) {
    this.#name = target.name;
    this.#isPersistent = config.deliveryMode === "persistent";
    this.#timeoutMs = tools.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#clock = tools.clock;
    this.#connection = new SharedConnection(target, tools, () => this.#flush());
    this.#channelTools = {
      connection: this.#connection,
      exchangeType: config.exchangeType,
      timeoutMs: this.#timeoutMs,
      onEnd: (channel, left) => this.#ended(channel, left),
    };
  }

  async publish(message: OutboundMessage, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#closed !== undefined) throw this.#closedError();
    const exchange = message.address ?? "";
    checkShortString("the name of the exchange", exchange);
    checkShortString("the routing key", message.routingKey ?? "");
    const envelope = envelopeOf(message, this.#isPersistent, this.#clock.now());
    const pending = new PendingMessage(message, envelope, {
      inFlight: this.#inFlight,
      signal,
      timeoutMs: this.#timeoutMs,
    });
    this.#inFlight.add(pending);
    this.#channel(exchange).send(pending);
    return pending.outcome;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#inFlight.failAll(this.#closedError());
    for (const channel of [...this.#channels.values()]) channel.close();
    await this.#connection.close();
  }

  #channel(exchange: string): ExchangeChannel {
    const known = this.#channels.get(exchange);
    if (known !== undefined) return known;
    const channel = new ExchangeChannel(exchange, this.#channelTools);
    this.#channels.set(exchange, channel);
    if (this.#channels.size > MAX_IDLE_CHANNELS) this.#closeIdleChannel();
    return channel;
  }

  #closeIdleChannel(): void {
    for (const channel of this.#channels.values()) {
      if (!channel.isIdle) continue;
      channel.close();
      return;
    }
  }

  #ended(channel: ExchangeChannel, left: readonly PendingMessage[]): void {
    if (this.#channels.get(channel.exchange) === channel) this.#channels.delete(channel.exchange);
    for (const pending of left) this.#channel(channel.exchange).send(pending);
  }

  #flush(): void {
    for (const channel of this.#channels.values()) channel.flush();
  }

  #closedError() {
    return rabbitmqError("closed", `publishing to ${this.#name} was ended: the destination is closed`);
  }
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
