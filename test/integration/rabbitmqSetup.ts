import { afterEach, beforeEach } from "@jest/globals";
import type { GetMessage } from "amqplib";
import { createRabbitmqDestination } from "../../src/adapters/destinations/rabbitmq/index.ts";
import type { RabbitmqDestinationConfig } from "../../src/adapters/destinations/rabbitmq/kind.ts";
import { createRabbitmqSource } from "../../src/adapters/sources/rabbitmq/index.ts";
import type { RabbitmqSourceConfig } from "../../src/adapters/sources/rabbitmq/kind.ts";
import { PublishError } from "../../src/model/errors.ts";
import type { Destination } from "../../src/ports/destination.ts";
import type { Log } from "../../src/ports/runtime.ts";
import type { Intake, Source } from "../../src/ports/source.ts";
import type { RabbitmqAddress } from "../support/brokers/index.ts";
import { brokerTools } from "../support/brokerTools.ts";
import { withChannel } from "../support/rabbitmqClient.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcpProxy.ts";

/** A destination with the defaults of the configuration. */
export function destinationAt(
  url: string,
  options: Partial<RabbitmqDestinationConfig> & { readonly timeoutMs?: number; readonly log?: Log } = {},
): Destination {
  const { tools } = brokerTools();
  const { timeoutMs = 30_000, log = tools.log, ...config } = options;
  return createRabbitmqDestination(
    {
      url,
      exchange: "{{ topic }}",
      exchangeType: "topic",
      declareExchange: true,
      routingKeyTemplate: "{{ topic }}",
      deliveryMode: "persistent",
      ...config,
    },
    { ...tools, log, timeoutMs },
  );
}

/** A source with the defaults of the configuration. */
export function sourceAt(
  connectionUrl: string,
  queueName: string,
  intake: Intake,
  options: Partial<RabbitmqSourceConfig> & { readonly log?: Log; readonly refusedRetryMs?: number } = {},
): Source {
  const { tools } = brokerTools();
  const { log = tools.log, refusedRetryMs, ...config } = options;
  return createRabbitmqSource(
    { connectionUrl, queueName, prefetchCount: 10, declareQueue: false, eventTypeFromHeader: false, ...config },
    { ...tools, name: "orders", intake, log, refusedRetryMs },
  );
}

/** The error of a publish that has to fail. */
export async function failure(published: Promise<void>): Promise<PublishError> {
  const error: unknown = await published.then(
    () => new Error("the publish resolved; it had to fail"),
    (reason: unknown) => reason,
  );
  if (error instanceof PublishError) return error;
  throw error;
}

/** Takes all messages from a queue. */
export async function drain(url: string, queue: string): Promise<GetMessage[]> {
  return withChannel(url, async (channel) => {
    const messages: GetMessage[] = [];
    for (;;) {
      const next = await channel.get(queue, { noAck: true });
      if (next === false) return messages;
      messages.push(next);
    }
  });
}

/** What the tests of a `describe` block open at a server; it ends with each test. */
export interface RabbitmqBench {
  /** Does something at the end of the test, before what was asked for earlier. */
  later(cleanup: () => Promise<unknown>): void;
  /** A proxy in front of the server. `url` leads through it. */
  proxy(): Promise<TcpProxy & { readonly url: string }>;
}

/** @param server gives the server to the tests */
export function rabbitmqBench(server: () => RabbitmqAddress): RabbitmqBench {
  let cleanups: (() => Promise<unknown>)[];
  beforeEach(() => {
    cleanups = [];
  });
  afterEach(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup();
  });
  return {
    later: (cleanup) => void cleanups.push(cleanup),
    async proxy() {
      const { host, port, url } = server();
      const proxy = await startTcpProxy({ host, port });
      cleanups.push(() => proxy.close());
      return { ...proxy, url: url.replace(`:${port}`, `:${proxy.port}`) };
    },
  };
}
