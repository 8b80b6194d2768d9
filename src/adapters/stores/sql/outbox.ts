import type { ClaimToken, MessageId, Outcome } from "../../../model/rows.ts";
import type {
  ClaimRequest,
  ClaimResult,
  DestinationBacklog,
  Lease,
  OutboxBacklog,
  OutboxStore,
  ParkedRow,
  ParkedStore,
  SettledRows,
} from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { type ClaimDialect, type ClaimStatements, OutboxClaims } from "./claims.ts";
import { entriesOf, type NewEntry, noteValues, type SqlHistory, type WithHistory } from "./history.ts";
import type { LowWater } from "./lowWaterMarks.ts";
import {
  changeInParts,
  countChanged,
  countOf,
  dateOf,
  idsOf,
  isRefused,
  listedRow,
  type Named,
  oldestAgeMs,
  type Row,
  SHORT_REASON,
  type StatementRunner,
  tryInParts,
  type Values,
} from "./rows.ts";

export interface OutboxStatements<S> extends ClaimStatements<S> {
  readonly renew: S;
  readonly settle: S;
  /** The same, with the entries of {@link OutboxDialect.entryValues}. */
  readonly settleNoting: S;
  /** For a database whose settlements wait for locked rows only so long. */
  readonly whenLocked?: {
    /** The same as `settle`, of the rows that no other session has locked. */
    readonly settle: S;
    /** Which rows are still under their claims. */
    readonly underClaim: S;
  };
  readonly reclaim: S;
  /** The rows that `reclaim` would return to pending. */
  readonly expired: S;
  readonly reclaimNamed: S;
  readonly backlog: S;
  readonly backlogTotals: S;
  readonly dialect: OutboxDialect;
}

interface OutboxDialect extends ClaimDialect {
  settleValues(settlements: readonly Outcome[]): Values;
  /** @param entries one at least */
  entryValues(entries: readonly NewEntry[]): Values;
  /** Reads the answer of `settle`: the rows whose claim was closed. */
  closedOf(rows: readonly Row[], settlements: readonly Outcome[]): readonly MessageId[];
  /** With `whenLocked`: whether a settlement has given up waiting for a lock. */
  isLockTimeout?(error: unknown): boolean;
}

export class SqlOutbox<S> implements OutboxStore {
  readonly #runner: StatementRunner<S>;
  readonly #sql: OutboxStatements<S>;
  readonly #lowWater: LowWater;
  readonly #claims: OutboxClaims<S>;
  readonly #history: SqlHistory<S>;

  constructor(
    runner: StatementRunner<S>,
    sql: OutboxStatements<S>,
    lowWater: LowWater,
    history: SqlHistory<S>,
    clock: Clock,
  ) {
    this.#history = history;
    this.#runner = runner;
    this.#sql = sql;
    this.#lowWater = lowWater;
    this.#claims = new OutboxClaims(runner, sql, lowWater, clock);
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    return await this.#claims.claim(request);
  }

