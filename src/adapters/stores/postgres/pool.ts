import pg from "pg";
import { StoreError } from "../../../model/errors.ts";
import type { Secret } from "../../../model/secret.ts";
import { atMost } from "../../../time/wait.ts";
import { ASK_EVERY_MS, whileServed } from "../sql/readiness.ts";
import { Reserve } from "../sql/reserve.ts";
import type { Row, StatementRunner, Values } from "../sql/rows.ts";
import { type Endpoint, EndpointChoice } from "./endpoints.ts";
import { hasGivenUp, isEnded, isFull, isPlanOutdated, isPreparationLost, isReadOnly, toStoreError } from "./errors.ts";
import { type Borrowed, Pipeline } from "./pipeline.ts";
import { execute, READ_COMMITTED, runIn, type Statement, socketOf, valuesInOrder } from "./statement.ts";
import { Turns } from "./turns.ts";

interface PostgresConnection {
  /** Tried in this order, from the one that worked last. Of several hosts those that take no writes are skipped. */
  readonly endpoints: readonly Endpoint[];
  /** Undefined takes the database that is named like the user. */
  readonly database: string | undefined;
  readonly username: string;
  readonly password: Secret;
  /** True to refuse a single host too while it is a standby (`targetServerType=primary`). */
  readonly primaryOnly: boolean;
  readonly applicationName: string;
}

export interface PoolOptions extends PostgresConnection {
  readonly poolSize: number;
  /** Longest wait for a connection, in ms (`database.connectionTimeoutMs`). */
  readonly connectionTimeoutMs: number;
}

