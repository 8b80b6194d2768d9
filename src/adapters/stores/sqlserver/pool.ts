import sql from "mssql";
import { StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import { isVictim, Reserve, retried } from "../sql/reserve.ts";
import type { Row, StatementRunner, Values } from "../sql/rows.ts";
import { type PoolOptions, poolConfig } from "./endpoints.ts";
import { toStoreError } from "./errors.ts";
import { execute, type Statement } from "./statement.ts";

/** What statements run on: the pool, each in a transaction of its own, or one transaction. */
export type Executor = Pick<StatementRunner<Statement>, "run" | "runAll">;

/** A pool of connections to one server, whose errors are `StoreError`s that name the statement. */
export class SqlServerPool implements StatementRunner<Statement> {
  readonly #log: Log;
  readonly #pool: sql.ConnectionPool;
  readonly #reserve: Reserve;
  #connecting: Promise<unknown> | undefined;
  #closed = false;

  constructor(options: PoolOptions, log: Log) {
    this.#log = log;
    this.#reserve = new Reserve({ poolSize: options.poolSize, longestWaitMs: options.connectionTimeoutMs });
    this.#pool = new sql.ConnectionPool(poolConfig(options));
    // An idle connection that breaks is replaced at its next use; without a listener it would end the process.
    this.#pool.on("error", () => {});
  }

  async run(statement: Statement, values: Values = {}): Promise<readonly Row[]> {
    return (await this.runAll(statement, values)).at(-1) ?? [];
  }

  async runAll(statement: Statement, values: Values = {}): Promise<readonly (readonly Row[])[]> {
    return await this.#retried(statement.name, async (pool) => await execute(pool, statement, values));
  }

  async runAndRollBack<T>(work: (run: Executor["run"]) => Promise<T>): Promise<T> {
    return await this.trial("a change to be rolled back", ({ run }) => work(run));
  }

  /** As {@link transaction}, rolled back at its end. */
  async trial<T>(name: string, work: (transaction: Executor) => Promise<T>): Promise<T> {
    const rolledBack = new StoreError("other", `${name}: rolled back`);
    let result: Promise<T> | undefined;
    const failure: unknown = await this.transaction(name, async (transaction) => {
      result = work(transaction);
      await result;
      throw rolledBack;
    }).catch((error: unknown) => error);
    if (failure !== rolledBack || result === undefined) throw failure;
    return await result;
  }

  /**
   * Runs `work` in one transaction on one connection; rolls back when it throws. As a deadlock victim it is run again
   * from the beginning.
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
    return { used: borrowed, idle: available, waiting: pending + this.#reserve.waiting };
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#connecting?.catch(() => {});
    await this.#pool.close();
  }

  async #retried<T>(name: string, work: (pool: sql.ConnectionPool) => Promise<T>): Promise<T> {
    const attempt = async () => {
      if (this.#closed) throw new StoreError("unavailable", `${name}: the connection pool is closed`);
      try {
        await this.#connected();
        return await this.#reserve.run(name, () => work(this.#pool));
      } catch (error) {
        throw error instanceof Error && error.name === "ConfigError" ? error : toStoreError(name, error);
      }
    };
    return await retried(this.#log, attempt, (error) => isVictim(error) && !this.#closed);
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
