import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import type { Clock } from "../../../time/clock.ts";
import { InFlight } from "../../brokers/inFlight.ts";
import { RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";
import { type AmqpTarget, parseAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import type { BrokerTools } from "../../brokers/tools.ts";
import { publishErrorOf, rabbitmqError } from "./errors.ts";
import { Lane, type LaneTools } from "./lane.ts";
import { Link } from "./link.ts";
import { checkShortString, envelopeOf } from "./properties.ts";
import { Publication } from "./publication.ts";
import type { RabbitmqDestinationConfig } from "./schema.ts";

export interface RabbitmqDestinationTools extends BrokerTools {
  /** Longest time for one publish, connection included, in ms. Default 30,000: this kind has no key for it. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 30_000;
/** Exchanges whose channels are kept while nothing is published to them: names that come from rows have no end. */
const MAX_IDLE_LANES = 64;

/**
 * An AMQP destination (spec, "AMQP destination"): declares the exchange (durable, `exchangeType`) once per connection, publishes with the
 * mandatory flag, and waits for the broker's confirm. A URL that is no AMQP URI fails each publish with `url_invalid`.
 *
 * @param config the keys of the destination
 * @param tools log, clock and chance of the process
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
  readonly kind = "rabbitmq";
  readonly #name: string;
  readonly #isPersistent: boolean;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #link: Link;
  readonly #laneTools: LaneTools;
  readonly #lanes = new Map<string, Lane>();
  readonly #inFlight = new InFlight();
  #closed: Promise<void> | undefined;

  constructor(config: RabbitmqDestinationConfig, target: AmqpTarget, tools: RabbitmqDestinationTools) {
    this.#name = target.name;
    this.#isPersistent = config.deliveryMode === "persistent";
    this.#timeoutMs = tools.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#clock = tools.clock;
    this.#link = new Link(target, tools, () => this.#flush());
    this.#laneTools = {
      link: this.#link,
      exchangeType: config.exchangeType,
      timeoutMs: this.#timeoutMs,
      onEnd: (lane, left) => this.#ended(lane, left),
    };
  }

  async publish(message: OutboundMessage, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#closed !== undefined) throw this.#closedError();
    const exchange = message.address ?? "";
    checkShortString("the name of the exchange", exchange);
    checkShortString("the routing key", message.routingKey ?? "");
    const envelope = envelopeOf(message, this.#isPersistent, this.#clock.now());
    const publication = new Publication(message, envelope, {
      inFlight: this.#inFlight,
      signal,
      timeoutMs: this.#timeoutMs,
    });
    this.#inFlight.add(publication);
    this.#lane(exchange).send(publication);
    return publication.outcome;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#inFlight.failAll(this.#closedError());
    for (const lane of [...this.#lanes.values()]) lane.close();
    await this.#link.close();
  }

  #lane(exchange: string): Lane {
    const known = this.#lanes.get(exchange);
    if (known !== undefined) return known;
    const lane = new Lane(exchange, this.#laneTools);
    this.#lanes.set(exchange, lane);
    if (this.#lanes.size > MAX_IDLE_LANES) this.#closeIdleLane();
    return lane;
  }

  #closeIdleLane(): void {
    for (const lane of this.#lanes.values()) {
      if (!lane.isIdle) continue;
      lane.close();
      return;
    }
  }

  #ended(lane: Lane, left: readonly Publication[]): void {
    if (this.#lanes.get(lane.exchange) === lane) this.#lanes.delete(lane.exchange);
    for (const publication of left) this.#lane(lane.exchange).send(publication);
  }

  #flush(): void {
    for (const lane of this.#lanes.values()) lane.flush();
  }

  #closedError() {
    return rabbitmqError("closed", `publishing to ${this.#name} was ended: the destination is closed`);
  }
}

function unusable(fault: RabbitmqFault): Destination {
  return {
    kind: "rabbitmq",
    async publish(_message, signal) {
      signal.throwIfAborted();
      throw publishErrorOf(fault);
    },
    close: async () => {},
  };
}
