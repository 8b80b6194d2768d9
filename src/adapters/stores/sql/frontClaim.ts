import type { ClaimRequest, ClaimResult, ClaimScope } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import type { ClaimHints, OutboxHints } from "./hints.ts";
import type { Marks } from "./marks.ts";
import { higher, lower } from "./positions.ts";
import type { DueRetries, ScopeHints, SeenTable } from "./scopeHints.ts";

/** What one run of a claim statement found. */
export interface Scan extends ClaimResult {
  /** How many rows were looked at; those that are not returned were held back, somebody else's, or too large for this claim. */
  readonly lookedAt: number;
  /** Sequence of the first of them. */
  readonly firstPosition: string | undefined;
  /** What it saw of the table, for {@link ClaimScans.mayHaveChanged}; undefined where that cannot be told. */
  readonly seen?: string | undefined;
}

/**
 * The statements of a claim, each from a sequence on. It is never below the mark of that moment: of the rows below the mark only those that have been set back
 * are looked for, and only in front of the sequence, to keep the order of their keys.
 */
export interface ClaimScans {
  inOrder(request: ClaimRequest, from: string): Promise<Scan>;
  /** @param isSweep true when the request's limit is what a scan in order has left of it */
  pastBlockedKeys(request: ClaimRequest, from: string, isSweep: boolean): Promise<Scan>;
  /** Past the blocked keys, too. @param sweep undefined for a claim from the scope's cursor on */
  inScope(request: ClaimRequest, scope: ClaimScope, from: string, sweep: SweepPart | undefined): Promise<Scan>;
  /** Of the same rows those whose retry has fallen due of late, past the blocked keys; found by that time, so that rows in backoff and parked ones cost nothing. */
  retriesInScope(request: ClaimRequest, scope: ClaimScope, retries: DueRetries): Promise<Scan>;
  /** The sequence of the pending row so many rows behind the first one from `from` on; undefined when there are fewer. */
  pendingBehind(from: string, rows: number): Promise<string | undefined>;
  /** The sequence behind the last pending row. */
  end(): Promise<string>;
  /** Whether any row is due from a sequence on, of whatever scope: a fraction of a claim. */
  anyDue(from: string): Promise<boolean>;
  /** Whether rows can be free that a sweep did not meet which has seen the table so. */
  mayHaveChanged(seen: string): Promise<boolean>;
}

/** A claim that does not begin at a cursor. */
export interface SweepPart {
  /** The first sequence that is not looked at. */
  readonly to: string;
  /** Whether it begins at the mark, and so with what has been set back below that. */
  readonly isFirst: boolean;
}

/** Claims from where the hints say. */
export async function claimByHints(
  scans: ClaimScans,
  hints: OutboxHints,
  clock: Clock,
  request: ClaimRequest,
): Promise<ClaimResult> {
  return request.scope === undefined
    ? await claimFromFront(scans, hints.unscoped, hints.marks, clock, request)
    : await claimInScope(scans, hints, clock, request, request.scope);
}

/**
 * Claims in order from the front; where most of the front is held back, past the blocked keys, and remembers where the free rows begin
 * (design, "Claims and order").
 */
async function claimFromFront(
  scans: ClaimScans,
  hints: ClaimHints,
  marks: Marks,
  clock: Clock,
  request: ClaimRequest,
): Promise<ClaimResult> {
  const { cursor } = hints;
  if (cursor !== undefined && !hints.startsAtMark()) {
    const scan = await scans.pastBlockedKeys(request, higher(cursor, marks.mark), false);
    if (scan.firstPosition !== undefined) hints.advance(scan.firstPosition);
    return scan;
  }
  const front = await scans.inOrder(request, marks.mark);
  if (!front.more || front.heldBack * 2 <= request.limit) {
    hints.frontIsFree();
    return front;
  }
  const startedAt = clock.monotonic();
  // Read before the scan: a row that comes in behind this position while the scan runs is then still in front of the cursor.
  const end = await scans.end();
  const limit = request.limit - front.rows.length;
  const past = await scans.pastBlockedKeys({ ...request, limit }, marks.mark, true);
  hints.frontIsBlocked(past.firstPosition ?? end, clock.monotonic() - startedAt);
  return {
    rows: [...front.rows, ...past.rows],
    more: past.more,
    heldBack: front.heldBack + past.heldBack,
  };
}

/** A claim of a scope, and what it works with. */
interface ScopedClaim {
  readonly scans: ClaimScans;
  readonly marks: Marks;
  readonly scopeHints: ScopeHints;
  readonly clock: Clock;
  readonly request: ClaimRequest;
  readonly scope: ClaimScope;
}

