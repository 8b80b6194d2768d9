import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../../src/runtime/embeddedPostgres.ts";
import { howToGet, isAvailable, requiredKinds } from "../brokers/availability.ts";
import { lastingPorts } from "../brokers/ports.ts";
import { type NatsAddress, type OwnServer, startNats } from "../brokers/servers.ts";
import type { ConfigTree, Services } from "../service.ts";
import { APPLICATION_SCHEMA } from "./applications.ts";
import { REPLICA_HEADER } from "./arrivals.ts";
import { HOSTILE_SOURCE, HOSTILE_TOPIC, HOSTILE_TRANSFORM, ORDINARY_TRANSFORM } from "./hostileTransforms.ts";
import { JOURNAL_SCHEMA } from "./journal.ts";
import { REPLICAS_PER_ROLE, ROLES, type Role } from "./plan.ts";
import { POISON_SCHEMA } from "./poison.ts";
import { Replica } from "./replica.ts";
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
/** What the replicas use at most, and some: few enough to take them all. */
const MAX_CONNECTIONS = 160;
/** The last replica of each role has a clock that is hours ahead, then hours behind, and jumps from one to the other. */
const WRONG_CLOCK = `${3 * 3600 * 1000},4000`;
const APPLICATION_NAME = "svc-test";

/** A PostgreSQL server of the run's own that can be restarted at the same place. */
export class Database {
  readonly port: number;
  readonly #services: Services;
  readonly #dataDirectory: string;
  #server: EmbeddedPostgres;

  private constructor(services: Services, dataDirectory: string, port: number, server: EmbeddedPostgres) {
    this.#services = services;
    this.#dataDirectory = dataDirectory;
    this.port = port;
    this.#server = server;
  }

  static async start(services: Services): Promise<Database> {
    const dataDirectory = services.folder();
    const [port = 0] = await lastingPorts(1);
    const server = await startServer(services, dataDirectory, port);
    return new Database(services, dataDirectory, port, server);
  }

  get account(): { readonly host: string; readonly name: string; readonly user: string; readonly password: string } {
    const { host, database, user, password } = this.#server;
    return { host, name: database, user, password: password.reveal() };
  }

  stop(mode: "fast" | "immediate"): Promise<void> {
    return this.#server.stop(mode);
  }

  async startAgain(): Promise<void> {
    this.#server = await startServer(this.#services, this.#dataDirectory, this.port);
  }

  /** A connection of the test's own. The caller ends it. */
  async connect(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.#server.url(), application_name: APPLICATION_NAME });
    client.on("error", () => {}); // The server may be stopped meanwhile; the query rejects as well.
    await client.connect();
    return client;
  }

  /** Runs one statement. */
  async query<Row extends object>(sql: string, params: readonly unknown[] = []): Promise<Row[]> {
    const client = await this.connect();
    try {
      return (await client.query(sql, [...params])).rows as Row[];
    } finally {
      await client.end();
    }
  }
}

async function startServer(services: Services, dataDirectory: string, port: number): Promise<EmbeddedPostgres> {
  // Processes die here, and no machine: what is written needs no disk to survive that. Commits wait for the write as ever.
  const settings = { fsync: "off", max_connections: String(MAX_CONNECTIONS) };
  const server = await startEmbeddedPostgres({ dataDirectory, port, settings });
  services.defer(() => server.stop("immediate"));
  return server;
}

/** Everything that a run consists of. */
export interface Fleet {
  readonly database: Database;
  readonly replicas: Readonly<Record<Role, readonly Replica[]>>;
  readonly all: readonly Replica[];
  readonly broker: (OwnServer & NatsAddress) | undefined;
}

/** A NATS server of the run's own, where there can be one. @throws Error when `SVC_TEST_REQUIRE` asks for one that cannot be had */
export async function startBroker(services: Services): Promise<Fleet["broker"]> {
  if (!isAvailable("nats")) {
    if (requiredKinds().has("nats")) throw new Error(howToGet(["nats"]));
    return undefined;
  }
  const broker = await startNats();
  services.defer(() => broker[Symbol.asyncDispose]());
  return broker;
}

export interface FleetOptions {
  readonly services: Services;
  readonly timeline: Timeline;
  readonly broker: Fleet["broker"];
  /** Entries of `destinations`: `http`, and `stream` where there is a broker. */
  readonly destinations: Readonly<Record<string, ConfigTree>>;
  readonly selected: ReadonlySet<FaultName>;
}

/** Starts the replicas of each role over a database whose outbox has a journal. */
export async function startFleet(options: FleetOptions): Promise<Fleet> {
  const { services, timeline, broker, destinations, selected } = options;
  const database = await Database.start(services);
  const { host, name, user, password } = database.account;
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
      [HOSTILE_SOURCE]: { ...source(HOSTILE_SOURCE), transform: HOSTILE_TRANSFORM },
    },
    destinations: Object.fromEntries(
      Object.entries(destinations).map(([each, tree]) => [each, { ...tree, headers: { [REPLICA_HEADER]: replica } }]),
    ),
    routes: [
      ...Object.keys(destinations).map((each) => ({ topicPattern: `orders.${each}`, destination: each })),
      { topicPattern: "orders.transformed", destination: "http", transform: ORDINARY_TRANSFORM },
      { topicPattern: HOSTILE_TOPIC, destination: "http", transform: HOSTILE_TRANSFORM },
    ],
    // No row dies of a run, and a key whose delivery failed goes on soon.
    outbox: {
      claimTimeoutMs: LEASE_MS,
      concurrency: CONCURRENCY,
      maxAttempts: 1000,
      retryBaseDelayMs: 100,
      shutdownTimeoutMs: 10_000,
    },
  });
  const ports = await lastingPorts(ROLES.length * REPLICAS_PER_ROLE);
  const migration = services.configFile(configOf("migration", database.port, ports[0] ?? 0));
  const migrating = services.processes.svc(["migrate", "--config", migration]);
  const { code } = await migrating.exited;
  if (code !== 0) throw new Error(`svc migrate ended with ${code}:\n${migrating.lines.join("\n")}`);
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
        ...(selected.has("wrong clocks") && index === REPLICAS_PER_ROLE - 1
          ? { NODE_OPTIONS: `--import ${CLOCK_SHIFT}`, CHAOS_CLOCK: WRONG_CLOCK }
          : {}),
      },
    });
    services.defer(() => replica.close());
    return replica;
  };
  const startAll = (role: Role, r: number) =>
    Promise.all(
      Array.from({ length: REPLICAS_PER_ROLE }, (_, index) =>
        start(role, index, ports[r * REPLICAS_PER_ROLE + index] ?? 0),
      ),
    );
  const [ingest, relay, poller] = await Promise.all(ROLES.map(startAll));
  const replicas = { ingest: ingest ?? [], relay: relay ?? [], poller: poller ?? [] };
  return { database, replicas, all: Object.values(replicas).flat(), broker };
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
