import type { Destination } from "../../src/ports/destination.ts";
import type { AdapterTools, SourceTools } from "../../src/ports/kinds.ts";
import type { Source } from "../../src/ports/source.ts";
import { startBlackHole } from "../support/blackHole.ts";
import type { OwnServer } from "../support/brokers/index.ts";
import { brokerTools } from "../support/brokerTools.ts";
import { freePort } from "../support/ports.ts";
import type { DestinationFixture } from "./destination.ts";
import type { SourceFixture } from "./source.ts";

/** What the fixtures of all brokers have in common. */

/** Shown by what is made to be refused. */
export const WRONG_PASSWORD = "not-the-svc-secret";

/** Short enough for a test to wait for, in ms. */
const REFUSED_RETRY_MS = 500;

/** Long enough to be out of the way, in ms. */
const LONG_MS = 30_000;

type Broker = OwnServer & { readonly port: number };

/** The port of 127.0.0.1 to which an adapter connects, and the password that it shows there. */
interface Target {
  readonly port: number;
  readonly password: string;
}

export type DestinationEnds = Pick<
  DestinationFixture,
  "create" | "createUnanswered" | "stopReceiver" | "startReceiver" | typeof Symbol.asyncDispose
> &
  Required<Pick<DestinationFixture, "createUnreachable" | "createWithWrongCredentials">>;

/**
 * The destinations of a fixture and their broker. The destinations end with the fixture; the broker runs on, also when a test has stopped it.
 *
 * @param password what the broker asks for
 * @param make a destination of the kind
 */
export async function destinationEnds(
  broker: Broker,
  password: string,
  make: (target: Target & { readonly timeoutMs: number }, tools: AdapterTools) => Destination,
): Promise<DestinationEnds> {
  const blackHole = await startBlackHole();
  const nobody = await freePort();
  const destinations: Destination[] = [];
  let isStopped = false;
  const open = (port: number, timeoutMs: number, shown = password): Destination => {
    const destination = make({ port, password: shown, timeoutMs }, brokerTools().tools);
    destinations.push(destination);
    return destination;
  };
  return {
    create: () => open(broker.port, LONG_MS),
    createUnanswered: (timeoutMs) => open(blackHole.port, timeoutMs),
    createUnreachable: (timeoutMs) => open(nobody, timeoutMs),
    createWithWrongCredentials: () => open(broker.port, LONG_MS, WRONG_PASSWORD),
    async stopReceiver() {
      isStopped = true;
      await broker.stop();
    },
    async startReceiver() {
      await broker.start();
      isStopped = false;
    },
    async [Symbol.asyncDispose]() {
      if (isStopped) await broker.start();
      await Promise.all(destinations.map((destination) => destination.close()));
      await blackHole.close();
    },
  };
}

export type SourceEnds = Pick<
  SourceFixture,
  "create" | "stopBroker" | "startBroker" | "wrongPassword" | typeof Symbol.asyncDispose
>;

/**
 * The sources of a fixture and their broker. The sources end with the fixture.
 *
 * @param password what the broker asks for
 * @param make a source of the kind; without `batchSize`, with what suits the kind
 */
export async function sourceEnds(
  broker: Broker,
  password: string,
  make: (target: Target & { readonly batchSize: number | undefined }, tools: SourceTools) => Source,
): Promise<SourceEnds> {
  const blackHole = await startBlackHole();
  const ports = { broker: broker.port, unanswered: blackHole.port, unreachable: await freePort() };
  const sources: Source[] = [];
  return {
    create(intake, { batchSize, at = "broker", wrongCredentials = false, log } = {}) {
      const { tools } = brokerTools();
      const source = make(
        { port: ports[at], password: wrongCredentials ? WRONG_PASSWORD : password, batchSize },
        { ...tools, ...(log !== undefined && { log }), name: "orders", intake, refusedRetryMs: REFUSED_RETRY_MS },
      );
      sources.push(source);
      return source;
    },
    stopBroker: () => broker.stop(),
    startBroker: () => broker.start(),
    wrongPassword: WRONG_PASSWORD,
    async [Symbol.asyncDispose]() {
      await Promise.all(sources.map((source) => source.stop(new AbortController().signal)));
      await blackHole.close();
    },
  };
}
