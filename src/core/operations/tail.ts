import { mayPass } from "../../model/errors.ts";
import type { HistoryEntry, HistoryStore } from "../../ports/historyStore.ts";

interface TailOptions {
  /** One, or that of each cell. */
  readonly histories: readonly Pick<HistoryStore, "since">[];
  /** Waits `ms` milliseconds. @returns false when the signal aborted first */
  readonly pause: (ms: number, signal: AbortSignal) => Promise<boolean>;
  /** Called once when a database goes away; the entries of that time come when it is back. */
  readonly onAway: (error: unknown) => void;
  readonly signal: AbortSignal;
}

/**
 * The changes of all rows, as the replicas add them to the history. Each entry comes once, in the order in which this
 * reader sees it: if a transaction commits late, its entry has a lower sequence than entries before it.
 *
 * @param last how many of the newest entries come first
 * @throws StoreError if the first read finds no history, and later only for an error that does not pass by itself; ends
 *   when the signal aborts
 */
export async function* tail(
  last: number,
  { histories, pause, onAway, signal }: TailOptions,
): AsyncGenerator<HistoryEntry> {
  const followed = histories.map((history) => new Followed(history, onAway));
  const begun = await Promise.allSettled(followed.map((each) => each.begin(last)));
  if (begun.every(({ status }) => status === "rejected")) throw (begun[0] as PromiseRejectedResult).reason;
  const present = merged(begun.map((each) => (each.status === "fulfilled" ? each.value : [])));
  if (last > 0) yield* present.slice(-last);
  while (!signal.aborted) {
    const reads = await Promise.all(followed.map((each) => each.read()));
    yield* merged(reads.map(({ entries }) => entries));
    if (reads.some(({ isFull }) => isFull)) continue;
    if (!(await pause(INTERVAL_MS, signal))) return;
  }
}

/** Merges the entries of each history, which keep their order as far as their times do. */
function merged(ofEach: readonly (readonly HistoryEntry[])[]): readonly HistoryEntry[] {
  const entries = ofEach.flat();
  return ofEach.length > 1 ? entries.toSorted((a, b) => a.at.getTime() - b.at.getTime()) : entries;
}

class Followed {
  readonly #history: Pick<HistoryStore, "since">;
  readonly #onAway: (error: unknown) => void;
  readonly #seenSequences = new Set<string>();
  #highest = 0n;
  #hasBegun = false;
  #isAway = false;

  constructor(history: Pick<HistoryStore, "since">, onAway: (error: unknown) => void) {
    this.#history = history;
    this.#onAway = onAway;
  }

  /** What is there already counts as seen, as far back as later reads go. @returns at least `last` of it */
  async begin(last: number): Promise<readonly HistoryEntry[]> {
    const present = await this.#history.since(null, Math.max(last, Number(OVERLAP)));
    this.#hasBegun = true;
    return this.#unseen(present);
  }

  /** @throws StoreError that does not pass by itself */
  async read(): Promise<{ readonly entries: readonly HistoryEntry[]; readonly isFull: boolean }> {
    try {
      // What a cell that was away has by then is not news.
      if (!this.#hasBegun) await this.begin(0);
      const from = this.#highest > OVERLAP ? this.#highest - OVERLAP : 0n;
      const read = await this.#history.since(String(from), MOST_ENTRIES);
      this.#isAway = false;
      const entries = this.#unseen(read);
      for (const sequence of this.#seenSequences) {
        if (BigInt(sequence) < this.#highest - 2n * OVERLAP) this.#seenSequences.delete(sequence);
      }
      return { entries, isFull: read.length === MOST_ENTRIES };
    } catch (error) {
      if (!mayPass(error)) throw error;
      if (!this.#isAway) this.#onAway(error);
      this.#isAway = true;
      return { entries: [], isFull: false };
    }
  }

  /** Notes entries. @returns the new entries */
  #unseen(entries: readonly HistoryEntry[]): readonly HistoryEntry[] {
    const fresh = entries.filter(({ sequence }) => !this.#seenSequences.has(sequence));
    for (const { sequence } of fresh) {
      this.#seenSequences.add(sequence);
      if (BigInt(sequence) > this.#highest) this.#highest = BigInt(sequence);
    }
    return fresh;
  }
}

/** Sequences behind the highest that are read again: more than the transactions of a moment take. */
const OVERLAP = 2000n;
const MOST_ENTRIES = 3000;
const INTERVAL_MS = 500;
