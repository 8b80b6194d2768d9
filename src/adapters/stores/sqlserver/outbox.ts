import type { ClaimToken, MessageId, Outcome } from "../../../model/rows.ts";
import type { ClaimRequest, ClaimResult, ClaimScope, Lease, OutboxBacklog, OutboxStore } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { type ClaimScans, claimByHints, LAST_POSITION, type Scan } from "../sql/frontClaim.ts";
import { OutboxHints } from "../sql/hints.ts";
import { changeAroundRefusal, isRefused } from "../sql/refused.ts";
import { type ClaimTrials, LeftOut, TRIAL_ROWS } from "../sql/refusedClaims.ts";
import { backlogOf, claimedRow, idsOf } from "../sql/rows.ts";
import { attemptsOf, delayOf, STATE_AFTER, settleAroundRefusal } from "../sql/settlements.ts";
import { type OutboxStatements, SETTLED_TEXTS } from "./outboxSql.ts";
import type { SqlServerPool } from "./pool.ts";
import type { Statement, Values } from "./statement.ts";
import { textBatch } from "./texts.ts";

/**
 * The outbox on SQL Server (design, "Claims and order"). Finished rows leave the filtered indexes with their commit, so there are no
 * low-water marks: claims start at the front, or at the cursor past blocked keys. Only while row versions are kept for a transaction that stays
 * open do claims walk over the entries of rows that have finished since.
 */
