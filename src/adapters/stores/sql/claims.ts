import type { ClaimedRow, ClaimToken, MessageId } from "../../../model/rows.ts";
import type { ClaimRequest, ClaimResult, ClaimScope } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { OutboxHints, type ScopeHints, type SeenTable } from "./hints.ts";
import { higher, type LowWater, lower } from "./lowWaterMarks.ts";
import {
  dateOf,
  headersOf,
  idsOf,
  numberOf,
  Quarantine,
  type Row,
  routedRow,
  type StatementRunner,
  TRIAL_ROWS,
  type TrialClaims,
  textOf,
  type Values,
} from "./rows.ts";

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

/** The statements of claims, each from the sequence `from`, which is never below the current low-water mark. */
export interface ClaimStatements<S> extends UnscopedClaims<S> {
  /** The same without quarantined rows, and the others of their keys. */
  readonly withoutSome: UnscopedClaims<S>;
  readonly only: ScopedClaims<S>;
  readonly except: ScopedClaims<S>;
  readonly dueBehind: S;
  /** What a claim changes in named rows, to be rolled back. */
  readonly trial: S;
  /** Idle check: is any row due? At a fraction of a claim's cost. Returns `answer`, as the next two do. */
  readonly due: S;
  /** The same from a cursor on. */
  readonly dueFrom: S;
  /** Whether a sweep could find more than the one with this `seen`; undefined where unknown. */
  readonly mayHaveChanged: S | undefined;
  /** The sequence of the pending row `rows` rows after the first one from `from`; no row when there are fewer. */
  readonly pendingBehind: S;
  /** The sequence behind the last pending row. */
  readonly end: S;
  readonly dialect: ClaimDialect;
}

export interface ClaimDialect {
  scanOf(results: readonly (readonly Row[])[], limit: number): ClaimScan;
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
  /** The table is not the one of which the low-water marks were read. */
  readonly hasGoneBack?: boolean | undefined;
}

/**
 * Claims of outbox rows ("Claims and order" in the design): each begins at the low-water mark, or at a cursor past rows
 * that cannot be claimed now. After a claim that found nothing, an idle check comes first.
 */
export class OutboxClaims<S> {
  readonly #runner: StatementRunner<S>;
  readonly #sql: ClaimStatements<S>;
  readonly #lowWater: LowWater;
  readonly #clock: Clock;
  readonly #quarantine: Quarantine;
  readonly hints: OutboxHints;
  /** The last claim of all rows found no due one. */
  #isIdle = false;

  constructor(runner: StatementRunner<S>, sql: ClaimStatements<S>, lowWater: LowWater, clock: Clock) {
    this.#runner = runner;
    this.#sql = sql;
    this.#lowWater = lowWater;
    this.#clock = clock;
    this.#quarantine = new Quarantine(clock);
    this.hints = new OutboxHints(clock);
    lowWater.marks.onForget(() => this.hints.forget());
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    await this.#lowWater.refreshIfDue();
    const { scope } = request;
    if (scope === undefined && this.#isIdle && !(await this.#answers(this.#sql.due))) return NOTHING;
    try {
      return scope === undefined ? await this.#claimFromFront(request) : await this.#claimInScope(request, scope);
    } catch (error) {
      const refused = await this.#quarantine.addRefused(this.#trialClaims(scope), error);
      return { ...NOTHING, more: true, refused };
    }
  }

  get #mark(): string {
    return this.#lowWater.marks.newest;
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
    const left = { ...request, limit: request.limit - front.rows.length };
    const past = await this.#scanAll("sweepPastBlockedKeys", left, this.#mark);
    hints.frontIsBlocked(past.first ?? end, this.#clock.monotonic() - startedAt);
    return resultOf(
      { ...past, rows: [...front.rows, ...past.rows], heldBack: front.heldBack + past.heldBack },
      request,
    );
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
    const { claim, sweep } = this.#sql[scope.which];
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
    const scan = await this.#scanScope(this.#sql[scope.which].claimRetries, request, scope, values);
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
    const [behind] = await this.#runner.run(this.#sql.pendingBehind, { from, rows: SWEPT_ROWS });
    const to = behind === undefined ? due.to : lower(String(behind.sequence), due.to);
    const { sweep, sweepOn } = this.#sql[scope.which];
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
    const claims = quarantined.length === 0 ? this.#sql : this.#sql.withoutSome;
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
    const { limit, maxBytes, token, leaseMs, claimTimeoutMs, heldTokens } = request;
    const results = await this.#runner.runAll(statement, {
      ...values,
      limit,
      maxBytes,
      token,
      leaseMs: Math.min(leaseMs, claimTimeoutMs),
      claimTimeoutMs,
      lowWater: this.#lowWater.bound(),
      heldTokens,
    });
    const scan = this.#sql.dialect.scanOf(results, limit);
    const { marks } = this.#lowWater;
    if (scan.hasGoneBack) marks.forget();
    const last = scan.rows.at(-1)?.sequence;
    if (last !== undefined) marks.saw(String(last));
    return scan;
  }

  async #end(): Promise<string> {
    const [row] = await this.#runner.run(this.#sql.end);
    return String(row?.end ?? this.#mark);
  }

  async #anyDueFrom(from: string): Promise<boolean> {
    return await this.#answers(this.#sql.dueFrom, { from, lowWater: this.#lowWater.bound(from) });
  }

  async #mayHaveChanged(seen: string): Promise<boolean> {
    const { mayHaveChanged } = this.#sql;
    return mayHaveChanged === undefined || (await this.#answers(mayHaveChanged, { seen }));
  }

  async #answers(statement: S, values: Values = { lowWater: this.#lowWater.bound() }): Promise<boolean> {
    const [row] = await this.#runner.run(statement, values);
    return Boolean(row?.answer);
  }

  #trialClaims(scope: ClaimScope | undefined): TrialClaims {
    const { dueBehind } = scope === undefined ? this.#sql : this.#sql[scope.which];
    const destinations = scope?.destinations;
    let from = "0";
    return {
      nextPage: async () => {
        const rows = await this.#runner.run(dueBehind, { from, limit: TRIAL_ROWS, destinations });
        from = String(rows.at(-1)?.sequence ?? from);
        return idsOf(rows);
      },
      tryClaim: (ids: readonly MessageId[]) => this.#runner.runAndRollBack(this.#sql.trial, { ids }),
    };
  }
}

function resultOf({ rows, more, heldBack }: ClaimScan, { token }: ClaimRequest): ClaimResult {
  return { rows: rows.map((row) => claimedRow(row, token)), more, heldBack };
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
function claimedRow(row: Row, token: ClaimToken): ClaimedRow {
  return {
    id: row.id as MessageId,
    claimToken: token,
    sequence: row.sequence as string,
    ...routedRow(row),
    key: textOf(row.key),
    aggregateType: textOf(row.aggregate_type),
    payload: row.payload as string | null,
    headers: headersOf(row.headers),
    attempt: numberOf(row.attempt, 0),
    maxAttempts: numberOf(row.max_attempts, DEFAULT_MAX_ATTEMPTS),
    createdAt: dateOf(row.created_at),
    expiresInMs: row.expires_in_ms === null ? null : Number(row.expires_in_ms),
  };
}

/** The default of the bundled table's column. */
const DEFAULT_MAX_ATTEMPTS = 5;
