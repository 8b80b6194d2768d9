import { type ConnectionOptions, connect, type JetStreamManager, type NatsConnection } from "nats";
import { createNatsDestination } from "../../src/adapters/destinations/nats/index.ts";
import type { NatsDestinationConfig } from "../../src/adapters/destinations/nats/kind.ts";
import { createNatsSource } from "../../src/adapters/sources/nats/index.ts";
import type { NatsSourceConfig } from "../../src/adapters/sources/nats/kind.ts";
import type { PublishError } from "../../src/model/errors.ts";
import type { Destination, OutboundMessage } from "../../src/ports/destination.ts";
import type { Intake, Source } from "../../src/ports/source.ts";
import { message } from "../conformance/destination/bench.ts";
import { unique } from "../support/brokers/index.ts";
import { type LogLine, recordingLog } from "../support/recorders.ts";

export const noSignal = (): AbortSignal => new AbortController().signal;

/** Everything that one test has opened; `close` ends it all. */
export class NatsBench {
  readonly lines: LogLine[];
  readonly #log = recordingLog();
  readonly #closers: (() => Promise<unknown>)[] = [];

  constructor() {
    this.lines = this.#log.lines;
  }

  /** A connection of the test itself. */
  async client(servers: string, options: ConnectionOptions = {}): Promise<NatsConnection> {
    const client = await connect({ servers, reconnect: false, ...options });
    this.#closers.push(() => client.close());
    return client;
  }

  async manager(servers: string, options: ConnectionOptions = {}): Promise<JetStreamManager> {
    return (await this.client(servers, options)).jetstreamManager();
  }

  destination(
    options: Pick<NatsDestinationConfig, "servers"> & Partial<NatsDestinationConfig>,
    random = Math.random,
  ): Destination {
    const destination = createNatsDestination(
      { subject: "{{ topic }}", jetStream: true, timeoutMs: 30_000, ...options },
      this.#tools(random),
    );
    this.#closers.push(() => destination.close());
    return destination;
  }

  source(options: Pick<NatsSourceConfig, "servers" | "stream"> & Partial<NatsSourceConfig>, intake: Intake): Source {
    const source = createNatsSource(
      {
        durable: "svc",
        idempotencyFrom: "body",
        eventTypeFromHeader: false,
        ackWaitMs: 30_000,
        batchSize: 100,
        ...options,
      },
      { ...this.#tools(Math.random), name: "orders", intake },
    );
    this.#closers.push(() => source.stop(noSignal()));
    return source;
  }

  async close(): Promise<void> {
    await Promise.all(this.#closers.splice(0).map((close) => close()));
  }

  #tools(random: () => number) {
    const clock = { now: () => Date.now(), monotonic: () => performance.now() };
    return { log: this.#log.log, clock, random };
  }
}

/** A stream name and a subject of it that nobody else uses. */
export function uniqueStream(): { readonly stream: string; readonly subject: string; readonly subjects: string[] } {
  const stream = unique("ORDERS");
  return { stream, subject: `${stream}.created`, subjects: [`${stream}.>`] };
}

/** Publishes a message to a subject. */
export function publish(
  destination: Destination,
  address: string | null,
  overrides: Partial<OutboundMessage> = {},
): Promise<void> {
  return destination.publish(message({ ...overrides, address }), noSignal());
}

/** The error of a publish that has to fail. */
export async function failure(published: Promise<void>): Promise<PublishError> {
  return published.then(
    () => {
      throw new Error("the publish resolved; it had to fail");
    },
    (error: PublishError) => error,
  );
}
