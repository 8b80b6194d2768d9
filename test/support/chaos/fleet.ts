import { howToGet, isAvailable, requiredKinds } from "../brokers/availability.ts";
import { lastingPorts } from "../brokers/ports.ts";
import { type NatsAddress, type OwnServer, startNats } from "../brokers/servers.ts";
import type { ConfigTree, Services } from "../service.ts";
import { APPLICATION_SCHEMA } from "./applications.ts";
import { REPLICA_HEADER } from "./arrivals.ts";
import { Database } from "./database.ts";
import { JOURNAL_SCHEMA } from "./journal.ts";
import { LIST_ROUTES } from "./lists.ts";
import { PARKING_TOPIC, UNWANTED_TOPIC } from "./operator.ts";
import { ROLES, type Role } from "./plan.ts";
import { POISON_SCHEMA } from "./poison.ts";
import { ADMIN_TOKEN, Replica } from "./replica.ts";
import type { FaultName } from "./selection.ts";
import type { Timeline } from "./timeline.ts";

/** Ceiling and lease of a claim: short, so that outliving it is quick. */
export const LEASE_MS = 5000;
/** Deliveries of a poller at a time. */
export const CONCURRENCY = 8;
/** The source of the senders' messages, and its path. */
export const SOURCE = "orders";
export const TRANSFORMED_SOURCE = "transformed";
const POOL_SIZE = 4;
/** A transform of ordinary messages. */
const ORDINARY_TRANSFORM: ConfigTree = { expression: '$merge([$, {"transformed": true}])', timeoutMs: 5000 };
/** The last replica of each role has a clock that is hours ahead, then hours behind, and jumps from one to the other. */
const WRONG_CLOCK = `${3 * 3600 * 1000},4000`;

/** Everything that a run consists of. */
export interface Fleet {
  readonly database: Database;
  /** Runs `svc migrate`. @throws Error with what it printed when it fails */
  readonly migrate: () => Promise<void>;
  readonly replicas: Readonly<Record<Role, readonly Replica[]>>;
  readonly all: readonly Replica[];
  readonly broker: (OwnServer & NatsAddress) | undefined;
  readonly outage: Outage;
}

/** A NATS server of the run's own, if NATS is installed. @throws Error if it is not and `SVC_TEST_REQUIRE` names it */
export async function startBroker(services: Services): Promise<Fleet["broker"]> {
  if (!isAvailable("nats")) {
    if (requiredKinds().has("nats")) throw new Error(howToGet(["nats"]));
    return undefined;
  }
  const broker = await startNats();
  services.defer(() => broker[Symbol.asyncDispose]());
  return broker;
}

/** Whether the HTTP receiver refuses everything just now. */
export interface Outage {
  isOn: boolean;
}

export interface FleetOptions {
  readonly services: Services;
  readonly timeline: Timeline;
  readonly broker: Fleet["broker"];
  /** Entries of `destinations`: `http`, those of lists, `stream` if there is a broker, and `parking` if rows are parked. */
  readonly destinations: Readonly<Record<string, ConfigTree>>;
  readonly outage: Outage;
  /** How many of each role. */
  readonly perRole: number;
  readonly selected: ReadonlySet<FaultName>;
}

/** Starts the replicas of each role over a database whose outbox has a journal. */
export async function startFleet(options: FleetOptions): Promise<Fleet> {
  const { services, timeline, broker, destinations, outage, perRole, selected } = options;
  const database = await Database.start(services, selected.has("clock"));
  const { host, name, user, password } = database.account;
  const transformedGoes =
    "parking" in destinations ? { destination: "parking", onExhausted: "park" } : { destination: "http" };
  const configOf = (replica: string, databasePort: number, port: number): ConfigTree => ({
    server: { httpPort: port },
    database: {
      url: `jdbc:postgresql://127.0.0.1:${databasePort}/${name}?ApplicationName=${replica}`,
      username: user,
      password,
      poolSize: POOL_SIZE,
      connectionTimeoutMs: 5000,
    },
    sources: {
      [SOURCE]: source(SOURCE),
      [TRANSFORMED_SOURCE]: { ...source(TRANSFORMED_SOURCE), transform: ORDINARY_TRANSFORM },
    },
    destinations: Object.fromEntries(
      Object.entries(destinations).map(([each, tree]) => [each, { ...tree, headers: { [REPLICA_HEADER]: replica } }]),
    ),
    routes: [
      ...Object.keys(destinations).map((each) => ({ topicPattern: `orders.${each}`, destination: each })),
      ...LIST_ROUTES,
      { topicPattern: PARKING_TOPIC, transform: ORDINARY_TRANSFORM, ...transformedGoes },
      ...("parking" in destinations ? [{ topicPattern: UNWANTED_TOPIC, ...transformedGoes }] : []),
    ],
    admin: { enabled: true, auth: { type: "bearer", token: ADMIN_TOKEN } },
    // No row dies of a run, and a key whose delivery failed continues soon.
    outbox: {
      claimTimeoutMs: LEASE_MS,
      concurrency: CONCURRENCY,
      maxAttempts: 1000,
      retryBaseDelayMs: 100,
      shutdownTimeoutMs: 10_000,
    },
  });
  const ports = await lastingPorts(ROLES.length * perRole);
  const migration = services.configFile(configOf("migration", database.port, ports[0] ?? 0));
  const migrate = async () => {
    const migrating = services.processes.svc(["migrate", "--config", migration]);
    const { code } = await migrating.exited;
    if (code !== 0) throw new Error(`svc migrate ended with ${code}:\n${migrating.lines.join("\n")}`);
  };
  await migrate();
  await database.query(database.trueTimeSchema);
  await database.query(JOURNAL_SCHEMA);
  await database.query(APPLICATION_SCHEMA);
  await database.query(POISON_SCHEMA);

  const start = async (role: Role, index: number, port: number) => {
    const replica = await Replica.start({
      role,
      index,
      port,
      processes: services.processes,
      database: { host, port: database.port },
      timeline,
      configure: (own, databasePort) => services.configFile(configOf(own, databasePort, port)),
      env: {
        LOG_LEVEL: "warn",
        ...(selected.has("wrong clocks") && index === perRole - 1
          ? { NODE_OPTIONS: `--import ${CLOCK_SHIFT}`, CHAOS_CLOCK: WRONG_CLOCK }
          : {}),
      },
    });
    services.defer(() => replica.close());
    return replica;
  };
  const startAll = (role: Role, r: number) =>
    Promise.all(Array.from({ length: perRole }, (_, index) => start(role, index, ports[r * perRole + index] ?? 0)));
  const [ingest, relay, poller] = await Promise.all(ROLES.map(startAll));
  const replicas = { ingest: ingest ?? [], relay: relay ?? [], poller: poller ?? [] };
  return { database, migrate, replicas, all: Object.values(replicas).flat(), broker, outage };
}

function source(name: string): ConfigTree {
  return {
    path: `/${name}`,
    idempotencyKeyPath: "$.id",
    aggregateIdPath: "$.key",
    eventTypePath: "$.type",
    topic: "orders.{{ eventType }}",
  };
}

const CLOCK_SHIFT = new URL("clockShift.mjs", import.meta.url).href;
