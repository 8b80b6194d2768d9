import type { MessageId } from "../../../model/rows.ts";
import type {
  PullClaim,
  PullClaimRequest,
  PullClaimResult,
  PullRejection,
  PullRejectionOptions,
  PullStore,
} from "../../../ports/pullStore.ts";
import type { Clock } from "../../../time/clock.ts";
import { changeAroundRefusal, isRefused, rejectAroundRefusal } from "../sql/refused.ts";
import { type ClaimTrials, LeftOut, TRIAL_ROWS } from "../sql/refusedClaims.ts";
import { idsOf, pulledRow } from "../sql/rows.ts";
import type { PostgresPool } from "./pool.ts";
import type { PullStatements } from "./pullSql.ts";
import type { Row, Statement } from "./statement.ts";

/** Pull clients on PostgreSQL: one statement an operation. */
export class PostgresPull implements PullStore {
  readonly #pool: PostgresPool;
  readonly #sql: PullStatements;
  /** Sources whose last claim met no available row. */
  readonly #idle = new Set<string>();
  readonly #leftOut: LeftOut;

  constructor(pool: PostgresPool, statements: PullStatements, clock: Clock) {
    this.#pool = pool;
    this.#sql = statements;
    this.#leftOut = new LeftOut(clock);
  }

  async claim(request: PullClaimRequest): Promise<PullClaimResult> {
    const { source } = request;
    if (this.#idle.has(source) && (await this.#pool.run(this.#sql.available, [source])).length === 0) return NOTHING;
    const rows = await this.#claimAround(request);
    const [first] = rows;
    if (first?.candidates === 0) this.#idle.add(source);
    else this.#idle.delete(source);
    return {
      rows: first === undefined || first.id === null ? [] : rows.map(pulledRow),
      dead: (first?.dead ?? []) as MessageId[],
    };
  }

  /** Leaves out for a while the rows that the database refuses to let be claimed. */
  async #claimAround(request: PullClaimRequest): Promise<Row[]> {
    for (;;) {
      try {
        return await this.#claim(request);
      } catch (error) {
        await this.#leftOut.learn(this.#trials(request), error);
      }
    }
  }

  #trials({ source, limit, maxAttempts }: PullClaimRequest): ClaimTrials {
    const leftOut = this.#leftOut.ids();
    let looked = false;
    return {
      page: async () => {
        if (looked) return [];
        looked = true;
        return idsOf(await this.#pool.run(this.#sql.availableRows, [source, Math.max(limit, TRIAL_ROWS), leftOut]));
      },
      attempt: (ids) => this.#pool.takenBack(this.#sql.trial, [ids, maxAttempts]),
    };
  }

  acknowledge(claim: PullClaim): Promise<readonly MessageId[]> {
    return this.#close(this.#sql.acknowledge, claim);
  }

  async reject(claim: PullClaim, options: PullRejectionOptions): Promise<PullRejection> {
    const { maxAttempts, delayMs, reason } = options;
    const { source, token } = claim;
    const reject = (ids: readonly MessageId[] | null, givesBackOthers: boolean) => {
      const run = (text: string | null) => {
        const values = [source, token, ids, maxAttempts, Math.round(delayMs), text, givesBackOthers];
        return this.#pool.run(this.#sql.reject, values);
      };
      return run(reason).catch((error: unknown) => {
        if (reason === null || !isRefused(error)) throw error;
        // An owner's narrow last_error column: the outcome matters more than its words.
        return run(null);
      });
    };
    const rows = await reject(claim.ids, true).catch(async (error: unknown) => {
      if (!isRefused(error)) throw error;
      return await rejectAroundRefusal(await this.#heldOf(claim), reject);
    });
    const having = (outcome: string) => idsOf(rows.filter((row) => row.outcome === outcome));
    return { retried: having("retried"), dead: having("dead"), released: having("released") };
  }

  extend(claim: PullClaim, leaseMs: number): Promise<readonly MessageId[]> {
    return this.#close(this.#sql.extend, claim, leaseMs);
  }

  release(claim: PullClaim): Promise<readonly MessageId[]> {
    return this.#close(this.#sql.release, claim);
  }

  async #claim(request: PullClaimRequest): Promise<Row[]> {
    const { source, limit, maxBytes, token, leaseMs, maxAttempts } = request;
    const leftOut = this.#leftOut.ids();
    const [statement, more] = leftOut.length === 0 ? [this.#sql.claim, []] : [this.#sql.claimWithoutSome, [leftOut]];
    const claim = (withReason: boolean) =>
      this.#pool.run(statement, [source, limit, maxBytes, token, leaseMs, maxAttempts, withReason, ...more]);
    return await claim(true).catch((error: unknown) => {
      if (!isRefused(error)) throw error;
      // Only why a row died can be refused: a row that cannot say so must not keep all others from being claimed.
      return claim(false);
    });
  }

  /** Closes rows of a claim, each by itself: one that the database refuses stays claimed, and keeps no other from it. */
  async #close(statement: Statement, claim: PullClaim, ...more: readonly unknown[]): Promise<readonly MessageId[]> {
    const { source, token } = claim;
    const run = async (ids: readonly MessageId[] | null) =>
      idsOf(await this.#pool.run(statement, [source, token, ids, ...more]));
    try {
      return await run(claim.ids);
    } catch (error) {
      if (!isRefused(error)) throw error;
      const closed: MessageId[] = [];
      await changeAroundRefusal(await this.#heldOf(claim), async (part) => {
        closed.push(...(await run(part)));
      });
      if (closed.length === 0) throw error;
      return closed;
    }
  }

  /** The rows that a claim means, oldest first. */
  async #heldOf({ source, token, ids }: PullClaim): Promise<readonly MessageId[]> {
    const held = idsOf(await this.#pool.run(this.#sql.held, [source, token]));
    return ids === null ? held : held.filter((id) => ids.includes(id));
  }
}

const NOTHING: PullClaimResult = { rows: [], dead: [] };