  async renew(tokens: readonly ClaimToken[], { leaseMs, claimTimeoutMs }: Lease): Promise<ReadonlySet<MessageId>> {
    const { results } = await changeInParts(tokens, async (part) => {
      const values = { tokens: part, leaseMs, claimTimeoutMs, lowWater: this.#lowWater.bound() };
      return idsOf(await this.#runner.run(this.#sql.renew, values));
    });
    return new Set(results.flat());
  }

  /** Where the database refuses a row, settles the others; see {@link plainerThan} for that one. */
  async settle(settlements: readonly Outcome[]): Promise<SettledRows> {
    const closed = new Set<MessageId>();
    const refused = new Map<MessageId, string>();
    for await (const tried of tryInParts(settlements, (part) => this.#settleAll(part))) {
      const part = tried.isRefused ? await this.#settlePlainer(tried.item, tried.error.message) : tried.result;
      for (const id of part.closed) closed.add(id);
      for (const [id, reason] of part.refused) refused.set(id, reason);
    }
    for (const settlement of settlements) {
      if (settlement.kind === "retry") this.#claims.hints.retryIn(settlement.delayMs, settlement);
    }
    return { closed, refused };
  }

  async reclaim(limit: number, claimTimeoutMs: number): Promise<number> {
    const values = { limit, claimTimeoutMs, lowWater: this.#lowWater.bound() };
    let reclaimed: readonly MessageId[];
    try {
      reclaimed = idsOf(await this.#runner.run(this.#sql.reclaim, values));
    } catch (error) {
      if (!isRefused(error)) throw error;
      const expired = idsOf(await this.#runner.run(this.#sql.expired, values));
      const { results } = await changeInParts(expired, async (ids) =>
        idsOf(await this.#runner.run(this.#sql.reclaimNamed, { ids, claimTimeoutMs })),
      );
      reclaimed = results.flat();
      // Only refused rows are left: the caller must see why.
      if (reclaimed.length === 0) throw error;
    }
    if (reclaimed.length > 0) this.#claims.hints.sweepSoon();
    return reclaimed.length;
  }

  async backlog(request: { readonly totalsOnly: boolean } | undefined): Promise<OutboxBacklog> {
    const { backlog, backlogTotals } = this.#sql;
    const statement = request?.totalsOnly ? backlogTotals : backlog;
    return backlogOf(await this.#runner.run(statement, { lowWater: this.#lowWater.bound() }));
  }

  async #settleAll(settlements: readonly Outcome[]): Promise<SettledRows> {
    const { whenLocked, dialect } = this.#sql;
    try {
      return { closed: await this.#closeNoting(settlements), refused: NONE_REFUSED };
    } catch (error) {
      if (whenLocked === undefined || dialect.isLockTimeout?.(error) !== true) throw error;
      const closed = await this.#close(whenLocked.settle, settlements);
      const left = settlements.filter(({ id }) => !closed.has(id));
      const held = idsOf(await this.#runner.run(whenLocked.underClaim, dialect.settleValues(left)));
      return { closed, refused: new Map(held.map((id) => [id, "another transaction holds the row"])) };
    }
  }

  /** Most outcomes were sent and have no entry: then the statement is the plain one. */
  async #closeNoting(settlements: readonly Outcome[]): Promise<ReadonlySet<MessageId>> {
    const { settle, settleNoting, dialect } = this.#sql;
    const entries = entriesOf(settlements);
    if (entries.length === 0) return await this.#close(settle, settlements);
    const values = dialect.entryValues(entries);
    return await this.#history.noting({ plain: settle, noting: settleNoting }, (statement) =>
      this.#close(statement, settlements, values),
    );
  }

  async #close(statement: S, settlements: readonly Outcome[], values: Values = {}): Promise<ReadonlySet<MessageId>> {
    const { settleValues, closedOf } = this.#sql.dialect;
    const rows = await this.#runner.run(statement, { ...settleValues(settlements), ...values });
    return new Set(closedOf(rows, settlements));
  }

  /** A row that refuses every outcome keeps its claim. */
  async #settlePlainer(settlement: Outcome, refusal: string): Promise<SettledRows> {
    for (const plainer of plainerThan(settlement, refusal)) {
      try {
        return await this.#settleAll([plainer]);
      } catch (error) {
        if (!isRefused(error)) throw error;
      }
    }
    return { closed: new Set(), refused: new Map([[settlement.id, refusal]]) };
  }
}

const NONE_REFUSED: ReadonlyMap<MessageId, string> = new Map();

/** The state of a row after its settlement. */
export const STATE_AFTER = {
  sent: "sent",
  retry: "pending",
  park: "pending",
  dead: "dead",
  release: "pending",
} as const;

/** @returns the failed attempts that a settlement adds */
export function attemptsOf(settlement: Outcome): number {
  if (settlement.kind === "retry" || settlement.kind === "park") return 1;
  return settlement.kind === "dead" && settlement.attempted ? 1 : 0;
}

const PARKED_DELAY = -1;

/** @returns after how many ms the row is due again, {@link PARKED_DELAY}, or null where its time stays as it is */
export function delayOf(settlement: Outcome): number | null {
  if (settlement.kind === "park") return PARKED_DELAY;
  return settlement.kind === "retry" ? Math.round(settlement.delayMs) : null;
}

/**
 * What to store of an outcome that the database refuses, the most informative first: the same with a short reason, then
 * `dead`. Nothing for a release: an unattempted row does not die of that.
 */
function plainerThan(settlement: Outcome, refusal: string): readonly Outcome[] {
  const { id, claimToken, kind, record } = settlement;
  if (kind === "release") return [];
  const dead = (reason: string): Outcome => ({ id, claimToken, kind: "dead", attempted: false, reason, record });
  return [
    ...("reason" in settlement ? [{ ...settlement, reason: SHORT_REASON }] : []),
    ...(kind === "dead" ? [] : [dead(`${WHAT_HAPPENED[kind]}, but the database refuses to store that: ${refusal}`)]),
    dead(SHORT_REASON),
    dead(""),
  ];
}

const WHAT_HAPPENED = {
  sent: "delivered",
  retry: "failed, to be tried again",
  park: "failed for good, to be parked",
} as const;

/**
 * The statements on parked rows. Those that change some answer `changed`. In the last error of a discarded row `before`
 * goes before the old one; where it is null, `whole` replaces it. `discardPending` discards any pending row.
 */
export type ParkedStatements<S> = Named<S, "list" | "retry" | "hasten" | "discard" | "discardPending">;

/** Parked rows in a SQL database. */
export function parkedStore<S>(
  runner: StatementRunner<S>,
  statements: WithHistory<ParkedStatements<S>>,
  history: SqlHistory<S>,
): ParkedStore {
  const change = (which: Exclude<keyof ParkedStatements<S>, "list">, values: Values): Promise<number> =>
    history.noting(statements, async (sql) => countOf(await runner.run(sql[which], values), "changed"));
  const discard = async (
    which: "discard" | "discardPending",
    ids: readonly MessageId[],
    by: string,
    reason: string,
  ): Promise<number> => {
    const note = noteValues(by, reason);
    return await countChanged(ids, async (part) => {
      const values = { ids: part, ...note };
      try {
        return await change(which, { ...values, before: `discarded by ${by}: ${reason}`, whole: null });
      } catch (error) {
        if (!isRefused(error) || part.length > 1) throw error;
        // An owner's column may be too narrow for the reason.
        return await change(which, { ...values, before: null, whole: SHORT_REASON });
      }
    });
  };
  return {
    async list({ ids, key }, after, limit) {
      const values = { from: after ?? "0", limit, ids: ids ?? null, key: key ?? null };
      return (await runner.run(statements.plain.list, values)).map(parkedRow);
    },

    async retry(ids, by) {
      return await countChanged(ids, (part) => change("retry", { ids: part, ...noteValues(by, null) }));
    },

    async hasten(ids, by) {
      return await countChanged(ids, (part) => change("hasten", { ids: part, ...noteValues(by, null) }));
    },

    discard: (ids, by, reason) => discard("discard", ids, by, reason),
    discardPending: (ids, by, reason) => discard("discardPending", ids, by, reason),
  };
}

/** @param rows one for each destination, or one without any; each has the figures of all */
function backlogOf(rows: readonly Row[]): OutboxBacklog {
  const [first] = rows;
  const byDestination = new Map<string, DestinationBacklog>();
  for (const row of rows) {
    if (typeof row.destination !== "string") continue;
    byDestination.set(row.destination, {
      pending: Number(row.pending),
      oldestPendingAgeMs: oldestAgeMs(row),
      processing: Number(row.processing),
      blockedKeys: Number(row.blocked),
    });
  }
  return {
    pending: Number(first?.all_pending ?? 0),
    oldestPendingAgeMs: oldestAgeMs({ oldest_ms: first?.all_oldest_ms }),
    blockedKeys: Number(first?.blocked_keys ?? 0),
    parked: Number(first?.parked ?? 0),
    byDestination,
  };
}

function parkedRow(row: Row): ParkedRow {
  return { ...listedRow(row), parkedAt: dateOf(row.updated_at) };
}
