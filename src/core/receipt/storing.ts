import type { ClaimedRow, InsertResult, NewInboxRow } from "../../model/rows.ts";
import type { InboxStore, ReceiptClaim, RelayRules } from "../../ports/store.ts";

/** The work of other roles that a receipt does in the same statement, if its process has these roles. */
export interface ReceiptWork {
  /** Of the relay; undefined without one. */
  relay: RelayRules | undefined;
  /** A claim of at most this number of rows; undefined if the poller has no room, or there is none. */
  claim: (rows: number) => ReceiptClaim | undefined;
}

/**
 * Stores received rows. In a process that relays, the same statement relays the rows that wait for nothing, and
 * claims as many of them as the poller of the process has room for.
 *
 * @returns the outcome of each row, in the order given, after the commit
 * @throws StoreError
 */
export async function storeReceived(
  inbox: Pick<InboxStore, "insert" | "insertRelayed">,
  { relay, claim }: ReceiptWork,
  rows: readonly NewInboxRow[],
): Promise<readonly InsertResult[]> {
  const { insertRelayed } = inbox;
  if (relay === undefined || insertRelayed === undefined) return await inbox.insert(rows);
  const claiming = claim(rows.length);
  let claimed: readonly ClaimedRow[] = [];
  try {
    const stored = await insertRelayed(rows, relay, claiming?.request);
    claimed = stored.claimed;
    return stored.outcomes;
  } finally {
    claiming?.end(claimed);
  }
}
