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
import {
  changeInParts,
  dateOf,
  headersOf,
  idsOf,
  isBehind,
  numberOf,
  Quarantine,
  type RefusedRow,
  type Row,
  type SkippedRow,
  type StatementRunner,
  type TrialClaims,
  tooLargeOf,
  type Values,
} from "./rows.ts";

/** The statements for pull clients. Those that close claims take `source`, `token` and `ids` (null: all). */
export interface PullStatements<S> {
  readonly claim: S;
  /** Without quarantined rows, and the others of their aggregates. */
  readonly claimWithoutSome: S;
  readonly availableRows: S;
  /** What a claim changes in named rows, to be rolled back. */
  readonly trial: S;
  /** Makes the row of a source that was acknowledged last pending, to be rolled back. Returns its `id`; no row without one. */
  readonly setBack: S;
  readonly held: S;
  /** Idle check: the first available row, at a fraction of a claim's cost. */
  readonly available: S;
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
  /** A database may name them instead of failing. */
  readonly skipped?: readonly SkippedRow[];
}

/** Pull clients in a SQL database: one statement per operation. */
export class SqlPull<S> implements PullStore {
  readonly #runner: StatementRunner<S>;
  readonly #sql: PullStatements<S>;
  readonly #quarantine: Quarantine;
  /** Sources whose last claim found no available row. */
  readonly #idle = new Set<string>();

  constructor(runner: StatementRunner<S>, sql: PullStatements<S>, clock: Clock) {
    this.#runner = runner;
    this.#sql = sql;
    this.#quarantine = new Quarantine(clock);
  }

  async claim(request: PullClaimRequest): Promise<PullClaimResult> {
    const { source, token } = request;
    if (this.#idle.has(source) && (await this.#runner.run(this.#sql.available, { source })).length === 0) {
      return { token, rows: [], dead: [] };
    }
    const { rows, dead, isEmpty, refused } = await this.#claimPassable(request);
    if (isEmpty) this.#idle.add(source);
    else this.#idle.delete(source);
    return { token, rows: rows.map(pulledRow), dead, ...(refused.length > 0 ? { refused } : {}) };
  }

  async acknowledge(claim: PullClaim): Promise<readonly MessageId[]> {
    return await this.#close(this.#sql.acknowledge, claim);
  }

  /** Where the database refuses a row, rejects the others; that one stays under its claim. */
  async reject(claim: PullClaim, options: PullRejectionOptions): Promise<PullRejection> {
    let rows: readonly Row[];
    try {
      rows = await this.#rejectAll(claim, options, true);
    } catch (error) {
      if (!isRefused(error)) throw error;
      rows = await this.#rejectInParts(claim, options);
    }
    const having = (outcome: string) => idsOf(rows.filter((row) => row.outcome === outcome));
    return { retried: having("retried"), dead: having("dead"), released: having("released") };
  }

  async extend(claim: PullClaim, leaseMs: number): Promise<readonly MessageId[]> {
    return await this.#close(this.#sql.extend, claim, { leaseMs });
  }

  async release(claim: PullClaim): Promise<readonly MessageId[]> {
    return await this.#close(this.#sql.release, claim);
  }

  async #claimPassable(request: PullClaimRequest) {
    const refused: RefusedRow[] = [];
    for (;;) {
      try {
        const scan = await this.#claimAll(request);
        const { skipped = [] } = scan;
        if (skipped.length === 0) return { ...scan, refused };
        refused.push(...this.#quarantine.addSkipped(skipped));
        const rows = await this.#giveBackBehind(skipped, scan.rows, request);
        if (rows.length + scan.dead.length > 0) return { ...scan, rows, refused };
      } catch (error) {
        refused.push(...(await this.#quarantine.addRefused(this.#trialClaims(request), error)));
      }
    }
  }

  /** Gives back the rows of the aggregates of skipped ones. @returns the others */
  async #giveBackBehind(skipped: readonly SkippedRow[], rows: readonly Row[], { source, token }: PullClaimRequest) {
    const of = (row: Row) => isBehind(skipped, row.aggregate_id as string | null);
    const behind = idsOf(rows.filter(of));
    if (behind.length > 0) await this.release({ source, token, ids: behind });
    return rows.filter((row) => !of(row));
  }

  async #claimAll(request: PullClaimRequest): Promise<PullScan> {
    const quarantined = this.#quarantine.ids();
    const { claim, claimWithoutSome, dialect } = this.#sql;
    const statement = quarantined.length === 0 ? claim : claimWithoutSome;
    const run = async (withReason: boolean) =>
      dialect.claimOf(await this.#runner.runAll(statement, { ...request, withReason, quarantined }));
    try {
      return await run(true);
    } catch (error) {
      if (!isRefused(error)) throw error;
      // Only the reason why a row died can be refused: it must not keep all others from being claimed.
      return await run(false);
    }
  }

  #trialClaims({ source, maxAttempts }: PullClaimRequest): TrialClaims {
    const quarantined = [...this.#quarantine.ids()];
    return {
      nextPage: async (limit) => {
        const values = { source, limit, quarantined };
        const page = idsOf(await this.#runner.run(this.#sql.availableRows, values));
        quarantined.push(...page);
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

  /** Closes rows of a claim: one that the database refuses stays claimed, and keeps no other from it. */
  async #close(statement: S, claim: PullClaim, more: Values = {}): Promise<readonly MessageId[]> {
    const close = async (ids: readonly MessageId[] | null) =>
      idsOf(await this.#runner.run(statement, { ...claim, ids, ...more }));
    try {
      return await close(claim.ids);
    } catch (error) {
      if (!isRefused(error)) throw error;
      const { results } = await changeInParts(await this.#heldOf(claim), close);
      const closed = results.flat();
      if (closed.length === 0) throw error;
      return closed;
    }
  }

  /** @param releaseOthers whether to release the rows behind the rejected ones, too */
  async #rejectAll(claim: PullClaim, options: PullRejectionOptions, releaseOthers: boolean): Promise<readonly Row[]> {
    const { maxAttempts, delayMs, reason } = options;
    const values = { ...claim, maxAttempts, delayMs: Math.round(delayMs), reason, releaseOthers };
    try {
      return await this.#runner.run(this.#sql.reject, values);
    } catch (error) {
      if (reason === null || !isRefused(error)) throw error;
      // An owner's last_error column may be narrow: the outcome matters more than its reason.
      return await this.#runner.run(this.#sql.reject, { ...values, reason: null });
    }
  }

  /** The last rows first: behind a part are only rows that were not named, or were refused. */
  async #rejectInParts(claim: PullClaim, options: PullRejectionOptions): Promise<readonly Row[]> {
    const held = await this.#heldOf(claim);
    const { results, refused } = await changeInParts(held.toReversed(), async (ids) => {
      try {
        return await this.#rejectAll({ ...claim, ids }, options, true);
      } catch (error) {
        // The refused one may be behind it.
        if (!isRefused(error) || ids.length > 1) throw error;
        return await this.#rejectAll({ ...claim, ids }, options, false);
      }
    });
    const rows = results.flat();
    const [refusal] = refused.values();
    if (rows.length === 0 && refusal !== undefined) throw refusal;
    return rows;
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
