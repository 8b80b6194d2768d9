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
import type { PostgresPool } from "./pool.ts";
import type { PullStatements } from "./pullSql.ts";
import type { Row } from "./statement.ts";

/** Pull clients on PostgreSQL: one statement an operation. */
export class PostgresPull implements PullStore {
  readonly #pool: PostgresPool;
  readonly #sql: PullStatements;
  /** Sources whose last claim met no available row. */
  readonly #idle = new Set<string>();

  constructor(pool: PostgresPool, statements: PullStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async claim(request: PullClaimRequest): Promise<PullClaimResult> {
    const { source } = request;
    if (this.#idle.has(source) && (await this.#pool.run(this.#sql.available, [source])).length === 0) return NOTHING;
    const rows = await this.#claim(request);
    const [first] = rows;
    if (first?.candidates === 0) this.#idle.add(source);
    else this.#idle.delete(source);
    return {
      rows: first === undefined || first.id === null ? [] : rows.map(pulledRow),
      dead: (first?.dead ?? []) as MessageId[],
    };
  }

  acknowledge(claim: PullClaim): Promise<readonly MessageId[]> {
    return this.#ids(this.#sql.acknowledge, valuesOf(claim));
  }

  async reject(claim: PullClaim, options: PullRejectionOptions): Promise<PullRejection> {
    const { maxAttempts, delayMs, reason } = options;
    const reject = (text: string | null) =>
      this.#pool.run(this.#sql.reject, [...valuesOf(claim), maxAttempts, Math.round(delayMs), text]);
    const rows = await reject(reason).catch((error: unknown) => {
      if (reason === null || !isRefused(error)) throw error;
      // An owner's narrow last_error column: the outcome matters more than its words.
      return reject(null);
    });
    const having = (outcome: string) => idsOf(rows.filter((row) => row.outcome === outcome));
    return { retried: having("retried"), dead: having("dead"), released: having("released") };
  }

  extend(claim: PullClaim, leaseMs: number): Promise<readonly MessageId[]> {
    return this.#ids(this.#sql.extend, [...valuesOf(claim), leaseMs]);
  }

  release(claim: PullClaim): Promise<readonly MessageId[]> {
    return this.#ids(this.#sql.release, valuesOf(claim));
  }

  async #claim(request: PullClaimRequest): Promise<Row[]> {
    const { source, limit, maxBytes, token, leaseMs, maxAttempts } = request;
    const claim = (withReason: boolean) =>
      this.#pool.run(this.#sql.claim, [source, limit, maxBytes, token, leaseMs, maxAttempts, withReason]);
    return await claim(true).catch((error: unknown) => {
      if (!isRefused(error)) throw error;
      // Only why a row died can be refused: a row that cannot say so must not keep all others from being claimed.
      return claim(false);
    });
  }

  async #ids(statement: PullStatements[keyof PullStatements], values: readonly unknown[]): Promise<MessageId[]> {
    return idsOf(await this.#pool.run(statement, values));
  }
}

const NOTHING: PullClaimResult = { rows: [], dead: [] };

function valuesOf({ source, token, ids }: PullClaim): unknown[] {
  return [source, token, ids];
}
