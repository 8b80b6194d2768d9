import type { JournalEntry, RowState } from "./journal.ts";

/** A claim of one row by one process, from the journal. */
export interface Claim {
  readonly replica: string;
  readonly token: string | null;
  readonly from: number;
  /** Infinity while it is open. */
  until: number;
  /**
   * How it ended: `sent` and `dead` finish the row; `failed` is a counted attempt; `released` was given back; `expired` was taken back after its lease.
   * The database does not know a `lost` one: it was put back to a time before it.
   */
  end: "open" | "sent" | "dead" | "failed" | "released" | "expired" | "lost";
  /** The earlier message of its key for which it has to be given back; see {@link replayKey}. */
  mustYieldTo: string | undefined;
}

/** A row of the outbox and its claims. */
export interface RowHistory {
  readonly message: string;
  readonly rowId: string;
  readonly sequence: number;
  readonly key: string;
  readonly insertedAt: number;
  readonly claims: Claim[];
  state: RowState;
}

/** Something that must not happen, and the message to which it happened. */
export interface Violation {
  readonly message: string;
  readonly what: string;
  /** Another message of the key that it is about. */
  readonly other?: string;
}

/**
 * Replays the journal of one key, and checks what the database itself can show:
 *
 * - a row goes from `pending` to `processing`, in which a receipt may begin it, from there to `sent`, `dead` or back, and from a finished state nowhere;
 * - a parked row is not claimed until an operator has retried it;
 * - only the process that holds a claim moves the row; another process may take the row back after the end of the lease, which counts no attempt;
 * - a row is claimed only when every earlier row of its key is finished, or held by the same process, which delivers one after another. A process may
 *   give back an earlier row while its claim of a later one is on the way: then nothing must be delivered under that claim, which `mustYieldTo` says.
 *   Or its claim of the earlier row may end then, and another process take that row over at once: the claim has seen neither;
 * - a message has one row.
 *
 * @param copiedAt the times of what the database was put back to: rows from before it have been delivered once in what it has forgotten, and only their
 * first arrivals have an order
 */
export function replayKey(
  key: string,
  entries: readonly JournalEntry[],
  copiedAt: readonly number[] = [],
): { readonly rows: readonly RowHistory[]; readonly violations: readonly Violation[] } {
  const rows = new Map<number, RowHistory>();
  const unfinished = new Set<RowHistory>();
  const seen = new Set<string>();
  const violations: Violation[] = [];
  // The rows of one statement come in any order: those of one claim are looked at together.
  const claimedTogether = new Map<string, Set<number>>();
  for (const { state, claim, sequence } of entries) {
    if (state !== "processing" || claim === null) continue;
    claimedTogether.set(claim, (claimedTogether.get(claim) ?? new Set()).add(sequence));
  }

  for (const entry of entries) {
    if (entry.was === null) {
      const row: RowHistory = {
        message: entry.message ?? "",
        rowId: entry.rowId ?? "",
        sequence: entry.sequence,
        key,
        insertedAt: entry.at,
        claims: [],
        state: entry.state,
      };
      if (seen.has(row.message)) violations.push({ message: row.message, what: "has more than one row" });
      seen.add(row.message);
      rows.set(row.sequence, row);
      unfinished.add(row);
      if (entry.state === "pending") continue;
    }
    const row = rows.get(entry.sequence);
    if (row === undefined) continue; // Without a row no message: the insert was rolled back, and the journal with it.
    const violate = (what: string, other?: string) =>
      violations.push({
        message: row.message,
        what: `${what} (${entry.replica})`,
        ...(other === undefined ? {} : { other }),
      });
    const isRetriedByOperator = entry.wasParked === true && entry.state === "pending";
    // A receipt may claim what it inserts.
    if ((entry.was === "pending" || entry.was === null) && entry.state === "processing") {
      if (entry.wasParked === true) violate("was claimed while it was parked");
      let mustYieldTo: string | undefined;
      const isOld = copiedAt.some((at) => row.insertedAt <= at && at < entry.at);
      for (const other of isOld ? [] : unfinished) {
        if (other.sequence >= row.sequence) continue;
        if (entry.claim !== null && claimedTogether.get(entry.claim)?.has(other.sequence) === true) continue;
        const own = other.claims.findLast(({ replica }) => replica === entry.replica);
        const isTakenOver = own !== other.claims.at(-1);
        if (own !== undefined && (!isTakenOver || entry.at - own.until <= CLAIM_TAKES_AT_MOST_MS)) {
          if (own.end === "released" || own.end === "failed") mustYieldTo ??= other.message;
        } else violate(`claimed while ${other.message}, an earlier row of its key, was ${other.state}`, other.message);
      }
      row.claims.push({
        replica: entry.replica,
        token: entry.claim,
        from: entry.at,
        until: Number.POSITIVE_INFINITY,
        end: "open",
        mustYieldTo,
      });
    } else if (entry.was === "processing") closeClaim(row, entry, violate);
    else if (!isRetriedByOperator) violate(`went from ${entry.was} to ${entry.state}`);
    row.state = entry.state;
    if (row.state === "sent" || row.state === "dead") unfinished.delete(row);
  }
  return { rows: [...rows.values()], violations };
}

/** From the snapshot of a claim to its entries in the journal, on a busy machine. */
const CLAIM_TAKES_AT_MOST_MS = 2000;

/** The claims in a journal that the database has forgotten, by the message, whatever had become of them. */
export function lostClaims(entries: readonly JournalEntry[]): ReadonlyMap<string, readonly Claim[]> {
  const claims = new Map<string, Claim[]>();
  for (const { message, was, state, at, replica, claim } of entries) {
    if (message === null || was === "processing" || state !== "processing") continue;
    const lost: Claim = {
      replica,
      token: claim,
      from: at,
      until: Number.POSITIVE_INFINITY,
      end: "lost",
      mustYieldTo: undefined,
    };
    claims.set(message, [...(claims.get(message) ?? []), lost]);
  }
  return claims;
}

function closeClaim(row: RowHistory, entry: JournalEntry, violate: (what: string) => void): void {
  const claim = row.claims.at(-1);
  if (claim === undefined || claim.end !== "open") {
    violate(`went to ${entry.state} without a claim`);
    return;
  }
  claim.until = entry.at;
  const isOver = (entry.leaseLeftMs ?? 0) < 0;
  if (entry.state === "sent" || entry.state === "dead") claim.end = entry.state;
  else if (entry.state === "processing") violate("got another claim while it had one");
  else if (entry.attempt > (entry.wasAttempt ?? 0)) claim.end = "failed";
  else claim.end = isOver ? "expired" : "released";
  if (entry.replica === claim.replica || claim.end === "expired") return;
  violate(
    `went to ${entry.state} by another process than ${claim.replica}, whose claim had ${entry.leaseLeftMs} ms left`,
  );
}
