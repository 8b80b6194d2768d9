import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { brokerDestination } from "../../brokers/destination.ts";
import { type AmqpConnection, openConnection } from "../../brokers/rabbitmq/connection.ts";
import { faultOf, RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";
import { type AmqpTarget, parseAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { SharedConnection } from "../../brokers/sharedConnection.ts";
import { ExchangeChannel } from "./channel.ts";
import { publishErrorOf } from "./errors.ts";
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
 * An AMQP destination (spec, "AMQP destination"): declares the exchange (durable, `exchangeType`) or, without
 * `declareExchange`, checks that it exists, once per connection, publishes with the mandatory flag, and waits for the broker's confirm. An invalid AMQP URI fails each publish with
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
    return destinationOn(target, config, tools);
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
