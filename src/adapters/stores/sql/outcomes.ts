import type { Outcome } from "../../../model/rows.ts";
import { SHORT_REASON } from "./rows.ts";

/** How the outcome of a delivery is stored with its row. */

/**
 * What to store of an outcome that the database refuses, the most informative first: the same with a short reason, then
 * `dead`. Nothing for a release: an unattempted row does not die of that.
 */
export function plainerThan(settlement: Outcome, refusal: string): readonly Outcome[] {
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
