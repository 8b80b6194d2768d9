import { isRefused } from "../../../model/errors.ts";
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
import type { Clock } from "../../../time/clock.ts";
import { type RefusedRow, Resting, TRIAL_ROWS, type TrialClaims } from "./resting.ts";
import {
  changeInParts,
  dateOf,
  headersOf,
  idsOf,
  numberOf,
  type Row,
  type StatementRunner,
  tooLargeOf,
  type Values,
} from "./rows.ts";

/** The statements for pull clients. Those that close claims take `source`, `token` and `ids` (null: all). */
export interface PullStatements<S> {
  /** Claims no rows `resting`, nor others of their aggregates. */
  readonly claim: S;
  /** The first rows that may be claimed, `limit` at most, without those `resting`; at a fraction of a claim's cost. */
  readonly available: S;
  /** What a claim changes in named rows, to be rolled back. */
  readonly trial: S;
  /** Makes the row of a source that was acknowledged last pending, to be rolled back. Returns its `id`; no row without one. */
  readonly setBack: S;
  readonly held: S;
  readonly acknowledge: S;
  readonly extend: S;
  readonly release: S;
  readonly reject: S;
  readonly dialect: {
    claimOf(results: readonly (readonly Row[])[]): PullScan;
  };
}

interface PullScan {
  readonly rows: readonly Row[];
  readonly dead: readonly MessageId[];
  readonly isEmpty: boolean;
}

/** Pull clients in a SQL database: one statement per operation. */
export class SqlPull<S> implements PullStore {
  readonly #runner: StatementRunner<S>;
  readonly #sql: PullStatements<S>;
  readonly #resting: Resting;
  /** Sources whose last claim found no available row. */
  readonly #idle = new Set<string>();

  constructor(runner: StatementRunner<S>, sql: PullStatements<S>, clock: Clock) {
    this.#runner = runner;
    this.#sql = sql;
    this.#resting = new Resting(clock);
  }

  async claim(request: PullClaimRequest): Promise<PullClaimResult> {
    const { source, token } = request;
    if (this.#idle.has(source)) {
      const values = { source, limit: 1, resting: this.#resting.ids() };
      const isIdle = (await this.#runner.run(this.#sql.available, values)).length === 0;
      if (isIdle) return { token, rows: [], dead: [] };
    }
    const { rows, dead, isEmpty, refused } = await this.#claimPassable(request);
    if (isEmpty) this.#idle.add(source);
    else this.#idle.delete(source);
    return { token, rows: rows.map(pulledRow), dead, ...(refused.length > 0 ? { refused } : {}) };
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

  async release(claim: PullClaim): Promise<readonly MessageId[]> {
    return idsOf(await this.#close(this.#sql.release, claim));
  }

  /** Until nothing refuses what it chose: the refused rows rest, and the others follow. */
  async #claimPassable(request: PullClaimRequest): Promise<PullScan & { readonly refused: readonly RefusedRow[] }> {
    const { claim, dialect } = this.#sql;
    const refused: RefusedRow[] = [];
    for (;;) {
      try {
        const results = await this.#runner.runAll(claim, { ...request, resting: this.#resting.ids() });
        return { ...dialect.claimOf(results), refused };
      } catch (error) {
        refused.push(...(await this.#resting.addRefused(this.#trialClaims(request), error)));
      }
    }
  }

  #trialClaims({ source, maxAttempts }: PullClaimRequest): TrialClaims {
    const resting = [...this.#resting.ids()];
    return {
      nextPage: async () => {
        const page = idsOf(await this.#runner.run(this.#sql.available, { source, limit: TRIAL_ROWS, resting }));
        resting.push(...page);
        return page;
      },
      tryClaim: (ids) => this.#runner.runAndRollBack((run) => run(this.#sql.trial, { ids, maxAttempts })),
      accepted: () =>
        this.#runner.runAndRollBack(async (run) => {
          const ids = idsOf(await run(this.#sql.setBack, { source }));
          await run(this.#sql.trial, { ids, maxAttempts });
          return ids.length > 0;
        }),
    };
  }

  /**
   * Changes rows of a claim: one that the database refuses stays claimed, and keeps no other from it. The last parts come
   * first, since a rejection releases the rows behind it.
   */
  async #close(statement: S, claim: PullClaim, more: Values = {}): Promise<readonly Row[]> {
    const close = (ids: readonly MessageId[] | null) => this.#runner.run(statement, { ...claim, ids, ...more });
    try {
      return await close(claim.ids);
    } catch (error) {
      if (!isRefused(error)) throw error;
      const { results } = await changeInParts((await this.#heldOf(claim)).toReversed(), close);
      if (results.every((rows) => rows.length === 0)) throw error;
      return results.toReversed().flat();
    }
  }

  /** The rows that a claim means, oldest first. */
  async #heldOf({ source, token, ids }: PullClaim): Promise<readonly MessageId[]> {
    const held = idsOf(await this.#runner.run(this.#sql.held, { source, token }));
    return ids === null ? held : held.filter((id) => ids.includes(id));
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
