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
  const { log, clock, intake, refusedRetryMs = REFUSED_RETRY_MS } = tools;
  const { queueName } = config;
  const stopping = new AbortController();
  const { signal } = stopping;
  const backoff = new Backoff(tools.random);
  let running: Promise<void> | undefined;
  let current: { readonly connection: AmqpConnection; readonly consumption: Consumption } | undefined;
  /** True until it has consumed the queue: asked once, since the broker logs an error for the answer. */
  let asksForStream = true;
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
      const target = parseAmqpUri(config.connectionUrl);
      if (target.ignored.length > 0)
        log.warn({ parameters: target.ignored }, "parameters of connectionUrl that mean nothing here");
      return target;
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
      await Promise.race([consumption.open(asksForStream), end]);
      asksForStream = !consumption.isConsuming;
      if (consumption.isConsuming) log.info({ broker: target.name, queue: queueName }, "the source consumes");
      await end;
    } catch (error) {
      consumption.abort(error);
    }
    const ended = faultOf("the source stops", consumption.over.reason);
    if (ended.code === "not_found") asksForStream = true;
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
