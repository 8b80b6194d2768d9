import { isRefused } from "../../../model/errors.ts";
import type { ClaimedRow, ClaimToken, MessageId, Outcome } from "../../../model/rows.ts";
import type { ClaimRequest, ClaimResult, ClaimScope, SettledRows } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { OutboxHints, type ScopeHints, type SeenTable } from "./hints.ts";
import { entriesOf, type NewEntry, type SqlHistory, type WithHistory } from "./history.ts";
import { higher, type LowWater, lower } from "./lowWaterMarks.ts";
import { plainerThan } from "./outcomes.ts";
import {
  dateOf,
  headersOf,
  idsOf,
  isBehind,
  numberOf,
  Quarantine,
  type RefusedRow,
  type Row,
  routedRow,
  SKIPPED_REASON,
  type SkippedRow,
  type StatementRunner,
  type TrialClaims,
  textOf,
  tooLargeOf,
  tryInHalves,
  type Values,
} from "./rows.ts";
import { Verdict } from "./verdict.ts";

/** Claims of all rows. A database may have a statement per limit; that of a sweep varies too much. */
export interface UnscopedClaims<S> {
  claimInOrder(limit: number): S;
  claimPastBlockedKeys(limit: number): S;
  readonly sweepPastBlockedKeys: S;
}

/** Claims of a scope, all past the blocked keys. */
export interface ScopedClaims<S> {
  claim(limit: number): S;
  /** From the low-water mark, with what was set back to pending below it; up to `to`. `sweepOn`: its next stretch. */
  readonly sweep: S;
  readonly sweepOn: S;
  /** Rows in front of the cursor whose retry fell due in the last `withinMs`, by an index on that time. */
  readonly claimRetries: S;
  /** Due rows of the scope behind a sequence. */
  readonly dueBehind: S;
}

/**
 * The statements that claim rows, each from the sequence `from`, which is never below the current low-water mark, and
 * that settle them.
 */
export interface ClaimStatements<S> extends UnscopedClaims<S> {
  /** The same without quarantined rows, and the others of their keys. */
  readonly withoutSome: UnscopedClaims<S>;
  readonly only: ScopedClaims<S>;
  readonly except: ScopedClaims<S>;
  readonly dueBehind: S;
  /** What a claim changes in named rows, to be rolled back: each is under its own id as the token. */
  readonly trial: S;
  /** Makes the row that was sent last pending, to be rolled back. Returns its `id`; no row without one. */
  readonly setBack: S;
  /** Idle check: is any row due? At a fraction of a claim's cost. Returns `answer`, as `dueFrom` and `mayHaveChanged` do. */
  readonly due: S;
  /** For `OutboxStore.glance`, by the names of its properties in snake case. */
  readonly glance: S;
  /** `due` from a cursor on. */
  readonly dueFrom: S;
  /** Whether a sweep could find more than the one with this `seen`; undefined where unknown. */
  readonly mayHaveChanged: S | undefined;
  /** Whether rows may be without the times by which `mayHaveChanged` finds those that fell due. */
  readonly mayLackTimes: S | undefined;
  /** The sequence of the pending row `rows` rows after the first one from `from`; no row when there are fewer. */
  readonly pendingBehind: S;
  /** The sequence behind the last pending row. */
  readonly end: S;
  /**
   * Of the rows `ids` under their `tokens`, those behind an unfinished row of their key that is not among `finished`.
   */
  readonly behindUnfinished: S;
  /** `noting` writes the entries of {@link ClaimDialect.entryValues}, too. */
  readonly settle: WithHistory<S>;
  /** For a database whose settlements wait for locked rows only so long. */
  readonly whenLocked?: {
    /** Of the rows that no other transaction holds. */
    readonly free: WithHistory<S>;
    /** Which rows are still under their claims, or only by their state, which a trigger has kept. */
    readonly underClaim: S;
  };
  readonly dialect: ClaimDialect;
}

interface ClaimDialect {
  scanOf(results: readonly (readonly Row[])[], limit: number): ClaimScan;
  settleValues(settlements: readonly Outcome[]): Values;
  /** @param entries one at least */
  entryValues(entries: readonly NewEntry[]): Values;
  /** Reads the answer of a settlement: the rows whose claim was closed. */
  closedOf(rows: readonly Row[], settlements: readonly Outcome[]): readonly MessageId[];
  /** With `whenLocked`: the rows that a settlement of `free` ones did not find locked. */
  freeOf?(rows: readonly Row[]): readonly MessageId[];
  /** With `whenLocked`: whether a settlement has given up waiting for locks. */
  hasGivenUp?(error: unknown): boolean;
}

