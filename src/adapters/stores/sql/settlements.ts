import type { Settlement } from "../../../model/outcomes.ts";
import type { MessageId } from "../../../model/rows.ts";
import { bisect } from "./bisect.ts";
import type { ClaimHints } from "./hints.ts";
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
 * @param hints learn when the keys of retries are free again
 * @param settle settles a part of the batch in one transaction; gives the ids of the rows whose claim was closed
 * @returns the ids of all whose claim was closed
 */
export async function settleAroundRefusal(
  settlements: readonly Settlement[],
  hints: ClaimHints,
  settle: (part: readonly Settlement[]) => Promise<readonly MessageId[]>,
): Promise<ReadonlySet<MessageId>> {
  const closed = new Set<MessageId>();
  const settlePart = async (part: readonly Settlement[]): Promise<void> => {
    for (const id of await settle(part)) closed.add(id);
  };
  await bisect(settlements, async (part) => {
    try {
      await settlePart(part);
      return "done";
    } catch (error) {
      if (!isRefused(error)) throw error;
      if (part.length > 1) return "split";
      await settlePart(part.map(withoutReason));
      return "done";
    }
  });
  for (const settlement of settlements) {
    if (settlement.kind === "retry") hints.sweepWithin(settlement.delayMs);
  }
  return closed;
}

function withoutReason(settlement: Settlement): Settlement {
  return "reason" in settlement ? { ...settlement, reason: "the reason could not be stored" } : settlement;
}
