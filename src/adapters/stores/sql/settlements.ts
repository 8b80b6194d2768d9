import type { MessageId, Outcome } from "../../../model/rows.ts";
import { bisect } from "./bisect.ts";
import type { OutboxHints } from "./hints.ts";
import { isRefused, SHORT_REASON } from "./refused.ts";

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

/** Stands for the delay of a row that is parked. */
export const PARKED_DELAY = -1;

/** @returns after how many ms the row is due again, {@link PARKED_DELAY}, or null where its time stays as it is */
export function delayOf(settlement: Outcome): number | null {
  if (settlement.kind === "park") return PARKED_DELAY;
  return settlement.kind === "retry" ? Math.round(settlement.delayMs) : null;
}

/**
 * Settles a batch of which the database refuses some row: the others are settled as they are. The refused one is settled with fewer words, else as
 * `dead` (a trigger or a constraint of the owner may not admit its outcome); a row that refuses even that keeps its claim. So does one that was to be
 * given back: it was not tried, and does not die of that.
 *
 * @param hints learn when the keys of retries are free again
 * @param settle settles a part of the batch in one transaction; gives the ids of the rows whose claim was closed
 * @param onRefused receives each row that refuses every outcome, with what the database says
 * @returns the ids of all whose claim was closed
 */
export async function settleAroundRefusal(
  settlements: readonly Outcome[],
  hints: Pick<OutboxHints, "retryIn">,
  settle: (part: readonly Outcome[]) => Promise<readonly MessageId[]>,
  onRefused: (settlement: Outcome, reason: string) => void,
): Promise<ReadonlySet<MessageId>> {
  const closed = new Set<MessageId>();
  /** @returns why the database refuses the part; undefined when it was settled */
  const refusalOf = async (part: readonly Outcome[]): Promise<string | undefined> => {
    try {
      for (const id of await settle(part)) closed.add(id);
      return undefined;
    } catch (error) {
      if (!isRefused(error)) throw error;
      return error.message;
    }
  };
  await bisect(settlements, async (part) => {
    const refusal = await refusalOf(part);
    if (refusal === undefined) return "done";
    const [only] = part;
    if (part.length > 1 || only === undefined) return "split";
    for (const plainer of plainerThan(only, refusal)) {
      if ((await refusalOf([plainer])) === undefined) return "done";
    }
    onRefused(only, refusal);
    return "done";
  });
  for (const settlement of settlements) {
    if (settlement.kind === "retry") hints.retryIn(settlement.delayMs, settlement);
  }
  return closed;
}

/** What to store of an outcome that is refused, the most telling first. */
function plainerThan(settlement: Outcome, refusal: string): readonly Outcome[] {
  const { id, claimToken, kind } = settlement;
  if (kind === "release") return [];
  const dead = (reason: string): Outcome => ({ id, claimToken, kind: "dead", attempted: false, reason });
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