export interface ClaimScan {
  readonly rows: readonly Row[];
  /** It was full: more rows are probably due. */
  readonly more: boolean;
  /** Rows that stay behind an earlier row of their key. */
  readonly heldBack: number;
  /** Rows read: claimed, held back, locked by another session, and too large for this claim. */
  readonly rowsRead: number;
  /** Sequence of the first of them. */
  readonly first: string | undefined;
  /** What it saw of the table, for `mayHaveChanged`. */
  readonly seen?: string | undefined;
  /** A database may name them instead of failing. */
  readonly skipped?: readonly SkippedRow[];
  /** What became of these. */
  readonly refused?: readonly RefusedRow[];
  /** The table is not the one of which the low-water marks were read. */
  readonly hasGoneBack?: boolean | undefined;
}

/**
 * Claims of outbox rows ("Claims and order" in the design), and their outcomes. Each claim begins at the low-water
 * mark, or at a cursor past rows that cannot be claimed now. After a claim that found nothing, an idle check comes
 * first.
 */
export class OutboxClaims<S, Statements extends ClaimStatements<S> = ClaimStatements<S>> {
  protected readonly runner: StatementRunner<S>;
  protected readonly sql: Statements;
  protected readonly lowWater: LowWater;
  readonly #history: SqlHistory<S>;
  readonly #clock: Clock;
  readonly #quarantine: Quarantine;
  readonly #verdict = new Verdict();
  readonly hints: OutboxHints;
  /** The last claim of all rows found no due one. */
  #isIdle = false;

  constructor(runner: StatementRunner<S>, sql: Statements, lowWater: LowWater, history: SqlHistory<S>, clock: Clock) {
    this.runner = runner;
    this.sql = sql;
    this.lowWater = lowWater;
    this.#history = history;
    this.#clock = clock;
    this.#quarantine = new Quarantine(clock);
    this.hints = new OutboxHints(clock);
    lowWater.marks.onForget(() => this.hints.forget());
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    await this.lowWater.refreshIfDue();
    const { scope } = request;
    if (scope === undefined && this.#isIdle && !(await this.#answers(this.sql.due))) return NOTHING;
    try {
      return scope === undefined ? await this.#claimFromFront(request) : await this.#claimInScope(request, scope);
    } catch (error) {
      const refused = await this.#quarantine.addRefused(this.#trialClaims(scope), error);
      return { ...NOTHING, more: true, refused };
    }
  }

  get #mark(): string {
    return this.lowWater.marks.newest;
  }

  /** Claims in order from the front; past the blocked keys where they hold back most of it. */
  async #claimFromFront(request: ClaimRequest): Promise<ClaimResult> {
    const hints = this.hints.unscoped;
    const { cursor } = hints;
    if (cursor !== undefined && !hints.startsAtMark()) {
      const scan = await this.#scanAll("claimPastBlockedKeys", request, higher(cursor, this.#mark));
      if (scan.first !== undefined) hints.advance(scan.first);
      return resultOf(scan, request);
    }
    const front = await this.#scanAll("claimInOrder", request, this.#mark);
    if (!front.more || front.heldBack * 2 <= request.limit) {
      hints.frontIsFree();
      return resultOf(front, request);
    }
    const startedAt = this.#clock.monotonic();
    // Read before the scan: a row that appears behind this position during the scan is then still in front of the
    // cursor.
    const end = await this.#end();
    // It goes on with the keys that the front has given it.
    const heldTokens = [...request.heldTokens, request.token];
    const left = { ...request, heldTokens, limit: request.limit - front.rows.length };
    let past: ClaimScan;
    try {
      past = await this.#scanAll("sweepPastBlockedKeys", left, this.#mark);
    } catch (error) {
      return await this.#frontAlone(resultOf(front, request), error);
    }
    hints.frontIsBlocked(past.first ?? end, this.#clock.monotonic() - startedAt);
    const both = {
      ...past,
      rows: [...front.rows, ...past.rows],
      heldBack: front.heldBack + past.heldBack,
      refused: [...(front.refused ?? []), ...(past.refused ?? [])],
    };
    return resultOf(both, request);
  }

