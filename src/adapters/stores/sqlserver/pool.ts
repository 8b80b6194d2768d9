import sql from "mssql";
import { errorText, StoreError, type StoreErrorCode } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import { isVictim, Reserve, type Reserved, retried } from "../sql/reserve.ts";
import type { Row, StatementRunner, Values } from "../sql/rows.ts";
import { type PoolOptions, poolConfig } from "./endpoints.ts";
import { execute, type Statement } from "./statement.ts";

export type Executor = Pick<StatementRunner<Statement>, "run" | "runAll">;

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
    return await this.#retried(statement, async (pool) => await execute(pool, statement, values));
  }

  async runAndRollBack<T>(work: (run: Executor["run"]) => Promise<T>): Promise<T> {
    return await this.trial({ name: "a change to be rolled back" }, ({ run }) => work(run));
  }

  /** As {@link transaction}, rolled back at its end. */
  async trial<T>(of: Reserved, work: (transaction: Executor) => Promise<T>): Promise<T> {
    const rolledBack = new StoreError("other", `${of.name}: rolled back`);
    let result: Promise<T> | undefined;
    const failure: unknown = await this.transaction(of, async (transaction) => {
      result = work(transaction);
      await result;
      throw rolledBack;
    }).catch((error: unknown) => error);
    if (failure !== rolledBack || result === undefined) throw failure;
    return await result;
  }

  /**
   * Runs `work` in one transaction on one connection; rolls back when it throws, and runs it again for a deadlock
   * victim.
   */
  async transaction<T>(of: Reserved, work: (transaction: Executor) => Promise<T>): Promise<T> {
    return await this.#retried(of, async (pool) => {
      const transaction = new sql.Transaction(pool);
      await transaction.begin(sql.ISOLATION_LEVEL.READ_COMMITTED);
      let ended = false;
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

  async #retried<T>(of: Reserved, work: (pool: sql.ConnectionPool) => Promise<T>): Promise<T> {
    const attempt = async () => {
      if (this.#closed) throw new StoreError("unavailable", `${of.name}: the connection pool is closed`);
      try {
        await this.#connected();
        return await this.#reserve.run(of, () => work(this.#pool));
      } catch (error) {
        throw error instanceof Error && error.name === "ConfigError" ? error : toStoreError(of.name, error);
      }
    };
    return await retried(this.#log, attempt, (error) => isVictim(error) && !hasGivenUp(error) && !this.#closed);
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

type ListedCode = Exclude<StoreErrorCode, "other" | "skipped" | "busy">;

/**
 * Error numbers of SQL Server and Azure SQL (Microsoft Learn, "Database Engine events and errors" and "Troubleshoot
 * transient connection errors"; the transient numbers of EF Core's `SqlServerTransientExceptionDetector`). No number is
 * a connection fault. An unlisted number of severity 17 and above is of the server (Microsoft Learn, "Database Engine
 * error severities"): it lacks resources, or is damaged.
 */
const CODES: Readonly<Record<ListedCode, readonly number[]>> = {
  unavailable: [
    // Connection broken, server shutting down, database in recovery, log full or read-only replica.
    17, 20, 64, 121, 233, 596, 601, 617, 669, 701, 802, 845, 904, 921, 922, 924, 927, 942, 945, 952, 976, 978, 983, 988,
    997, 1101, 1105, 1807, 3906, 3908, 3935, 4060, 4221, 6005, 8628, 8645, 8651, 9001, 9002, 9515, 10053, 10054, 10060,
    10922, 11001, 17142, 17187, 17197, 18401, 18451, 18452, 18456, 18487, 18488, 20041,
    // Azure SQL: moving, throttled, out of resources.
    10928, 10929, 10936, 40143, 40197, 40501, 40532, 40540, 40544, 40549, 40550, 40551, 40552, 40553, 40613, 40627,
    42108, 42109, 49918, 49919, 49920,
  ],
  // Deadlock victim, lock timeout, snapshot conflict or no room for its versions, parallelism deadlock.
  contention: [1203, 1204, 1205, 1221, 1222, 3958, 3960, 3961, 3966, 3967, 8650, 14355],
  data: [
    // Conversions and arithmetic, text that is cut off, date out of range, XML and JSON.
    220, 232, 241, 242, 244, 245, 248, 295, 298, 517, 529, 2628, 8016, 8114, 8115, 8134, 8152, 8169, 9402, 9413, 9420,
    13609,
    // NOT NULL, CHECK and foreign keys, row and index key sizes.
    515, 547, 511, 1505, 1946,
  ],
  duplicate: [2601, 2627],
  refused: [
    // A trigger of the owner fails, or rolls the row back; a security policy or the check of a view turns it away. What
    // THROW and RAISERROR give a number of their own is 50000 and above, see `toStoreError`.
    217, 512, 550, 3609, 3616, 6522, 33504,
  ],
  schema: [
    // Table, column, type, right or index is missing; an index needs other SET options.
    102, 156, 201, 206, 207, 208, 213, 229, 230, 262, 297, 300, 333, 334, 339, 544, 916, 1088, 1934, 2706, 2715, 2760,
    2812, 3701, 4121, 4902, 4924, 8622,
  ],
};

const CODE_OF = new Map(
  Object.entries(CODES).flatMap(([code, numbers]) =>
    numbers.map((number) => [number, code as StoreErrorCode] as const),
  ),
);

/** Error codes of the SQL Server store: see {@link CODES}. The message names the statement and holds no row data. */
export function toStoreError(statement: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const number = errorNumber(error);
  if (number === undefined) {
    const code = isOfConnection(error) ? "unavailable" : "other";
    return new StoreError(code, `${statement}: ${errorText(error)}`, { cause: error });
  }
  const code = codeOf(number, error);
  return new StoreError(code, `${statement}: ${safeText(error, number)}`, { cause: withoutRowData(number) });
}

function codeOf(number: number, error: unknown): StoreErrorCode {
  if (number >= RAISED_BY_APPLICATION) return "refused";
  const { class: severity } = error as { readonly class?: unknown };
  const code = CODE_OF.get(number) ?? (Number(severity) >= OF_THE_SERVER ? "unavailable" : "other");
  // In a trigger or procedure, which our statements do not call: one row has met it.
  const { procName } = error as { procName?: unknown };
  return code === "contention" && typeof procName === "string" && procName !== "" ? "busy" : code;
}

/** Whether a statement has waited for a lock for as long as it may. */
export function hasGivenUp(error: unknown): boolean {
  return error instanceof StoreError && errorNumber(error.cause) === LOCK_TIMEOUT;
}

const LOCK_TIMEOUT = 1222;
const OF_THE_SERVER = 17;

function errorNumber(error: unknown): number | undefined {
  const { number } = (error ?? {}) as { number?: unknown };
  return typeof number === "number" ? number : undefined;
}

/** Errors of the driver: connection, pool, timeout, cancelled, a transaction that ended with its connection. */
function isOfConnection(error: unknown): boolean {
  const { name, code } = (error ?? {}) as { name?: unknown; code?: unknown };
  if (/^(Connection|Request|Transaction|Timeout)Error$/.test(String(name))) return true;
  return typeof code === "string" && /^E[A-Z]+$/.test(code);
}

/** Messages quote values, which may be anything a sender wrote: keep only names that the server gives. */
function safeText(error: unknown, number: number): string {
  if (number >= RAISED_BY_APPLICATION) return `a trigger refuses the row (error ${number})`;
  const message = error instanceof Error ? error.message : String(error);
  const cut = QUOTES_VALUES.has(number)
    ? message.replace(/(?:value|key value|Truncated value)[^.]*['(:].*/s, "value")
    : message;
  return `${cut} (error ${number})`;
}

const QUOTES_VALUES = new Set([241, 242, 244, 245, 248, 295, 2601, 2627, 2628, 8114, 8115, 8169]);
const RAISED_BY_APPLICATION = 50000;

/** The driver's error carries what came before it and the statement: they must not reach a log. */
function withoutRowData(number: number): Error & { number: number } {
  const plain = new Error(`error ${number}`);
  return Object.assign(plain, { number });
}
