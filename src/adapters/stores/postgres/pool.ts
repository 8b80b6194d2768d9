import pg from "pg";
import { StoreError } from "../../../model/errors.ts";
import type { Secret } from "../../../model/secret.ts";
import type { Log } from "../../../ports/runtime.ts";
import { atMost } from "../../../time/wait.ts";
import { Reserve } from "../sql/reserve.ts";
import { isVictim, retried } from "../sql/retries.ts";
import type { Row, StatementRunner, Values } from "../sql/rows.ts";
import { type Endpoint, EndpointChoice } from "./endpoints.ts";
import { hasGivenUp, isEnded, isPreparationLost, isReadOnly, toStoreError } from "./errors.ts";
import { type Borrowed, Pipeline } from "./pipeline.ts";
import { execute, LONGEST_MS, READ_COMMITTED, runIn, type Statement, socketOf, valuesInOrder } from "./statement.ts";
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
  readonly #log: Log;
  readonly #pool: pg.Pool;
  readonly #choice: EndpointChoice;
  #closed = false;
  /** False once a prepared statement was lost, or outlived a change of its table: a pooler may keep both so. */
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

  constructor(options: PoolOptions, log: Log) {
    this.#options = options;
    this.#log = log;
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
    let isExpectedToPass: (tries: number) => boolean = () => false;
    const attempt = async () => {
      const borrowed = await this.#borrow(statement);
      const isPrepared = this.#prepares;
      try {
        const result = await execute(borrowed.client, statement, ordered, isPrepared);
        borrowed.done();
        return result;
      } catch (error) {
        const failure = toStoreError(statement.name, error);
        const isLost = isPreparationLost(error);
        if (failure.code === "unavailable") this.#countLoss();
        if (isReadOnly(error)) this.#leaveReadOnly(borrowed.client);
        borrowed.failed(isLost || (failure.code === "unavailable" ? failure : false));
        if (isLost) this.#stopPreparing(failure);
        isExpectedToPass = (tries) => {
          // Nothing was executed; of a read-only server the next connection may reach the primary.
          if (isLost || isReadOnly(error)) return isLost ? isPrepared : tries === 1;
          // A statement by index that gave up has waited its longest.
          return isVictim(failure) && !(statement.byIndex === true && hasGivenUp(error));
        };
        throw failure;
      }
    };
    return await retried(this.#log, attempt, (_, tries) => isExpectedToPass(tries) && !this.#closed);
  }

  #stopPreparing({ message: reason }: StoreError): void {
    if (!this.#prepares) return;
    this.#prepares = false;
    this.#log.info(
      { reason },
      "a prepared statement is lost or outdated, as behind a pooler or after a change of a table: statements go unprepared, which costs the database more, until the next start",
    );
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

  /** Runs `work` in one transaction on one connection; rolls back when it throws. */
  async transaction<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    return await this.#reserve.run(name, () => this.#transaction(name, work));
  }

  async #transaction<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    const client = await this.#connect(name);
    try {
      await client.query(READ_COMMITTED);
      const result = await work(client);
      await client.query("COMMIT");
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

  /** As {@link transaction}, rolled back at its end; includes whatever the owner checks at the commit. */
  async trial<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    const rolledBack = new StoreError("other", `${name}: rolled back`);
    let result: Promise<T> | undefined;
    try {
      return await this.transaction(name, async (client) => {
        await client.query(`SET LOCAL lock_timeout = ${TRIAL_LOCK_MS}`);
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

  async runAndRollBack<T>(work: (run: StatementRunner<Statement>["run"]) => Promise<T>): Promise<T> {
    return await this.trial("a change to be rolled back", (client) =>
      work(async (statement, values = {}) => {
        try {
          return (await runIn(client, statement, values)).rows as Row[];
        } catch (error) {
          throw toStoreError(statement.name, error);
        }
      }),
    );
  }

  /** A connection of its own outside the pool, whose queries may take any time. The caller ends it. */
  async dedicated(): Promise<pg.Client> {
    const failed = this.#choice.attempt();
    const client = new pg.Client({
      ...clientConfig(this.#options, this.#choice.current),
      connectionTimeoutMillis: this.#options.connectionTimeoutMs,
      query_timeout: 0,
    });
    client.on("error", () => this.#countLoss());
    try {
      await client.connect();
      if (this.#refusesStandbys) await refuseStandby(client);
    } catch (error) {
      this.#countLoss();
      if (!isEnded(error)) failed(isReadOnly(error));
      await client.end().catch(() => {});
      throw toStoreError("connect", error);
    }
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
        else failed(isReadOnly(error));
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
    this.#choice.leave(endpoint, true);
  }
}

const CLOSE_TIMEOUT_MS = 3000;
const ASK_TIMEOUT_MS = 3000;
const ROLLBACK_TIMEOUT_MS = 3000;
const TRIAL_LOCK_MS = 2000;

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
    query_timeout: LONGEST_MS,
    keepAliveInitialDelayMillis: 10_000,
  };
}

async function refuseStandby(client: pg.ClientBase): Promise<void> {
  const show = { text: "SHOW transaction_read_only", query_timeout: ASK_TIMEOUT_MS } as pg.QueryConfig;
  const { rows } = await client.query(show);
  if ((rows[0] as { transaction_read_only?: string } | undefined)?.transaction_read_only !== "on") return;
  const reason = "it is a standby, or default_transaction_read_only is on for this user or database";
  // With the state of a refused write.
  throw Object.assign(new Error(`this host takes no writes: ${reason}`), { code: "25006" });
}

/** The server process of a connection; behind a pooler that of one transaction. */
export const BACKEND: Statement = { name: "backend", text: "SELECT pg_backend_pid() AS pid" };
