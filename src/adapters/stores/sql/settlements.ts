import type { Settlement } from "../../../model/outcomes.ts";
import { bisect } from "./bisect.ts";
import { isRefused } from "./refused.ts";

/** The state of a row after its settlement. */
export const STATE_AFTER = { sent: "sent", retry: "pending", dead: "dead", release: "pending" } as const;

/** @returns the failed attempts that a settlement adds */
export function attemptsOf(settlement: Settlement): number {
  if (settlement.kind === "retry") return 1;
  return settlement.kind === "dead" && settlement.attempted ? 1 : 0;
}

/**
 * Settles a batch of which some reason may be refused as data (an owner's narrow `last_error` column): the outcome matters more than its
 * words.
 *
 * @param settle settles a part of the batch in one transaction
 */
export async function settleAroundRefusal(
  settlements: readonly Settlement[],
  settle: (part: readonly Settlement[]) => Promise<void>,
): Promise<void> {
  await bisect(settlements, async (part) => {
    try {
      await settle(part);
      return "done";
    } catch (error) {
      if (!isRefused(error)) throw error;
      if (part.length > 1) return "split";
      await settle(part.map(withoutReason));
      return "done";
    }
  });
}

function withoutReason(settlement: Settlement): Settlement {
  return "reason" in settlement ? { ...settlement, reason: "the reason could not be stored" } : settlement;
}
