import type { Clock } from "../../../ports/runtime.ts";
import type { ClaimRequest, ClaimResult } from "../../../ports/store.ts";
import type { ClaimHints } from "./hints.ts";

/** What one run of a claim statement found. */
export interface Scan extends ClaimResult {
  /** Sequence of the first row that was looked at. */
  readonly firstPosition: string | undefined;
}

/** The statements of a claim, each from a sequence on. */
export interface ClaimScans {
  inOrder(request: ClaimRequest, from: string): Promise<Scan>;
  /** @param isSweep true when the request's limit is what a scan in order has left of it */
  pastBlockedKeys(request: ClaimRequest, from: string, isSweep: boolean): Promise<Scan>;
  /** The sequence behind the last pending row. */
  end(): Promise<string>;
}

/**
 * Claims in order from the front; where most of the front is held back, past the blocked keys, and remembers where the free rows begin
 * (design, "Claims and order").
 */
export async function claimFromFront(
  scans: ClaimScans,
  hints: ClaimHints,
  clock: Clock,
  request: ClaimRequest,
): Promise<ClaimResult> {
  const { cursor } = hints;
  if (cursor !== undefined && !hints.startsAtMark()) {
    const scan = await scans.pastBlockedKeys(request, cursor, false);
    if (scan.firstPosition !== undefined) hints.advance(scan.firstPosition);
    return scan;
  }
  const front = await scans.inOrder(request, hints.mark);
  if (!front.more || front.heldBack * 2 <= request.limit) {
    hints.frontIsFree();
    return front;
  }
  const startedAt = clock.monotonic();
  // Read before the scan: a row that comes in behind this position while the scan runs is then still in front of the cursor.
  const end = await scans.end();
  const limit = request.limit - front.rows.length;
  const past = await scans.pastBlockedKeys({ ...request, limit }, hints.mark, true);
  hints.frontIsBlocked(past.firstPosition ?? end, clock.monotonic() - startedAt);
  return {
    rows: [...front.rows, ...past.rows],
    more: past.more,
    heldBack: front.heldBack + past.heldBack,
  };
}
