import { readFileSync } from "node:fs";
import { afterEach, beforeEach } from "@jest/globals";
import {
  createHttpDestination,
  type HttpDestinationEnvironment,
} from "../../../../../src/adapters/destinations/http/index.ts";
import type { HttpDestinationConfig } from "../../../../../src/adapters/destinations/http/kind.ts";
import { KnownSecrets } from "../../../../../src/core/redaction/redact.ts";
import type { PublishError } from "../../../../../src/model/errors.ts";
import type { Destination, OutboundMessage } from "../../../../../src/ports/destination.ts";
import { message } from "../../../../conformance/destination.ts";
import { HTTP_DEFAULTS } from "../../../../support/httpDefaults.ts";
import { failOnLeaks } from "../../../../support/leaks.ts";
import { Receiver } from "../../../../support/receiver.ts";
import { ManualClock, recordingMetrics } from "../../../../support/recorders.ts";

export const never = new AbortController().signal;

/** Destinations of one test, closed in its end. */
export class Destinations {
  readonly #open: Destination[] = [];

  create(
    options: Partial<HttpDestinationConfig> & { readonly baseUrl: string },
    environment: Partial<HttpDestinationEnvironment> = {},
  ) {
    const { metrics, calls } = recordingMetrics();
    const clock = new ManualClock();
    const destination = createHttpDestination(
      { ...HTTP_DEFAULTS, ...options },
      {
        maxErrorBodyBytes: 2048,
        blockPrivateAddresses: false,
        connections: 256,
        clock,
        metrics,
        secrets: new KnownSecrets(),
        ...environment,
      },
    );
    this.#open.push(destination);
    const publish = (overrides: Partial<OutboundMessage> = {}, signal: AbortSignal = never) =>
      destination.publish(message(overrides), signal);
    /** The error of a publish that has to fail. */
    const failure = async (overrides: Partial<OutboundMessage> = {}): Promise<PublishError> => {
      try {
        await publish(overrides);
      } catch (error) {
        return error as PublishError;
      }
      throw new Error("the publish did not fail");
    };
    return { destination, publish, failure, clock, calls };
  }

  async close(): Promise<void> {
    await Promise.all(this.#open.splice(0).map((destination) => destination.close()));
  }
}

/** A file of test/support/tls. */
export const pem = (name: string): string =>
  readFileSync(new URL(`../../../../support/tls/${name}.pem`, import.meta.url), "utf8");

/** Destinations, and servers that a test adds to the list; both are closed in its end. */
export function withServers() {
  const destinations = new Destinations();
  const servers: { close(): unknown; closeAllConnections(): void }[] = [];
  afterEach(async () => {
    await destinations.close();
    for (const server of servers.splice(0)) {
      server.close();
      server.closeAllConnections();
    }
  });
  failOnLeaks();
  return { destinations, servers };
}

/** Gives each test of the file a receiver, closed in its end like the destinations: nothing may be left open. */
export function withReceiver(give: (receiver: Receiver) => void): Destinations {
  const destinations = new Destinations();
  let receiver: Receiver;
  beforeEach(async () => {
    receiver = await Receiver.start();
    give(receiver);
  });
  afterEach(async () => {
    await destinations.close();
    await receiver.close();
  });
  failOnLeaks();
  return destinations;
}