/** Claims rows of a scope, and tells when a sweep of its front goes on. */
async function claimInScope(
  scans: ClaimScans,
  hints: OutboxHints,
  clock: Clock,
  request: ClaimRequest,
  scope: ClaimScope,
): Promise<ClaimResult> {
  const scopeHints = hints.of(scope);
  const result = await claimPastFront({ scans, marks: hints.marks, scopeHints, clock, request, scope });
  const { goesOnInMs } = scopeHints;
  return goesOnInMs === undefined ? result : { ...result, goesOnInMs };
}

/**
 * Claims rows of a scope, past whatever is in front of them, and looks through a part of that where it is time. Where nothing was met lately it looks first
 * whether that can be different by now.
 */
async function claimPastFront(claim: ScopedClaim): Promise<ClaimResult> {
  const { scans, marks, scopeHints, clock, request, scope } = claim;
  // One statement claims: were a second one to fail, these rows would wait for their lease to end.
  const retries = await claimRetries(claim);
  if (retries.rows.length > 0) return { ...retries, more: true };
  const swept = await sweepStretch(claim);
  if (swept.rows.length > 0) return { ...swept, more: true };
  const { cursor } = scopeHints;
  const { mark } = marks;
  if (cursor !== undefined && scopeHints.foundNothing && !(await scans.anyDue(higher(cursor, mark)))) return NOTHING;
  const startedAt = clock.monotonic();
  // Read before the scan: a row that comes in behind this position while the scan runs is then still in front of the cursor.
  const position = cursor === undefined || scopeHints.wantsEnd ? higher(await scans.end(), mark) : undefined;
  const end = position === undefined ? undefined : { position, readAt: clock.monotonic() };
  const from = higher(cursor ?? mark, mark);
  const sweep = cursor === undefined ? { to: LAST_POSITION, isFirst: true } : undefined;
  const scan = await scans.inScope(request, scope, from, sweep);
  scopeHints.looked({
    from,
    first: scan.firstPosition,
    end,
    tookMs: clock.monotonic() - startedAt,
    seen: seenBy(scan, scope),
  });
  return scan;
}

/** Claims rows in front of a scope's cursor whose retry has fallen due, if it is time to look for them. What it met says nothing of other rows. */
async function claimRetries({ scans, marks, scopeHints, clock, request, scope }: ScopedClaim): Promise<ClaimResult> {
  const due = scopeHints.dueRetries(marks.mark);
  if (due === undefined) return NOTHING;
  const beganAt = clock.monotonic();
  const scan = await scans.retriesInScope(request, scope, due);
  scopeHints.retriesLookedFor(beganAt, scan.more && scan.rows.length > 0);
  return scan;
}

/** Claims what is free in the next stretch of a scope's front, if that is to be swept now. */
async function sweepStretch({ scans, marks, scopeHints, clock, request, scope }: ScopedClaim): Promise<ClaimResult> {
  const due = scopeHints.dueSweep(marks.mark);
  if (due === undefined) return NOTHING;
  const startedAt = clock.monotonic();
  const { seen } = scopeHints;
  if (due.isFresh && seen !== undefined && areSame(seen.destinations, scope.destinations)) {
    if (!(await scans.mayHaveChanged(seen.table))) {
      scopeHints.sweepIsNeedless(clock.monotonic() - startedAt);
      return NOTHING;
    }
  }
  const { from } = due;
  const to = lower((await scans.pendingBehind(from, SWEPT_ROWS)) ?? due.to, due.to);
  const scan = await scans.inScope(request, scope, from, { to, isFirst: due.isFresh });
  scopeHints.swept({
    to,
    first: scan.firstPosition,
    hasTakenAll: !scan.more && scan.rows.length + scan.heldBack >= scan.lookedAt,
    tookMs: clock.monotonic() - startedAt,
    seen: seenBy(scan, scope),
  });
  return scan;
}

/** Undefined also where a key or a row was left out, which the next claim may not leave out. */
function seenBy({ seen }: Scan, { destinations, exceptKeys, exceptIds = [] }: ClaimScope): SeenTable | undefined {
  if (seen === undefined || exceptKeys.length + exceptIds.length > 0) return undefined;
  return { table: seen, destinations };
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((each, n) => each === others[n]);
}

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };

/** Rows of a front that are looked at in one claim: it takes some 10 ms. */
const SWEPT_ROWS = 5000;
/** The highest that a sequence can have. */
export const LAST_POSITION = "9223372036854775807";
