import type { Outcome } from "../../../model/rows.ts";

/** How the outcome of a delivery is stored with its row. */

/**
 * What to store of an outcome that the database refuses: the same without its reason, which may have characters that the
 * database lacks, then `dead`. Nothing for a release: an unattempted row does not die of that.
 */
export function insteadOf(settlement: Outcome, refusal: string): readonly Outcome[] {
  const { id, claimToken, kind, record } = settlement;
  if (kind === "release") return [];
  const reason = `${WHAT_HAPPENED[kind]}, but the database refuses to store that: ${refusal}`;
  const dead: Outcome = { id, claimToken, kind: "dead", attempted: false, reason, record };
  return "reason" in settlement ? [{ ...settlement, reason: "the reason cannot be stored" }, dead] : [dead];
}

const WHAT_HAPPENED = {
  sent: "delivered",
  retry: "failed, to be tried again",
  park: "failed for good, to be parked",
  dead: "failed for good",
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
