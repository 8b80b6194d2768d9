import { mayPass } from "../../model/errors.ts";
import type { HistoryEntry, HistoryStore } from "../../ports/historyStore.ts";

interface TailOptions {
  readonly history: Pick<HistoryStore, "since">;
  /** Waits `ms` milliseconds. @returns false when the signal aborted first */
  readonly pause: (ms: number, signal: AbortSignal) => Promise<boolean>;
  /** Called once when the database goes away; the entries of that time come when it is back. */
  readonly onAway: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/**
 * What happens to the rows of the whole fleet, as it is added to the history. Entries come in the order in which they
 * are seen: a transaction that commits late may bring one with a lower sequence, which comes then, and no entry twice.
 *
 * @param last how many of the newest entries come first
 * @throws StoreError, from the second read on only where it does not pass by itself; ends when the signal aborts
 */
export async function* tail(
  last: number,
  { history, pause, onAway, signal }: TailOptions,
): AsyncGenerator<HistoryEntry> {
  const seen = new Set<string>();
  let highest = 0n;
  const note = ({ sequence }: HistoryEntry): void => {
    seen.add(sequence);
    if (BigInt(sequence) > highest) highest = BigInt(sequence);
  };
  // What is there already counts as seen, as far back as later reads go.
  const present = await history.since(null, Math.max(last, Number(OVERLAP)));
  for (const entry of present) note(entry);
  if (last > 0) yield* present.slice(-last);
  let isAway = false;
  while (!signal.aborted) {
    const from = highest > OVERLAP ? highest - OVERLAP : 0n;
    let entries: readonly HistoryEntry[] = [];
    try {
      entries = await history.since(String(from), MOST_ENTRIES);
      isAway = false;
    } catch (error) {
      if (!mayPass(error)) throw error;
      if (!isAway) onAway(error);
      isAway = true;
    }
    for (const entry of entries) {
      if (seen.has(entry.sequence)) continue;
      note(entry);
      yield entry;
    }
    for (const sequence of seen) if (BigInt(sequence) < highest - 2n * OVERLAP) seen.delete(sequence);
    if (entries.length === MOST_ENTRIES) continue;
    if (!(await pause(INTERVAL_MS, signal))) return;
  }
}

/** Sequences behind the highest that are read again: more than the transactions of a moment take. */
const OVERLAP = 2000n;
const MOST_ENTRIES = 3000;
const INTERVAL_MS = 500;
