import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../../src/dev/embeddedPostgres.ts";
import { lastingPorts } from "../brokers/ports.ts";
import type { Services } from "../service.ts";
import { DatabaseClock, TRUE_TIME_SCHEMA } from "./databaseClock.ts";
import { type JournalEntry, journalSince } from "./journal.ts";

/** What the replicas and the applications use at most, and some: few enough to take them all. */
const MAX_CONNECTIONS = 160;
const APPLICATION_NAME = "svc-test";

type Query = <Row extends object>(sql: string, params?: readonly unknown[]) => Promise<Row[]>;

/** A copy of the data, as a backup is. */
export interface Copy {
  readonly dataDirectory: string;
  /** When it was made, in ms since the epoch: nothing was committed at that time. */
  readonly at: number;
}

/** A PostgreSQL server of the run's own that can be restarted at the same place, put back to a copy of its data, and whose clock can be stepped. */
export class Database {
  readonly port: number;
  /** Undefined if nothing can step it. */
  readonly clock: DatabaseClock | undefined;
  /** How often it was put back to a copy: what is counted in the database begins again then. */
  epoch = 0;
  readonly #services: Services;
  #dataDirectory: string;
  #server: EmbeddedPostgres;

  private constructor(
    services: Services,
    dataDirectory: string,
    port: number,
    server: EmbeddedPostgres,
    clock: DatabaseClock | undefined,
  ) {
    this.#services = services;
    this.#dataDirectory = dataDirectory;
    this.port = port;
    this.#server = server;
    this.clock = clock;
  }

  /** @param withClock whether its clock can be stepped, if the means are there */
  static async start(services: Services, withClock: boolean): Promise<Database> {
    const dataDirectory = services.folder();
    const [port = 0] = await lastingPorts(1);
    const clock = withClock ? DatabaseClock.inFolder(services.folder()) : undefined;
    const server = await startServer(services, dataDirectory, port, clock);
    return new Database(services, dataDirectory, port, server, clock);
  }

  get account(): { readonly host: string; readonly name: string; readonly user: string; readonly password: string } {
    const { host, database, user, password } = this.#server;
    return { host, name: database, user, password: password.reveal() };
  }

  /** What {@link JOURNAL_SCHEMA} needs. */
  get trueTimeSchema(): string {
    return this.clock?.trueTimeSchema ?? TRUE_TIME_SCHEMA;
  }

  stop(mode: "fast" | "immediate"): Promise<void> {
    return this.#server.stop(mode);
  }

  async startAgain(): Promise<void> {
    this.#server = await startServer(this.#services, this.#dataDirectory, this.port, this.clock);
  }

  /** Stops, copies the data, and starts again. */
  async copy(): Promise<Copy> {
    const dataDirectory = this.#services.folder();
    await this.stop("fast");
    await promisify(execFile)("cp", ["-a", path.join(this.#dataDirectory, "data"), path.join(dataDirectory, "data")]);
    const at = Date.now();
    await this.startAgain();
    return { dataDirectory, at };
  }

  /**
   * Stops, and starts again with a copy. The copy cannot be used a second time.
   *
   * @returns what the journal said that the copy does not know
   */
  async restore(copy: Copy): Promise<readonly JournalEntry[]> {
    await this.stop("fast");
    // Where nobody else looks for it.
    const [port = 0] = await lastingPorts(1);
    const old = await startServer(this.#services, this.#dataDirectory, port, this.clock);
    const lost = await journalSince((sql, params) => queryOnce(old, sql, params), copy.at);
    await old.stop("immediate");
    await promisify(execFile)("rm", ["-rf", path.join(this.#dataDirectory, "data")]);
    this.#dataDirectory = copy.dataDirectory;
    this.epoch += 1;
    await this.startAgain();
    return lost;
  }

  /** A connection of the test's own. The caller ends it. */
  connect(): Promise<pg.Client> {
    return connectTo(this.#server);
  }

  /** Runs one statement. */
  query: Query = (sql, params) => queryOnce(this.#server, sql, params);
}

async function connectTo(server: EmbeddedPostgres): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server.url(), application_name: APPLICATION_NAME });
  client.on("error", () => {}); // The server may be stopped meanwhile; the query rejects as well.
  await client.connect();
  return client;
}

async function queryOnce<Row extends object>(
  server: EmbeddedPostgres,
  sql: string,
  params: readonly unknown[] = [],
): Promise<Row[]> {
  const client = await connectTo(server);
  try {
    return (await client.query(sql, [...params])).rows as Row[];
  } finally {
    await client.end();
  }
}

async function startServer(
  services: Services,
  dataDirectory: string,
  port: number,
  clock: DatabaseClock | undefined,
): Promise<EmbeddedPostgres> {
  // Processes die here, and no machine: what is written needs no disk to survive that. Commits wait for the write as ever.
  const settings = { fsync: "off", max_connections: String(MAX_CONNECTIONS) };
  const environment = clock?.environment ?? {};
  const server = await startEmbeddedPostgres({ dataDirectory, port, settings, environment });
  services.defer(() => server.stop("immediate"));
  return server;
}
