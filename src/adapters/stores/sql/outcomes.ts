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

const STATE_AFTER = {
  sent: "sent",
  retry: "pending",
  park: "pending",
  dead: "dead",
  release: "pending",
} as const;

const PARKED_DELAY = -1;

/** What a settlement stores. */
export function storedOutcome(settlement: Outcome) {
  const { kind } = settlement;
  const givenBackAfter = kind === "park" ? PARKED_DELAY : null;
  return {
    state: STATE_AFTER[kind],
    /** The failed attempts that it adds. */
    attempts: kind === "retry" || kind === "park" || (kind === "dead" && settlement.attempted) ? 1 : 0,
    /** After how many ms the row is due again; below 0 to park it, null if its time stays. */
    delay: kind === "retry" ? Math.round(settlement.delayMs) : givenBackAfter,
    reason: "reason" in settlement ? settlement.reason : null,
  };
}