export class SqlServerOutbox implements OutboxStore {
  readonly #pool: SqlServerPool;
  readonly #sql: OutboxStatements;
  readonly #clock: Clock;
  readonly #hints: OutboxHints;
  readonly #scans: ClaimScans = {
    inOrder: (request, from) => this.#scanAll("claimInOrder", request, from),
    pastBlockedKeys: (request, from) => this.#scanAll("claimPastBlockedKeys", request, from),
    inScope: (request, scope, from, part) =>
      this.#scan(this.#sql[scope.which].claim, request, from, {
        ...this.#scopeValues(scope),
        to: part?.to ?? LAST_POSITION,
      }),
    retriesInScope: (request, scope, { from, to, withinMs }) =>
      this.#scan(this.#sql[scope.which].claimRetries, request, from, {
        ...this.#scopeValues(scope),
        to,
        withinMs: wholeMs(withinMs),
      }),
    pendingBehind: async (from, rows) => {
      const [row] = await this.#pool.run(this.#sql.pendingBehind, { from, rows });
      return row === undefined ? undefined : String(row.sequence);
    },
    end: async () => {
      const [row] = await this.#pool.run(this.#sql.end);
      return String(row?.end ?? this.#hints.marks.mark);
    },
    anyDue: (from) => this.#anyDue(this.#sql.dueFrom, { from }),
    // Only a user with rights on the whole server can see who has changed rows since.
    mayHaveChanged: async () => true,
  };
  readonly #leftOut: LeftOut;
  /** The last claim of all rows met no due one. */
  #idle = false;

  constructor(pool: SqlServerPool, statements: OutboxStatements, clock: Clock) {
    this.#pool = pool;
    this.#sql = statements;
    this.#clock = clock;
    this.#hints = new OutboxHints(clock);
    this.#leftOut = new LeftOut(clock);
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    if (request.scope === undefined && this.#idle && !(await this.#anyDue(this.#sql.due))) return NOTHING;
    try {
      return await claimByHints(this.#scans, this.#hints, this.#clock, request);
    } catch (error) {
      return { ...NOTHING, more: true, refused: await this.#leftOut.learn(this.#trials(request.scope), error) };
    }
  }

  async renew(tokens: readonly ClaimToken[], lease: Lease): Promise<ReadonlySet<MessageId>> {
    if (tokens.length === 0) return new Set();
    const renewed = new Set<MessageId>();
    await changeAroundRefusal(tokens, async (part) => {
      const rows = await this.#pool.run(this.#sql.renew, {
        tokens: JSON.stringify(part),
        leaseMs: wholeMs(lease.leaseMs),
        claimTimeoutMs: wholeMs(lease.claimTimeoutMs),
      });
      for (const id of idsOf(rows)) renewed.add(id);
    });
    return renewed;
  }

  async settle(
    settlements: readonly Outcome[],
    onRefused: ((settlement: Outcome, reason: string) => void) | undefined,
  ): Promise<ReadonlySet<MessageId>> {
    const settle = (part: readonly Outcome[]) => this.#settleAll(part);
    return await settleAroundRefusal(settlements, this.#hints, settle, onRefused ?? (() => {}));
  }

  async reclaim(limit: number, claimTimeoutMs: number): Promise<number> {
    const values = { limit, claimTimeoutMs: wholeMs(claimTimeoutMs) };
    let reclaimed = 0;
    const reclaim = async (statement: Statement, more: Values): Promise<void> => {
      const [row] = await this.#pool.run(statement, more);
      reclaimed += Number(row?.reclaimed ?? 0);
    };
    try {
      await reclaim(this.#sql.reclaim, values);
    } catch (error) {
      if (!isRefused(error)) throw error;
      const expired = idsOf(await this.#pool.run(this.#sql.expired, values));
      await changeAroundRefusal(expired, (ids) =>
        reclaim(this.#sql.reclaimNamed, { ids: JSON.stringify(ids), claimTimeoutMs: values.claimTimeoutMs }),
      );
      // Where only the refused are left, somebody has to be told.
      if (reclaimed === 0) throw error;
    }
    if (reclaimed > 0) this.#hints.sweepSoon();
    return reclaimed;
  }

  async backlog(request: { readonly totalsOnly: boolean } | undefined): Promise<OutboxBacklog> {
    const { backlog, backlogTotals } = this.#sql;
    return backlogOf(await this.#pool.run(request?.totalsOnly ? backlogTotals : backlog));
  }

  #trials(scope: ClaimScope | undefined): ClaimTrials {
    const { dueBehind } = scope === undefined ? this.#sql : this.#sql[scope.which];
    const more = scope === undefined ? {} : { destinations: JSON.stringify(scope.destinations) };
    let from = "0";
    return {
      page: async () => {
        const rows = await this.#pool.run(dueBehind, { from, limit: TRIAL_ROWS, ...more });
        from = (rows.at(-1)?.sequence as string | undefined) ?? from;
        return idsOf(rows);
      },
      attempt: async (ids) => {
        await this.#pool.run(this.#sql.trial, { ids: JSON.stringify(ids) });
      },
    };
  }

  #scopeValues({ destinations, exceptKeys, exceptIds = [] }: ClaimScope): Values {
    return {
      leftOut: JSON.stringify([...this.#leftOut.ids(), ...exceptIds]),
      destinations: JSON.stringify(destinations),
      exceptKeys: JSON.stringify(exceptKeys),
    };
  }

  async #anyDue(statement: Statement, values?: Values): Promise<boolean> {
    const [row] = await this.#pool.run(statement, values);
    return row?.due === 1;
  }

  async #scanAll(name: keyof OutboxStatements["withoutSome"], request: ClaimRequest, from: string): Promise<Scan> {
    const leftOut = this.#leftOut.ids();
    const scan =
      leftOut.length === 0
        ? await this.#scan(this.#sql[name], request, from, {})
        : await this.#scan(this.#sql.withoutSome[name], request, from, { leftOut: JSON.stringify(leftOut) });
    this.#idle = scan.firstPosition === undefined;
    return scan;
  }

  /** @param more values of the parameters that not every claim has */
  async #scan(statement: Statement, request: ClaimRequest, from: string, more: Values): Promise<Scan> {
    const [counts, rows] = await this.#pool.runAll(statement, {
      ...more,
      from,
      limit: request.limit,
      maxBytes: request.maxBytes,
      token: request.token,
      leaseMs: wholeMs(Math.min(request.leaseMs, request.claimTimeoutMs)),
      heldTokens: JSON.stringify(request.heldTokens),
    });
    const [count] = counts ?? [];
    const positions = Number(count?.positions ?? 0);
    const firstPosition = count?.first_position;
    return {
      rows: (rows ?? []).map((row) => claimedRow(row, request.token)),
      more: positions >= request.limit || count?.lost === true,
      heldBack: Number(count?.held_back ?? 0),
      lookedAt: Number(count?.positions ?? 0),
      firstPosition: firstPosition === null || firstPosition === undefined ? undefined : String(firstPosition),
    };
  }

  /** @returns the ids of the rows whose claim was closed */
  async #settleAll(settlements: readonly Outcome[]): Promise<readonly MessageId[]> {
    return idsOf(await this.#pool.run(this.#sql.settle, textBatch(settlements.map(outcomeOf), SETTLED_TEXTS)));
  }
}

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };

function outcomeOf(settlement: Outcome) {
  return {
    id: settlement.id,
    token: settlement.claimToken,
    state: STATE_AFTER[settlement.kind],
    attempts: attemptsOf(settlement),
    delay: wholeMs(delayOf(settlement)),
    reason: "reason" in settlement ? settlement.reason : null,
  };
}

/** DATEADD takes an `int`: the longest time is 24.8 days. */
function wholeMs(ms: number | null): number | null {
  return ms === null ? null : Math.min(Math.round(ms), 2 ** 31 - 1);
}
