import { createHash } from "node:crypto";
import type { Socket } from "node:net";
import pg from "pg";
import { StoreError } from "../../../model/errors.ts";
import type { Secret } from "../../../model/secret.ts";
import type { Endpoint } from "./endpoints.ts";
import { toStoreError } from "./errors.ts";
import { type Borrowed, Pipeline } from "./pipeline.ts";

/** How to reach the server. */
export interface PostgresConnection {
  /** Tried in this order, beginning with the one that worked last. */
  readonly endpoints: readonly Endpoint[];
  /** Undefined takes the database that is named like the user. */
  readonly database: string | undefined;
  readonly username: string;
  readonly password: Secret;
  /** True to skip hosts that are standbys (`targetServerType=primary`). */
  readonly primaryOnly: boolean;
  readonly applicationName: string;
}

export interface PoolOptions extends PostgresConnection {
  /** Most connections (`database.poolSize`). */
  readonly poolSize: number;
  /** Longest wait for a connection, in ms (`database.connectionTimeoutMs`). */
  readonly connectionTimeoutMs: number;
}

/** A statement with its name for errors and logs. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /** Longest run in ms; after it the connection is given up. Default 60 s. */
  readonly timeoutMs?: number;
  /** True for a statement that must find its rows by the indexes made for it; see {@link BY_INDEX}. */
  readonly byIndex?: boolean;
  /** True for a short statement that may be sent behind another such one on its connection; see {@link Pipeline}. Not together with `byIndex`. */
  readonly pipelined?: boolean;
}

export type Row = Record<string, unknown>;