/** A pool over one or several endpoints, whose errors are `StoreError`s that name the statement. */
export class PostgresPool implements StatementRunner<Statement> {
  readonly #options: PoolOptions;
  readonly #pool: pg.Pool;
  readonly #choice: EndpointChoice;
  #closed = false;
  /** False once a pooler has shared our connections without our prepared statements. */
  #prepares = true;
  readonly #clients = new Map<pg.ClientBase, Endpoint>();
  #lostConnections = 0;
  /** Connections to a server that takes no writes. */
  readonly #readOnly = new WeakSet<pg.ClientBase>();
  readonly #refusesStandbys: boolean;
  readonly #reserve: Reserve;
  readonly #turns = new Turns();
  readonly #pipeline = new Pipeline(
    (name) => this.#connect(name),
    () => this.#pool.waitingCount > 0,
  );

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#reserve = new Reserve(options.poolSize, options.connectionTimeoutMs);
    const hosts = new Set(options.endpoints.map(({ host, port }) => `${host}:${port}`));
    this.#refusesStandbys = options.primaryOnly || hosts.size > 1;
    const choice = new EndpointChoice(options.endpoints);
    this.#choice = choice;
    const clients = this.#clients;
    const lost = () => this.#countLoss();
    // The pool makes its clients itself; this is its only seam for choosing the endpoint at each new connection.
    class EndpointClient extends pg.Client {
      constructor() {
        const endpoint = choice.current;
        super(clientConfig(options, endpoint));
        // The pool listens to idle clients only. Without a listener, a connection that breaks between two statements
        // would end the process.
        this.on("error", lost);
        clients.set(this, endpoint);
        this.once("end", () => clients.delete(this));
      }
    }
    this.#pool = new pg.Pool({
      max: options.poolSize,
      connectionTimeoutMillis: options.connectionTimeoutMs,
      idleTimeoutMillis: 60_000,
      Client: EndpointClient,
      ...(this.#refusesStandbys ? { verify: (client, done) => this.#verify(client).then(() => done(), done) } : {}),
    } as pg.PoolConfig);
    // An idle connection that breaks is replaced at its next use; without a listener it would end the process. Its host
    // goes first then: a former primary may take writes again.
    this.#pool.on("error", () => {});
  }

  /** Connections lost, or not made, so far: each may hide another database, or an earlier state. */
  get lostConnections(): number {
    return this.#lostConnections;
  }

  async run(statement: Statement, values: Values = {}): Promise<readonly Row[]> {
    return (await this.#reserved(statement, values)).rows as Row[];
  }

  async runAll(statement: Statement, values: Values = {}): Promise<readonly (readonly Row[])[]> {
    return [await this.run(statement, values)];
  }

  /** Runs one statement. @returns the number of rows that it changed */
  async change(statement: Statement, values: Values = {}): Promise<number> {
    return (await this.#reserved(statement, values)).rowCount ?? 0;
  }

  #reserved(statement: Statement, values: Values): Promise<pg.QueryResult> {
    return this.#reserve.run(statement.name, () => this.#run(statement, values));
  }

  async #run(statement: Statement, values: Values): Promise<pg.QueryResult> {
    const ordered = valuesInOrder(statement, values);
    for (let tries = 1; ; tries += 1) {
      const borrowed = await this.#borrow(statement);
      try {
        const result = await execute(borrowed.client, statement, ordered, this.#prepares);
        borrowed.done();
        return result;
      } catch (error) {
        if (isPreparationLost(error)) {
          // Nothing was executed. Either a transaction pooler switched to a server connection that lacks our
          // statements, or has another client's: unprepared statements work there. Or a column was altered: a new
          // connection prepares anew.
          if (!isPlanOutdated(error)) this.#prepares = false;
          borrowed.failed(true);
          continue;
        }
        const failure = toStoreError(statement.name, error);
        if (failure.code === "unavailable") this.#countLoss();
        if (isReadOnly(error)) this.#leaveReadOnly(borrowed.client);
        borrowed.failed(failure.code === "unavailable" ? failure : false);
        // Nothing was executed, and the next connection may reach the primary.
        if (isReadOnly(error) && tries === 1 && !this.#closed) continue;
        // It has waited its longest.
        if (statement.byIndex === true && hasGivenUp(error)) throw failure;
        // Rolled back as a victim: the same statement is expected to pass the next time.
        const isVictim = failure.code === "contention" || failure.code === "busy";
        if (!isVictim || tries >= CONTENTION_TRIES || this.#closed) throw failure;
      }
    }
  }

  async #borrow(statement: Statement): Promise<Borrowed> {
    if (statement.isPipelined === true) return await this.#pipeline.borrow(statement.name);
    const ended = statement.takesTurns === true ? await this.#turns.take() : undefined;
    const client = await this.#connect(statement.name).catch((error: unknown) => {
      ended?.();
      throw error;
    });
    const release = (broken: Error | boolean) => {
      client.release(broken);
      ended?.();
    };
    return { client, done: () => release(false), failed: release };
  }

  /**
   * Runs `work` in one transaction on one connection; rolls back when it throws. It may take any time while the server
   * works on it.
   *
   * @param askEveryMs time between two questions whether the server does, in ms
   */
  async transaction<T>(
    name: string,
    work: (client: pg.ClientBase) => Promise<T>,
    askEveryMs = ASK_EVERY_MS,
  ): Promise<T> {
    return await this.#reserve.run(name, () => this.#transaction(name, work, askEveryMs));
  }

  async #transaction<T>(name: string, work: (client: pg.ClientBase) => Promise<T>, askEveryMs: number): Promise<T> {
    const client = await this.#connect(name);
    const backend: Backend = { pid: undefined };
    const run = async (): Promise<T> => {
      await client.query(READ_COMMITTED);
      backend.pid = await backendOf(client);
      const result = await work(client);
      await client.query("COMMIT");
      return result;
    };
    const hangUp = () => socketOf(client).destroy();
    try {
      const result = await whileServed(run(), () => this.#checkWorking(backend), hangUp, askEveryMs);
      client.release();
      return result;
    } catch (error) {
      if (isReadOnly(error)) {
        this.#leaveReadOnly(client);
        client.release(true);
        throw toStoreError(name, error);
      }
      const rollback = { text: "ROLLBACK", query_timeout: ROLLBACK_TIMEOUT_MS } as pg.QueryConfig;
      const rolledBack = await client.query(rollback).then(
        () => true,
        () => false,
      );
      client.release(!rolledBack);
      throw error instanceof Error && error.name === "ConfigError" ? error : toStoreError(name, error);
    }
  }

  async #checkWorking(backend: Backend): Promise<void> {
    const timeoutMs = Math.min(this.#options.connectionTimeoutMs || ASK_TIMEOUT_MS, ASK_TIMEOUT_MS);
    const observer = this.#client(timeoutMs);
    try {
      await observer.connect();
      await checkWorking(observer, backend);
    } catch (error) {
      // A server that is full did answer.
      if (!isFull(error)) throw error;
    } finally {
      await atMost(CLOSE_TIMEOUT_MS, observer.end());
      socketOf(observer).destroy();
    }
  }

  /** As {@link transaction}, rolled back at its end; includes whatever the owner checks at the commit. */
  async trial<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    const rolledBack = new StoreError("other", `${name}: rolled back`);
    let result: Promise<T> | undefined;
    try {
      return await this.transaction(name, async (client) => {
        result = work(client);
        await result;
        await client.query("SET CONSTRAINTS ALL IMMEDIATE");
        throw rolledBack;
      });
    } catch (error) {
      if (error !== rolledBack || result === undefined) throw error;
      return await result;
    }
  }

  async runAndRollBack(statement: Statement, values: Values): Promise<void> {
    await this.trial(statement.name, (client) => runIn(client, statement, values));
  }

  /** A connection of its own outside the pool, for `LISTEN`. The caller ends it. */
  async dedicated(): Promise<pg.Client> {
    const failed = this.#choice.attempt();
    const client = this.#client(this.#options.connectionTimeoutMs);
    try {
      await client.connect();
      if (this.#refusesStandbys) await refuseStandby(client);
    } catch (error) {
      this.#countLoss();
      if (!isEnded(error)) failed();
      await client.end().catch(() => {});
      throw toStoreError("connect", error);
    }
    return client;
  }

  #client(connectionTimeoutMs: number): pg.Client {
    const client = new pg.Client({
      ...clientConfig(this.#options, this.#choice.current),
      connectionTimeoutMillis: connectionTimeoutMs,
    });
    client.on("error", () => this.#countLoss());
    return client;
  }

  usage(): { used: number; idle: number; waiting: number } {
    const { totalCount, idleCount, waitingCount } = this.#pool;
    return { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount + this.#reserve.waiting };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const ended = this.#pool.end();
    // A server that hangs does not answer, and borrowed connections wait for their statements.
    await atMost(CLOSE_TIMEOUT_MS, ended);
    for (const client of this.#clients.keys()) socketOf(client).destroy();
    await ended;
  }

  async #connect(name: string): Promise<pg.PoolClient> {
    let tries = this.#choice.count;
    for (let tried = 1; ; tried += 1) {
      if (this.#closed) throw new StoreError("unavailable", `${name}: the connection pool is closed`);
      const failed = this.#choice.attempt();
      try {
        return await this.#writable();
      } catch (error) {
        this.#countLoss();
        // Once more at the same host: of several the next one may be a former primary that takes writes again.
        if (isEnded(error) && tries > 1 && tries === this.#choice.count) tries += 1;
        else failed();
        if (tried >= tries) throw toStoreError(name, error);
      }
    }
  }

  async #verify(client: pg.ClientBase): Promise<void> {
    await refuseStandby(client);
    const endpoint = this.#clients.get(client);
    if (endpoint !== undefined) this.#choice.works(endpoint);
  }

  #countLoss(): void {
    this.#lostConnections += 1;
  }

  async #writable(): Promise<pg.PoolClient> {
    for (;;) {
      const client = await this.#pool.connect();
      if (!this.#readOnly.has(client)) return client;
      client.release(true);
    }
  }

  /** A server takes no writes: it is a standby, or a former primary. */
  #leaveReadOnly(client: pg.ClientBase): void {
    const endpoint = this.#clients.get(client);
    if (endpoint === undefined || this.#readOnly.has(client)) return;
    for (const [each, its] of this.#clients) if (its === endpoint) this.#readOnly.add(each);
    this.#choice.leave(endpoint);
  }
}

const CLOSE_TIMEOUT_MS = 3000;
const CONTENTION_TRIES = 4;
const ASK_TIMEOUT_MS = 3000;
const ROLLBACK_TIMEOUT_MS = 3000;

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

async function refuseStandby(client: pg.ClientBase): Promise<void> {
  const show = { text: "SHOW transaction_read_only", query_timeout: ASK_TIMEOUT_MS } as pg.QueryConfig;
  const { rows } = await client.query(show);
  if ((rows[0] as { transaction_read_only?: string } | undefined)?.transaction_read_only !== "on") return;
  throw new Error(
    "this host takes no writes: it is a standby, or default_transaction_read_only is on for this user or database",
  );
}

interface Backend {
  /** Undefined until the server has answered. */
  pid: number | undefined;
}

/** The server process of a connection; behind a pooler valid until the end of the transaction. */
async function backendOf(client: pg.ClientBase): Promise<number> {
  const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
  return (rows[0] as { pid: number }).pid;
}

/**
 * Checks over another connection whether a server process still works for its client.
 *
 * @throws StoreError `unavailable` when it is gone or waits for its client; what the driver throws without an answer
 */
async function checkWorking(observer: pg.Client, { pid }: Backend): Promise<void> {
  if (pid === undefined) throw lost("the server has not answered on this connection");
  const { rows } = await observer.query({
    text: BACKEND_STATE,
    values: [pid],
    query_timeout: ASK_TIMEOUT_MS,
  } as pg.QueryConfig);
  const [row] = rows as { gone: boolean; idle: boolean | null }[];
  if (row?.gone) throw lost("its server process is gone");
  if (row?.idle) throw lost("the server waits for the next statement: an answer was lost on the way");
}

function lost(reason: string): StoreError {
  return new StoreError("unavailable", `the connection is given up: ${reason}`);
}

/** A standby, to which a pooler may send the query, does not know the process. */
const BACKEND_STATE = `
SELECT a.pid IS NULL AND NOT pg_is_in_recovery() AS gone,
  a.state LIKE 'idle%' AND a.state_change < clock_timestamp() - interval '3 seconds' AS idle
FROM (SELECT $1::int AS pid) asked LEFT JOIN pg_stat_activity a USING (pid)`;