  /**
   * The claim of a front when the second statement was refused, so claimed nothing: its rows need not wait for their
   * lease to end.
   *
   * @throws the failure, when it may have claimed rows under the same token, or when there is nothing to lose
   */
  async #frontAlone(front: ClaimResult, failure: unknown): Promise<ClaimResult> {
    if (!isRefused(failure) || front.rows.length === 0) throw failure;
    // Where no row is found, the next claims have the same failure, and one of them no row in front.
    const refused = await this.#quarantine.addRefused(this.#trialClaims(undefined), failure).catch(() => []);
    return { ...front, more: true, refused: [...(front.refused ?? []), ...refused] };
  }

  /** Claims rows of a scope, and reports when a sweep of its front continues. */
  async #claimInScope(request: ClaimRequest, scope: ClaimScope): Promise<ClaimResult> {
    const hints = this.hints.of(scope);
    const result = await this.#claimPastFront(hints, request, scope);
    const { goesOnInMs } = hints;
    return goesOnInMs === undefined ? result : { ...result, goesOnInMs };
  }

  /**
   * Claims rows of a scope: first due retries and a stretch of its front, when due. After a claim that found nothing,
   * an idle check comes first.
   */
  async #claimPastFront(hints: ScopeHints, request: ClaimRequest, scope: ClaimScope): Promise<ClaimResult> {
    // One statement claims: if a second one failed, these rows would wait for their lease to end.
    const retries = await this.#claimRetries(hints, request, scope);
    if (retries.rows.length > 0) return { ...retries, more: true };
    const swept = await this.#sweepStretch(hints, request, scope);
    if (swept.rows.length > 0) return { ...swept, more: true };
    const { cursor } = hints;
    const mark = this.#mark;
    if (cursor !== undefined && hints.foundNothing && !(await this.#anyDueFrom(higher(cursor, mark)))) return NOTHING;
    const startedAt = this.#clock.monotonic();
    // As in `#claimFromFront`.
    const position = cursor === undefined || hints.needsEnd ? higher(await this.#end(), mark) : undefined;
    const end = position === undefined ? undefined : { position, readAt: this.#clock.monotonic() };
    const from = higher(cursor ?? mark, mark);
    const { claim, sweep } = this.sql[scope.which];
    const statement = cursor === undefined ? sweep : claim(request.limit);
    const scan = await this.#scanScope(statement, request, scope, { from, to: LAST_POSITION });
    hints.claimed({
      from,
      first: scan.first,
      end,
      tookMs: this.#clock.monotonic() - startedAt,
      seen: seenBy(scan, scope),
    });
    return resultOf(scan, request);
  }

  /** Claims rows in front of a scope's cursor whose retry has fallen due, when it is time for that. */
  async #claimRetries(hints: ScopeHints, request: ClaimRequest, scope: ClaimScope): Promise<ClaimResult> {
    const due = hints.dueRetries(this.#mark);
    if (due === undefined) return NOTHING;
    const startedAt = this.#clock.monotonic();
    const values = { ...due, withinMs: Math.ceil(due.withinMs) };
    const scan = await this.#scanScope(this.sql[scope.which].claimRetries, request, scope, values);
    hints.retriesClaimed(startedAt, scan.more && scan.rows.length > 0);
    return resultOf(scan, request);
  }

  async #sweepStretch(hints: ScopeHints, request: ClaimRequest, scope: ClaimScope): Promise<ClaimResult> {
    const due = hints.dueSweep(this.#mark);
    if (due === undefined) return NOTHING;
    const startedAt = this.#clock.monotonic();
    const { seen } = hints;
    if (due.isFresh && seen !== undefined && areSame(seen.destinations, scope.destinations)) {
      if (!(await this.#mayHaveChanged(seen.table))) {
        hints.sweepIsNeedless(this.#clock.monotonic() - startedAt);
        return NOTHING;
      }
    }
    const { from } = due;
    const [behind] = await this.runner.run(this.sql.pendingBehind, { from, rows: SWEPT_ROWS });
    const to = behind === undefined ? due.to : lower(String(behind.sequence), due.to);
    const { sweep, sweepOn } = this.sql[scope.which];
    const scan = await this.#scanScope(due.isFresh ? sweep : sweepOn, request, scope, { from, to });
    hints.swept({
      to,
      first: scan.first,
      hasTakenAll: !scan.more && scan.rows.length + scan.heldBack >= scan.rowsRead,
      tookMs: this.#clock.monotonic() - startedAt,
      seen: seenBy(scan, scope),
    });
    return resultOf(scan, request);
  }

  async #scanAll(name: keyof UnscopedClaims<S>, request: ClaimRequest, from: string): Promise<ClaimScan> {
    const quarantined = this.#quarantine.ids();
    const claims = quarantined.length === 0 ? this.sql : this.sql.withoutSome;
    const statement = name === "sweepPastBlockedKeys" ? claims[name] : claims[name](request.limit);
    const scan = await this.#scan(statement, request, { from, quarantined });
    this.#isIdle = scan.first === undefined;
    return scan;
  }

  async #scanScope(statement: S, request: ClaimRequest, scope: ClaimScope, range: Values): Promise<ClaimScan> {
    const { destinations, exceptKeys, exceptIds = [] } = scope;
    const quarantined = this.#quarantine.ids();
    const values = { ...range, destinations, exceptKeys, quarantined: [...quarantined, ...exceptIds] };
    const scan = await this.#scan(statement, request, values);
    // A quarantined row is tried again after a while, though nothing has changed.
    return quarantined.length === 0 ? scan : { ...scan, seen: undefined };
  }

  async #scan(statement: S, request: ClaimRequest, values: Values): Promise<ClaimScan> {
    const { limit, maxBytes, token, leaseMs, claimTimeoutMs } = request;
    const results = await this.runner.runAll(statement, {
      ...values,
      limit,
      maxBytes,
      token,
      leaseMs: Math.min(leaseMs, claimTimeoutMs),
      claimTimeoutMs,
      lowWater: this.lowWater.bound(),
      heldTokens: this.lowWater.held.begin(request),
    });
    const scan = this.sql.dialect.scanOf(results, limit);
    const { marks } = this.lowWater;
    if (scan.hasGoneBack) marks.forget();
    const last = scan.rows.at(-1)?.sequence;
    if (last !== undefined) marks.saw(String(last));
    return scan.skipped === undefined || scan.skipped.length === 0
      ? scan
      : await this.#withoutSkipped(scan, scan.skipped, request);
  }

  /**
   * Gives back the rows of the keys of skipped ones. One that may not be given back stays under the claim, and no later
   * row of its key may pass it while the claim lasts.
   */
  async #withoutSkipped(
    scan: ClaimScan,
    skipped: readonly SkippedRow[],
    { token: claimToken, claimTimeoutMs }: ClaimRequest,
  ): Promise<ClaimScan> {
    const isOf = (row: Row): boolean => isBehind(skipped, textOf(row.key));
    const behind = idsOf(scan.rows.filter(isOf));
    const settled = await this.settle(behind.map((id) => ({ id, claimToken, kind: "release" })));
    const kept = [...settled.refused, ...(settled.busy ?? [])].map(([id, reason]) => ({ id, reason }));
    this.#quarantine.add(kept, claimTimeoutMs);
    const refused = [...this.#quarantine.addSkipped(skipped), ...kept];
    return { ...scan, rows: scan.rows.filter((row) => !isOf(row)), refused };
  }

  async #end(): Promise<string> {
    const [row] = await this.runner.run(this.sql.end);
    return String(row?.end ?? this.#mark);
  }

  async #anyDueFrom(from: string): Promise<boolean> {
    return await this.#answers(this.sql.dueFrom, { from, lowWater: this.lowWater.bound(from) });
  }

  async #mayHaveChanged(seen: string): Promise<boolean> {
    const { mayHaveChanged, mayLackTimes } = this.sql;
    if (mayHaveChanged === undefined || (await this.#answers(mayHaveChanged, { seen }))) return true;
    return mayLackTimes !== undefined && (await this.#answers(mayLackTimes));
  }

  async #answers(statement: S, values: Values = { lowWater: this.lowWater.bound() }): Promise<boolean> {
    const [row] = await this.runner.run(statement, values);
    return Boolean(row?.answer);
  }

  #trialClaims(scope: ClaimScope | undefined): TrialClaims {
    const { dueBehind } = scope === undefined ? this.sql : this.sql[scope.which];
    const destinations = scope?.destinations;
    let from = "0";
    return {
      nextPage: async (limit) => {
        const rows = await this.runner.run(dueBehind, { from, limit, destinations });
        from = String(rows.at(-1)?.sequence ?? from);
        return idsOf(rows);
      },
      tryClaim: (ids) => this.runner.runAndRollBack((run) => run(this.sql.trial, { ids })),
      accepted: () => this.#acceptsAgain(),
    };
  }

  /** Claims the row that was sent last, and rolls that back. @param outcome of another row, for it to take too */
  async #acceptsAgain(outcome?: Outcome): Promise<boolean> {
    return await this.runner.runAndRollBack(async (run) => {
      const [id] = idsOf(await run(this.sql.setBack));
      if (id === undefined) return false;
      await run(this.sql.trial, { ids: [id] });
      if (outcome === undefined) return true;
      const own = { ...outcome, id, claimToken: id as string as ClaimToken };
      const plain = "reason" in own ? { ...own, reason: "" } : own;
      await run(this.sql.settle.plain, this.sql.dialect.settleValues([plain]));
      return true;
    });
  }

  async check(): Promise<void> {
    await this.#verdict.check();
  }

  /** If the database refuses a row, settles the others; see {@link Verdict}, and {@link plainerThan} for that one. */
  async settle(settlements: readonly Outcome[], mayWait?: boolean): Promise<SettledRows> {
    const passing = await this.#passing(settlements);
    const others = passing.size === 0 ? settlements : settlements.filter(({ id }) => !passing.has(id));
    if (others.length === 0) return { closed: new Set(), refused: passing };
    let settled: SettledRows;
    try {
      settled = await this.#settleAll(others, mayWait !== false);
      this.#verdict.passed();
    } catch (error) {
      settled = await this.#settleInHalves(others, error);
    }
    for (const settlement of others) {
      if (settlement.kind === "retry") this.hints.retryIn(settlement.delayMs, settlement);
    }
    return passing.size === 0 ? settled : { ...settled, refused: new Map([...passing, ...settled.refused]) };
  }

  /**
   * In a table that went back, a row may have been delivered behind one that is unfinished again, and is delivered once
   * more. It must come after that one: so it stays under its claim.
   *
   * @returns these rows, with the reason
   */
  async #passing(settlements: readonly Outcome[]): Promise<SettledRows["refused"]> {
    this.lowWater.bound();
    const { held } = this.lowWater;
    const doubtful = settlements.filter(({ kind, claimToken }) => kind === "sent" && !held.knows(claimToken));
    if (doubtful.length === 0) return NONE_REFUSED;
    const rows = await this.runner.run(this.sql.behindUnfinished, {
      ids: doubtful.map(({ id }) => id),
      tokens: doubtful.map(({ claimToken }) => claimToken),
      finished: settlements.filter(({ kind }) => kind === "sent" || kind === "dead").map(({ id }) => id),
    });
    return new Map(idsOf(rows).map((id) => [id, PASSING]));
  }

  async #settleAll(settlements: readonly Outcome[], mayWait: boolean): Promise<SettledRows> {
    const { whenLocked, dialect, settle } = this.sql;
    const mayGiveUp = mayWait && whenLocked !== undefined;
    let rows: readonly Row[];
    try {
      rows = await this.#close(mayWait ? settle : (whenLocked?.free ?? settle), settlements, mayGiveUp);
    } catch (error) {
      if (!mayGiveUp || dialect.hasGivenUp?.(error) !== true) throw error;
      return await this.#settleAll(settlements, false);
    }
    const closed = new Set(dialect.closedOf(rows, settlements));
    // Mostly of claims that were lost.
    const left = settlements.filter(({ id }) => !closed.has(id));
    if (left.length === 0 || whenLocked === undefined) return { closed, refused: NONE_REFUSED };
    const kept = idsOf(await this.runner.run(whenLocked.underClaim, dialect.settleValues(left)));
    const free = mayGiveUp ? undefined : new Set(dialect.freeOf?.(rows));
    const isHeld = (id: MessageId): boolean => free?.has(id) === false;
    return {
      closed,
      refused: new Map(kept.filter((id) => !isHeld(id)).map((id) => [id, SKIPPED_REASON])),
      busy: new Map(kept.filter(isHeld).map((id) => [id, HELD])),
    };
  }

  /** Most outcomes were sent and have no entry: then the statement is the plain one. */
  async #close(
    statements: WithHistory<S>,
    settlements: readonly Outcome[],
    mayGiveUp: boolean,
  ): Promise<readonly Row[]> {
    const { dialect } = this.sql;
    const entries = entriesOf(settlements);
    const values = dialect.settleValues(settlements);
    if (entries.length === 0) return await this.runner.run(statements.plain, values);
    return await this.#history.noting(
      statements,
      (statement) => this.runner.run(statement, { ...values, ...dialect.entryValues(entries) }),
      mayGiveUp,
    );
  }

  async #settleInHalves(settlements: readonly Outcome[], failure: unknown): Promise<SettledRows> {
    const closed = new Set<MessageId>();
    const refused = new Map<MessageId, string>();
    const busy = new Map<MessageId, string>();
    const parts = tryInHalves(settlements, failure, (part) => this.#settleAll(part, false));
    const judged = this.#verdict.of(parts, {
      proves: (settled) => settled.closed.size > 0,
      accepted: (outcome) => this.#acceptsAgain(outcome),
      again: (outcome) => {
        const values = this.sql.dialect.settleValues([outcome]);
        return this.runner.runAndRollBack((run) => run(this.sql.settle.plain, values));
      },
    });
    for await (const tried of judged) {
      if (tried.isRefused && tried.error.code === "busy") {
        busy.set(tried.item.id, tried.error.message);
        if (busy.size < MOST_BUSY || closed.size > 0) continue;
        // None can be written now: each further try would say the same.
        for (const { id } of settlements) if (!refused.has(id)) busy.set(id, tried.error.message);
        break;
      }
      const part = tried.isRefused ? await this.#settlePlainer(tried.item, tried.error.message) : tried.result;
      for (const id of part.closed) closed.add(id);
      for (const [id, reason] of part.refused) refused.set(id, reason);
      for (const [id, reason] of part.busy ?? []) busy.set(id, reason);
    }
    return { closed, refused, busy };
  }

  /** A row that refuses every outcome keeps its claim. */
  async #settlePlainer(settlement: Outcome, refusal: string): Promise<SettledRows> {
    for (const plainer of plainerThan(settlement, refusal)) {
      try {
        return await this.#settleAll([plainer], false);
      } catch (error) {
        if (!isRefused(error)) throw error;
      }
    }
    return { closed: new Set(), refused: new Map([[settlement.id, refusal]]) };
  }
}