/** A pool over one or several endpoints, whose errors are `StoreError`s that name the statement. */
export class PostgresPool {
  readonly #options: PoolOptions;
  readonly #pool: pg.Pool;
  #endpoint = 0;
  #closed = false;
  /** False once a pooler has shown that it hands our connections around without our prepared statements. */
  #prepares = true;
  readonly #clients = new Set<pg.Client>();
  readonly #pipeline = new Pipeline(
    (name) => this.#connect(name),
    () => this.#pool.waitingCount > 0,
  );

  constructor(options: PoolOptions) {
    this.#options = options;
    const endpoint = () => this.#currentEndpoint();
    const clients = this.#clients;
    // The pool makes its clients itself; this is its only seam for choosing the endpoint at each new connection.
    class EndpointClient extends pg.Client {
      constructor() {
        super(clientConfig(options, endpoint()));
        // The pool listens to idle clients only. A connection that breaks between two statements of its borrower makes the next one
        // reject, which is enough; unheard, the event would end the process.
        this.on("error", () => {});
        clients.add(this);
        this.once("end", () => clients.delete(this));
      }
    }
    this.#pool = new pg.Pool({
      max: options.poolSize,
      connectionTimeoutMillis: options.connectionTimeoutMs,
      idleTimeoutMillis: 60_000,
      Client: EndpointClient,
      ...(options.primaryOnly ? { verify: refuseStandby } : {}),
    } as pg.PoolConfig);
    // An idle connection that breaks is replaced at its next use; without a listener it would end the process.
    this.#pool.on("error", () => this.#nextEndpoint());
  }

  /** Runs one statement in a transaction of its own. */
  async run(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    return (await this.#run(statement, values)).rows as Row[];
  }

  /** The same. @returns the number of rows that the statement changed */
  async change(statement: Statement, values: readonly unknown[] = []): Promise<number> {
    return (await this.#run(statement, values)).rowCount ?? 0;
  }

  async #run(statement: Statement, values: readonly unknown[]): Promise<pg.QueryResult> {
    for (let tries = 1; ; tries += 1) {
      const borrowed = await this.#borrow(statement);
      try {
        const result = await execute(borrowed.client, statement, values, this.#prepares);
        borrowed.done();
        return result;
      } catch (error) {
        if (isPreparationLost(error)) {
          // Nothing was executed. Either a transaction pooler has put us on a server connection that does not know our statements, or knows
          // them from somebody else: without preparation every statement works there too. Or a column was altered: a new
          // connection prepares anew.
          if (!isPlanOutdated(error)) this.#prepares = false;
          borrowed.failed(true);
          continue;
        }
        const failure = toStoreError(statement.name, error);
        borrowed.failed(failure.code === "unavailable" ? failure : false);
        // Rolled back as a victim: the same statement is expected to pass the next time.
        if (failure.code !== "contention" || tries >= CONTENTION_TRIES || this.#closed) throw failure;
      }
    }
  }

  async #borrow(statement: Statement): Promise<Borrowed> {
    if (statement.pipelined === true) return await this.#pipeline.borrow(statement.name);
    const client = await this.#connect(statement.name);
    return { client, done: () => client.release(), failed: (broken) => client.release(broken) };
  }

  /** Runs `work` in one transaction on one connection; rolls back when it throws. */
  async transaction<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    const client = await this.#connect(name);
    try {
      await client.query("BEGIN");
      const result = await work(client);
      await client.query("COMMIT");
      client.release();
      return result;
    } catch (error) {
      const rolledBack = await client.query("ROLLBACK").then(
        () => true,
        () => false,
      );
      client.release(!rolledBack);
      throw error instanceof Error && error.name === "ConfigError" ? error : toStoreError(name, error);
    }
  }

  /** A connection of its own outside the pool, for `LISTEN`. The caller ends it. */
  async dedicated(): Promise<pg.Client> {
    const client = new pg.Client({
      ...clientConfig(this.#options, this.#currentEndpoint()),
      connectionTimeoutMillis: this.#options.connectionTimeoutMs,
    });
    client.on("error", () => {});
    try {
      await client.connect();
    } catch (error) {
      this.#nextEndpoint();
      await client.end().catch(() => {});
      throw toStoreError("connect", error);
    }
    return client;
  }

  usage(): { used: number; idle: number; waiting: number } {
    const { totalCount, idleCount, waitingCount } = this.#pool;
    return { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    // A server that hangs answers no goodbye either, and borrowed connections wait for their statements.
    const impatience = setTimeout(() => {
      for (const client of this.#clients) socketOf(client).destroy();
    }, CLOSE_TIMEOUT_MS);
    try {
      await this.#pool.end();
    } finally {
      clearTimeout(impatience);
    }
  }

  async #connect(name: string): Promise<pg.PoolClient> {
    const endpoints = this.#options.endpoints.length;
    for (let tried = 1; ; tried += 1) {
      if (this.#closed) throw new StoreError("unavailable", `${name}: the connection pool is closed`);
      try {
        return await this.#pool.connect();
      } catch (error) {
        this.#nextEndpoint();
        if (tried >= endpoints) throw toStoreError(name, error);
      }
    }
  }

  #currentEndpoint(): Endpoint {
    const endpoint = this.#options.endpoints[this.#endpoint];
    if (endpoint === undefined) throw new Error("a pool needs at least one endpoint");
    return endpoint;
  }

  #nextEndpoint(): void {
    this.#endpoint = (this.#endpoint + 1) % this.#options.endpoints.length;
  }
}

/** The driver has no public way to break a connection off, nor to gather what it writes. */
function socketOf(client: pg.ClientBase): Pick<Socket, "destroy" | "cork" | "uncork"> {
  return (client as unknown as { connection: { stream: Socket } }).connection.stream;
}

const CLOSE_TIMEOUT_MS = 3000;
const CONTENTION_TRIES = 4;
const DEFAULT_QUERY_TIMEOUT_MS = 60_000;

/**
 * The planner goes by statistics, and those of a queue are always old: a table that was analysed when it was empty is thought to have few
 * pending rows, and is then read whole, or by a bitmap of every pending row, for each batch of a hundred. Measured with a
 * backlog that had come in since the last analysis: 51 ms instead of 1 ms for one part of a relay pass. With the other ways
 * switched off a claim reads its index in order and stops at its limit, whatever the statistics say. Sorts are discouraged for the same reason:
 * reading another index whole and sorting it took 195 ms for the bound of a retention sweep, where statistics knew of no finished row. Where a sort
 * cannot be avoided its penalty would make the server compile the statement, which takes longer than running it.
 */
const BY_INDEX = [
  "BEGIN",
  "SET LOCAL enable_seqscan = off",
  "SET LOCAL enable_bitmapscan = off",
  "SET LOCAL enable_sort = off",
  "SET LOCAL jit = off",
].join("; ");

/**
 * Runs one statement. The settings of a `byIndex` statement live in its own transaction, so that they also work behind a transaction pooler
 * and leak to nobody; the three messages go out together (pipeline mode) and cost one round trip.
 */
async function execute(
  client: pg.PoolClient,
  statement: Statement,
  values: readonly unknown[],
  prepare: boolean,
): Promise<pg.QueryResult> {
  const query = queryConfig(statement, values, prepare);
  if (statement.byIndex !== true) return await client.query(query);
  const socket = socketOf(client);
  // Together in one write: each of its own wakes the server.
  socket.cork();
  const sent = [
    client.query(BY_INDEX),
    client.query(query),
    // After a failed statement this is a rollback.
    client.query("COMMIT"),
  ] as const;
  socket.uncork();
  const [begun, result, committed] = await Promise.allSettled(sent);
  if (begun.status === "rejected") throw begun.reason;
  if (result.status === "rejected") throw result.reason;
  if (committed.status === "rejected") throw committed.reason;
  return result.value;
}

function queryConfig(
  statement: Statement,
  values: readonly unknown[],
  prepare: boolean,
): pg.QueryConfig & { query_timeout: number } {
  return {
    ...(prepare ? { name: preparedName(statement.text) } : {}),
    text: statement.text,
    values: values as unknown[],
    // A server that hangs (a black-holed connection) must not hold a role for ever.
    query_timeout: statement.timeoutMs ?? DEFAULT_QUERY_TIMEOUT_MS,
  };
}

const preparedNames = new Map<string, string>();

/**
 * The name under which a statement is prepared, so that it is parsed and planned once a connection: half of what a small batch costs. The
 * name is a digest of the text: whoever has prepared this name on a connection that a pooler shares has prepared the same statement.
 */
function preparedName(text: string): string {
  let name = preparedNames.get(text);
  if (name === undefined) {
    name = `svc_${createHash("sha256").update(text).digest("hex").slice(0, 32)}`;
    preparedNames.set(text, name);
  }
  return name;
}

/** 26000: the prepared statement does not exist; 42P05: it exists already. */
function isPreparationLost(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === "26000" || code === "42P05" || isPlanOutdated(error);
}

/** "cached plan must not change result type": a column of the table was altered. */
function isPlanOutdated(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: unknown };
  return code === "0A000" && /cached plan/.test(String(message));
}

function clientConfig(options: PostgresConnection, at: Endpoint): pg.ClientConfig {
  return {
    host: at.host,
    port: at.port,
    ...(options.database === undefined ? {} : { database: options.database }),
    user: options.username,
    password: options.password.reveal(),
    ssl: at.tls,
    application_name: options.applicationName,
    keepAlive: true,
    pipeline: true,
    keepAliveInitialDelayMillis: 10_000,
  };
}

function refuseStandby(client: pg.PoolClient, done: (error?: Error) => void): void {
  client.query("SHOW transaction_read_only").then(
    (result) => {
      const readOnly = (result.rows[0] as { transaction_read_only?: string } | undefined)?.transaction_read_only;
      done(
        readOnly === "on" ? new Error("this host is a standby, and targetServerType=primary is asked for") : undefined,
      );
    },
    (error: Error) => done(error),
  );
}
