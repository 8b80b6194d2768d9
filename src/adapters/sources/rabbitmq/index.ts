import { StoppingError } from "../../../model/errors.ts";
import { REFUSED_RETRY_MS, type SourceTools } from "../../../ports/kinds.ts";
import type { Source } from "../../../ports/source.ts";
import { Backoff } from "../../../time/backoff.ts";
import { pause, untilAborted } from "../../../time/wait.ts";
import { type AmqpConnection, openConnection } from "../../brokers/rabbitmq/connection.ts";
import { faultOf, RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";
import { type AmqpTarget, parseAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { Consumption } from "./consumption.ts";
import type { RabbitmqSourceConfig } from "./schema.ts";

/** After consuming for this long the next fault is retried after the shortest wait, in ms. */
const STEADY_MS = 5000;

/**
 * An AMQP source (spec, "AMQP source"): consumes `queueName` and acknowledges a delivery after the intake has taken it.
 * Retries with backoff while the broker is away or refuses it. An invalid `connectionUrl` is a permanent fault of
 * `check`.
 */
export function createRabbitmqSource(config: RabbitmqSourceConfig, tools: SourceTools): Source {
  return new RabbitmqSource(config, tools);
}

class RabbitmqSource implements Source {
  readonly name: string;
  readonly #config: RabbitmqSourceConfig;
  readonly #tools: SourceTools;
  readonly #backoff: Backoff;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #connection: AmqpConnection | null = null;
  #consumption: Consumption | null = null;
  /** True until it has consumed the queue: asked once, since the broker logs an error for the answer. */
  #asksForStream = true;
  #fault = new RabbitmqFault("other", "the source has not been started");

  constructor(config: RabbitmqSourceConfig, tools: SourceTools) {
    this.name = `rabbitmq.${tools.name}`;
    this.#config = config;
    this.#tools = tools;
    this.#backoff = new Backoff(tools.random);
  }

  async start(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#running ??= this.#run();
  }

  async stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping.abort(new StoppingError());
    await untilAborted(this.#running, cutoff);
    // Its insert still completes, but nobody waits for it; the connection is closed.
    if (cutoff.aborted) this.#cutOff(cutoff.reason);
    this.#fault = new RabbitmqFault("closed", "the source is stopped");
  }

  async check(): Promise<void> {
    if (this.#consumption?.isConsuming) return;
    throw this.#consumption?.over.aborted ? this.#consumption.over.reason : this.#fault;
  }

  #cutOff(reason: unknown): void {
    this.#consumption?.abort(reason);
    this.#connection?.destroy();
  }

  async #run(): Promise<void> {
    const target = this.#target();
    const { signal } = this.#stopping;
    if (target === null) return;
    this.#fault = new RabbitmqFault("other", `the source connects to ${target.name}`);
    while (!signal.aborted) {
      const fault = await this.#consume(target);
      if (signal.aborted) return;
      this.#fault = fault;
      const waitMs = this.#backoff.next();
      this.#tools.log.warn(
        { broker: target.name, queue: this.#config.queueName, reason: fault.message, retryMs: waitMs },
        "the source does not consume, retrying",
      );
      await pause(waitMs, signal);
    }
  }

  #target(): AmqpTarget | null {
    const { log } = this.#tools;
    try {
      const target = parseAmqpUri(this.#config.connectionUrl);
      if (target.ignored.length > 0)
        log.warn({ parameters: target.ignored }, "parameters of connectionUrl that mean nothing here");
      return target;
    } catch (error) {
      this.#fault = faultOf("connectionUrl", error);
      log.error({ reason: this.#fault.message }, "the source cannot consume");
      return null;
    }
  }

  /**
   * Consumes on one connection, until it ends.
   *
   * @returns what ended it
   */
  async #consume(target: AmqpTarget): Promise<RabbitmqFault> {
    const { intake, clock, log, refusedRetryMs = REFUSED_RETRY_MS } = this.#tools;
    const stopping = this.#stopping.signal;
    let connection: AmqpConnection;
    try {
      connection = await openConnection(target, stopping);
    } catch (error) {
      return faultOf(`cannot connect to ${target.name}`, error);
    }
    const consumption = new Consumption(connection, this.#config, intake, refusedRetryMs);
    this.#connection = connection;
    this.#consumption = consumption;
    const end = eitherAborts(stopping, consumption.over);
    const since = clock.monotonic();
    try {
      await Promise.race([consumption.open(this.#asksForStream), end]);
      this.#asksForStream = !consumption.isConsuming;
      if (consumption.isConsuming)
        log.info({ broker: target.name, queue: this.#config.queueName }, "the source consumes");
      await end;
    } catch (error) {
      consumption.abort(error);
    }
    const fault = faultOf("the source stops", consumption.over.reason);
    if (fault.code === "not_found") this.#asksForStream = true;
    await consumption.finish();
    await connection.close();
    if (consumption.hasAcknowledged || clock.monotonic() - since > STEADY_MS) this.#backoff.reset();
    this.#connection = null;
    this.#consumption = null;
    return fault;
  }
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