function resultOf({ rows, more, heldBack, refused = [] }: ClaimScan, { token }: ClaimRequest): ClaimResult {
  const result = { rows: rows.map((row) => claimedRow(row, token)), more, heldBack };
  return refused.length === 0 ? result : { ...result, more: true, refused };
}

/** Undefined also where a key or a row was left out, which the next claim may include. */
function seenBy({ seen }: ClaimScan, { destinations, exceptKeys, exceptIds = [] }: ClaimScope): SeenTable | undefined {
  if (seen === undefined || exceptKeys.length + exceptIds.length > 0) return undefined;
  return { table: seen, destinations };
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((each, n) => each === others[n]);
}

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };
/** Rows of a front that one claim reads: it takes some 10 ms. */
const SWEPT_ROWS = 5000;
const LAST_POSITION = "9223372036854775807";

/** @param token under which the row was claimed */
export function claimedRow(row: Row, token: ClaimToken): ClaimedRow {
  return {
    id: row.id as MessageId,
    claimToken: token,
    sequence: row.sequence as string,
    ...routedRow(row),
    key: textOf(row.key),
    aggregateType: textOf(row.aggregate_type),
    payload: row.payload as string | null,
    tooLarge: tooLargeOf(row),
    headers: headersOf(row.headers),
    attempt: numberOf(row.attempt, 0),
    maxAttempts: numberOf(row.max_attempts, DEFAULT_MAX_ATTEMPTS),
    createdAt: dateOf(row.created_at),
    expiresInMs: row.expires_in_ms === null ? null : Number(row.expires_in_ms),
  };
}

/** The default of the bundled table's column. */
const DEFAULT_MAX_ATTEMPTS = 5;

const MOST_BUSY = 8;
const HELD = "another transaction holds the row";
const NONE_REFUSED: ReadonlyMap<MessageId, string> = new Map();
const PASSING =
  "delivered, but an earlier row of its key is unfinished again, as in a database that went back in time: it is delivered once more behind that";
