import type { MessageId } from "../../../model/rows.ts";
import type {
  PullClaim,
  PullClaimRequest,
  PullClaimResult,
  PulledRow,
  PullRejection,
  PullRejectionOptions,
  PullStore,
} from "../../../ports/pullStore.ts";
import { dateOf, headersOf, idsOf, numberOf, type Row, type StatementRunner, tooLargeOf, type Values } from "./rows.ts";

/** Statements that close claims take `source`, `token` and `ids` (null: all). */
export interface PullStatements<S> {
  readonly claim: S;
  readonly acknowledge: S;
  readonly extend: S;
  readonly reject: S;
  readonly dialect: {
    claimOf(results: readonly (readonly Row[])[]): PullScan;
  };
}

interface PullScan {
  readonly rows: readonly Row[];
  readonly dead: readonly MessageId[];
}

export class SqlPull<S> implements PullStore {
  readonly #runner: StatementRunner<S>;
  readonly #sql: PullStatements<S>;

  constructor(runner: StatementRunner<S>, sql: PullStatements<S>) {
    this.#runner = runner;
    this.#sql = sql;
  }

  async claim(request: PullClaimRequest): Promise<PullClaimResult> {
    const { rows, dead } = this.#sql.dialect.claimOf(await this.#runner.runAll(this.#sql.claim, { ...request }));
    return { token: request.token, rows: rows.map(pulledRow), dead };
  }

  async acknowledge(claim: PullClaim): Promise<readonly MessageId[]> {
    return idsOf(await this.#close(this.#sql.acknowledge, claim));
  }

  async reject(claim: PullClaim, { maxAttempts, delayMs, reason }: PullRejectionOptions): Promise<PullRejection> {
    const rows = await this.#close(this.#sql.reject, claim, { maxAttempts, delayMs: Math.round(delayMs), reason });
    const having = (outcome: string) => idsOf(rows.filter((row) => row.outcome === outcome));
    return { retried: having("retried"), dead: having("dead"), released: having("released") };
  }

  async extend(claim: PullClaim, leaseMs: number): Promise<readonly MessageId[]> {
    return idsOf(await this.#close(this.#sql.extend, claim, { leaseMs }));
  }

  #close(statement: S, claim: PullClaim, more: Values = {}): Promise<readonly Row[]> {
    return this.#runner.run(statement, { ...claim, ...more });
  }
}

function pulledRow(row: Row): PulledRow {
  return {
    id: row.id as MessageId,
    aggregateId: row.aggregate_id as string | null,
    eventType: row.event_type as string | null,
    idempotencyKey: row.idempotency_key as string,
    correlationId: row.correlation_id as string | null,
    attempt: numberOf(row.attempt, 0),
    createdAt: dateOf(row.created_at),
    headers: headersOf(row.headers),
    tooLarge: tooLargeOf(row),
    payload: (row.payload as string | null) ?? "null",
  };
}
