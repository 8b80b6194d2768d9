import type { MessageId } from "../../../model/rows.ts";
import type {
  PullClaim,
  PullClaimRequest,
  PullClaimResult,
  PullRejection,
  PullRejectionOptions,
  PullStore,
} from "../../../ports/pullStore.ts";
import { isRefused } from "../sql/refused.ts";
import { idsOf, pulledRow } from "../sql/rows.ts";
import type { SqlServerPool } from "./pool.ts";
import type { PullStatements } from "./pullSql.ts";
import type { Row, Statement, Values } from "./statement.ts";

/** Pull clients on SQL Server: one batch an operation. */
export class SqlServerPull implements PullStore {
  readonly #pool: SqlServerPool;
  readonly #sql: PullStatements;
  /** Sources whose last claim met no available row. */
  readonly #idle = new Set<string>();

  constructor(pool: SqlServerPool, statements: PullStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async claim(request: PullClaimRequest): Promise<PullClaimResult> {
    const { source } = request;
    if (this.#idle.has(source) && (await this.#pool.run(this.#sql.available, { source })).length === 0) return NOTHING;
    const [counts = [], dead = [], rows = []] = await this.#claim(request);
    if (counts[0]?.seen === 0) this.#idle.add(source);
    else this.#idle.delete(source);
    return { rows: rows.map(pulledRow), dead: idsOf(dead) };
  }

  acknowledge(claim: PullClaim): Promise<readonly MessageId[]> {
    return this.#ids(this.#sql.acknowledge, valuesOf(claim));
  }

  async reject(claim: PullClaim, options: PullRejectionOptions): Promise<PullRejection> {
    const { maxAttempts, delayMs, reason } = options;
    const values = { ...valuesOf(claim), maxAttempts, delayMs: Math.round(delayMs) };
    const reject = (text: string | null) => this.#pool.run(this.#sql.reject, { ...values, reason: text });
    const rows = await reject(reason).catch((error: unknown) => {
      if (reason === null || !isRefused(error)) throw error;
      // An owner's narrow last_error column: the outcome matters more than its words.
      return reject(null);
    });
    const having = (outcome: string) => idsOf(rows.filter((row) => row.outcome === outcome));
    return { retried: having("retried"), dead: having("dead"), released: having("released") };
  }

  extend(claim: PullClaim, leaseMs: number): Promise<readonly MessageId[]> {
    return this.#ids(this.#sql.extend, { ...valuesOf(claim), leaseMs });
  }

  release(claim: PullClaim): Promise<readonly MessageId[]> {
    return this.#ids(this.#sql.release, valuesOf(claim));
  }

  /** @returns the number of rows seen, the rows that died, the rows claimed */
  async #claim(request: PullClaimRequest): Promise<readonly Row[][]> {
    const claim = (withReason: boolean) => this.#pool.runAll(this.#sql.claim, { ...request, withReason });
    return await claim(true).catch((error: unknown) => {
      if (!isRefused(error)) throw error;
      // Only why a row died can be refused: a row that cannot say so must not keep all others from being claimed.
      return claim(false);
    });
  }

  async #ids(statement: Statement, values: Values): Promise<MessageId[]> {
    return idsOf(await this.#pool.run(statement, values));
  }
}

const NOTHING: PullClaimResult = { rows: [], dead: [] };

function valuesOf({ source, token, ids }: PullClaim): Values {
  return { source, token, ids: ids === null ? null : JSON.stringify(ids) };
}
