import type { ConnectionOptions } from "node:tls";
import pg from "pg";
import { StoreError } from "../../../model/errors.ts";
import type { Secret } from "../../../model/secret.ts";
import { toStoreError } from "./errors.ts";

/** How to reach the server. */
export interface PostgresConnection {
  /** Tried in this order, beginning with the one that worked last. */
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly database: string;
  readonly username: string;
  readonly password: Secret;
  /** TLS options, or false for a plain connection (`sslmode`). */
  readonly tls: ConnectionOptions | false;
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

/** A statement with its name for errors and logs. Never prepared by name: a transaction pooler would lose it. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /** Longest run in ms; after it the connection is given up. Default 60 s. */
  readonly timeoutMs?: number;
}

export type Row = Record<string, unknown>;

/** A pool over one or several hosts, whose errors are `StoreError`s that name the statement. */
export class PostgresPool {
  readonly #options: PoolOptions;
  readonly #pool: pg.Pool;
  #host = 0;
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
    const nextHost = () => this.#currentHost();
    // The pool makes its clients itself; this is its only seam for choosing the host at each new connection.
    class HostClient extends pg.Client {
      constructor() {
        super(clientConfig(options, nextHost()));
      }
    }
    this.#pool = new pg.Pool({
      max: options.poolSize,
      connectionTimeoutMillis: options.connectionTimeoutMs,
      idleTimeoutMillis: 60_000,
      Client: HostClient,
      ...(options.primaryOnly ? { verify: refuseStandby } : {}),
    } as pg.PoolConfig);
    // An idle connection that breaks is replaced at its next use; without a listener it would end the process.
    this.#pool.on("error", () => this.#nextHost());
  }

  /** Runs one statement in a transaction of its own. */
  async run(statement: Statement, values: readonly unknown[] = []): Promise<Row[]> {
    for (let tries = 1; ; tries += 1) {
      const client = await this.#connect(statement.name);
      try {
        const result = await client.query(queryConfig(statement, values));
        client.release();
        return result.rows as Row[];
      } catch (error) {
        const failure = toStoreError(statement.name, error);
        client.release(failure.code === "unavailable" ? failure : false);
        // Rolled back as a victim: the same statement is expected to pass the next time.
        if (failure.code !== "contention" || tries >= CONTENTION_TRIES || this.#closed) throw failure;
      }
    }
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
      ...clientConfig(this.#options, this.#currentHost()),
      connectionTimeoutMillis: this.#options.connectionTimeoutMs,
    });
    client.on("error", () => {});
    try {
      await client.connect();
    } catch (error) {
      this.#nextHost();
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
    await this.#pool.end();
  }

  async #connect(name: string): Promise<pg.PoolClient> {
    const hosts = this.#options.hosts.length;
    for (let tried = 1; ; tried += 1) {
      if (this.#closed) throw new StoreError("unavailable", `${name}: the connection pool is closed`);
      try {
        return await this.#pool.connect();
      } catch (error) {
        this.#nextHost();
        if (tried >= hosts) throw toStoreError(name, error);
      }
    }
  }

  #currentHost(): { host: string; port: number } {
    const { hosts } = this.#options;
    return hosts[this.#host % hosts.length] ?? { host: "localhost", port: 5432 };
  }

  #nextHost(): void {
    this.#host = (this.#host + 1) % this.#options.hosts.length;
  }
}

const CONTENTION_TRIES = 4;
const DEFAULT_QUERY_TIMEOUT_MS = 60_000;

function queryConfig(statement: Statement, values: readonly unknown[]): pg.QueryConfig & { query_timeout: number } {
  return {
    text: statement.text,
    values: values as unknown[],
    // A server that hangs (a black-holed connection) must not hold a role for ever.
    query_timeout: statement.timeoutMs ?? DEFAULT_QUERY_TIMEOUT_MS,
  };
}

function clientConfig(options: PostgresConnection, at: { host: string; port: number }): pg.ClientConfig {
  return {
    host: at.host,
    port: at.port,
    database: options.database,
    user: options.username,
    password: options.password.reveal(),
    ssl: options.tls,
    application_name: options.applicationName,
    keepAlive: true,
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
