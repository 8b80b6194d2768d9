import type { Clock } from "../../../ports/runtime.ts";
import type { ClaimRequest, ClaimResult, ClaimScope } from "../../../ports/store.ts";
import type { ClaimHints, OutboxHints } from "./hints.ts";
import type { Marks } from "./marks.ts";
import { higher } from "./positions.ts";

/** What one run of a claim statement found. */
export interface Scan extends ClaimResult {
  /** Sequence of the first row that was looked at. */
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
  /** Past the blocked keys, too. @param isSweep true when it begins at the mark */
  inScope(request: ClaimRequest, scope: ClaimScope, from: string, isSweep: boolean): Promise<Scan>;
  /** The sequence behind the last pending row. */
  end(): Promise<string>;
  /** Whether any row is due from a sequence on, of whatever scope: a fraction of a claim. */
  anyDue(from: string): Promise<boolean>;
  /** Whether rows can be free that a sweep did not meet which has seen the table so. */
  mayHaveChanged(seen: string): Promise<boolean>;
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

/** Claims rows of a scope, past whatever is in front of them. Where nothing was met lately it looks first whether that can be different by now. */
async function claimInScope(
  scans: ClaimScans,
  hints: OutboxHints,
  clock: Clock,
  request: ClaimRequest,
  scope: ClaimScope,
): Promise<ClaimResult> {
  const { marks } = hints;
  const scopeHints = hints.of(scope);
  const { seen } = scopeHints;
  if (scopeHints.start === undefined && seen !== undefined && areSame(seen.destinations, scope.destinations)) {
    const askedAt = clock.monotonic();
    if (!(await scans.mayHaveChanged(seen.table))) scopeHints.sweepIsNeedless(clock.monotonic() - askedAt);
  }
  const { start } = scopeHints;
  const isSweep = start === undefined;
  if (!isSweep && scopeHints.foundNothing && !(await scans.anyDue(higher(start, marks.mark)))) return NOTHING;
  const startedAt = clock.monotonic();
  // Read before the scan: a row that comes in behind this position while the scan runs is then still in front of the cursor.
  const position = isSweep || scopeHints.wantsEnd ? higher(await scans.end(), marks.mark) : undefined;
  const end = position === undefined ? undefined : { position, readAt: clock.monotonic() };
  const from = higher(start ?? marks.mark, marks.mark);
  const scan = await scans.inScope(request, scope, from, isSweep);
  const sweptMs = isSweep ? clock.monotonic() - startedAt : undefined;
  // A key or a row that this claim left out may be free for the next one.
  const leftOut = scope.exceptKeys.length + (scope.exceptIds?.length ?? 0);
  const table = leftOut === 0 ? scan.seen : undefined;
  const { destinations } = scope;
  const nowSeen = table === undefined ? undefined : { table, destinations };
  scopeHints.looked({ from, first: scan.firstPosition, end, sweptMs, seen: nowSeen });
  return scan;
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((each, n) => each === others[n]);
}

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };
