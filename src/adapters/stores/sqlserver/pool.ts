import sql from "mssql";
import { StoreError } from "../../../model/errors.ts";
import { connectionConfig, type PoolOptions } from "./endpoints.ts";
import { toStoreError } from "./errors.ts";

/**
 * The types that parameters have. Text is always `nvarchar`: a `varchar` would be converted at each comparison, and a `max` type keeps the
 * server from seeking in an index.
 */
const TYPES = {
  int: sql.Int,
  bigint: sql.BigInt,
  bit: sql.Bit,
  uuid: sql.UniqueIdentifier,
  /** At most 4,000 characters; compared with columns. */
  text: sql.NVarChar(4000),
  /** Any length: JSON batches and stored texts, never compared with a column. */
  longText: sql.NVarChar(sql.MAX),
} as const;

export type ParameterType = keyof typeof TYPES;

/** A statement with its name for errors and logs. Its text is always the same: every value is a typed parameter. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /** `@name` in the text to its type. */
  readonly parameters: Readonly<Record<string, ParameterType>>;
  /** Longest run in ms; after it the statement is cancelled. Default 60 s. */
  readonly timeoutMs?: number;
}

/** By parameter, all that the statement has; a missing one is an error of ours, null is NULL. */
export type Values = Readonly<Record<string, unknown>>;

export type Row = Record<string, unknown>;

/** What statements run on: the pool, each in a transaction of its own, or one transaction. */
export interface Executor {
  /** @returns the rows of the last result set */
  run(statement: Statement, values?: Values): Promise<Row[]>;
  /** @returns the rows of every result set, in order */
  runAll(statement: Statement, values?: Values): Promise<readonly Row[][]>;
}

/** A pool of connections to one server, whose errors are `StoreError`s that name the statement. */
export class SqlServerPool implements Executor {
  readonly #pool: sql.ConnectionPool;
  #connecting: Promise<unknown> | undefined;
  #closed = false;

  constructor(options: PoolOptions) {
    this.#pool = new sql.ConnectionPool(connectionConfig(options));
    // An idle connection that breaks is replaced at its next use; without a listener it would end the process.
    this.#pool.on("error", () => {});
  }

  async run(statement: Statement, values: Values = {}): Promise<Row[]> {
    return (await this.runAll(statement, values)).at(-1) ?? [];
  }

  async runAll(statement: Statement, values: Values = {}): Promise<readonly Row[][]> {
    return await this.#retried(statement.name, async (pool) => await execute(pool, statement, values));
  }

  /**
   * Runs `work` in one transaction on one connection; rolls back when it throws. As a deadlock victim it is run again from the beginning.
   *
   * @param name for errors and logs
   */
  async transaction<T>(name: string, work: (transaction: Executor) => Promise<T>): Promise<T> {
    return await this.#retried(name, async (pool) => {
      const transaction = new sql.Transaction(pool);
      await transaction.begin(sql.ISOLATION_LEVEL.READ_COMMITTED);
      let ended = false;
      // The server has rolled back by itself, as it does with a deadlock victim.
      transaction.on("rollback", () => {
        ended = true;
      });
      try {
        const runAll = (statement: Statement, values: Values = {}) => execute(transaction, statement, values);
        const run = async (statement: Statement, values: Values = {}) => (await runAll(statement, values)).at(-1) ?? [];
        const result = await work({ run, runAll });
        await transaction.commit();
        return result;
      } catch (error) {
        if (!ended) await transaction.rollback().catch(() => {});
        throw error;
      }
    });
  }

  usage(): { used: number; idle: number; waiting: number } {
    const { borrowed, available, pending } = this.#pool;
    return { used: borrowed, idle: available, waiting: pending };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#connecting?.catch(() => {});
    await this.#pool.close();
  }

  async #retried<T>(name: string, work: (pool: sql.ConnectionPool) => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      if (this.#closed) throw new StoreError("unavailable", `${name}: the connection pool is closed`);
      try {
        await this.#connected();
        return await work(this.#pool);
      } catch (error) {
        if (error instanceof Error && error.name === "ConfigError") throw error;
        const failure = toStoreError(name, error);
        // Rolled back as a victim: the same statement is expected to pass the next time.
        if (failure.code !== "contention" || tries >= CONTENTION_TRIES || this.#closed) throw failure;
      }
    }
  }

  /** The driver's pool makes its first connection on demand only after it has made one by itself. */
  async #connected(): Promise<void> {
    if (this.#pool.connected) return;
    this.#connecting ??= this.#pool.connect().finally(() => {
      this.#connecting = undefined;
    });
    await this.#connecting;
  }
}

const CONTENTION_TRIES = 4;
const DEFAULT_REQUEST_TIMEOUT_MS = 60_000;

async function execute(
  on: sql.ConnectionPool | sql.Transaction,
  statement: Statement,
  values: Values,
): Promise<readonly Row[][]> {
  const requestTimeout = statement.timeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
  // The types of the driver's declarations lag behind it: a request takes its own timeout.
  const request = (on as unknown as { request(options: { requestTimeout: number }): sql.Request }).request({
    requestTimeout,
  });
  for (const [name, type] of Object.entries(statement.parameters)) {
    const value = values[name];
    if (value === undefined) throw new Error(`${statement.name}: no value for the parameter @${name}`);
    request.input(name, TYPES[type], value);
  }
  const { recordsets } = await request.query(statement.text);
  return recordsets as unknown as Row[][];
}
