import { bucketKeyOf, bucketOf } from "../../model/cells.ts";
import type { MessageId } from "../../model/rows.ts";
import type { BucketStore, UnfinishedRow, WaitReason } from "../../ports/bucketStore.ts";
import { waitOrAbort } from "../../time/wait.ts";

/** Rows of one bucket that hold up its move. */
export interface Waiting {
  /** By what they wait for. */
  readonly counts: ReadonlyMap<WaitReason, number>;
  /** When the last of them becomes due, in ms from now. */
  readonly dueInMs: number;
}

export interface Unfinished {
  readonly waiting: ReadonlyMap<number, Waiting>;
  /** Rows of the inbox among them: a copying pass has not seen them finished. */
  readonly received: readonly MessageId[];
}

/** What is not finished in a cell, of some buckets. @param keyPrefixes `<source>:` of the sources with an order of their own */
export async function unfinishedOf(
  store: BucketStore,
  buckets: { has(bucket: number): boolean },
  keyPrefixes: readonly string[],
  signal: AbortSignal,
): Promise<Unfinished> {
  const waiting = new Map<number, { counts: Map<WaitReason, number>; dueInMs: number }>();
  const received: MessageId[] = [];
  for (let from: string | undefined; ; ) {
    const { rows, next } = await waitOrAbort(store.unfinished(from, PAGE), signal, "reading the rows that wait");
    for (const row of rows) {
      const own = bucketsOf(row, keyPrefixes).filter((bucket) => buckets.has(bucket));
      if (own.length > 0 && row.key === null) received.push(row.id);
      for (const bucket of own) {
        const known = waiting.get(bucket) ?? { counts: new Map<WaitReason, number>(), dueInMs: 0 };
        known.counts.set(row.waitsFor, (known.counts.get(row.waitsFor) ?? 0) + 1);
        known.dueInMs = Math.max(known.dueInMs, row.dueInMs);
        waiting.set(bucket, known);
      }
    }
    if (next === undefined) return { waiting, received };
    from = next;
  }
}

const PAGE = 5000;

/** The buckets that a row holds up: that of its message, and those of its key as applications may have chosen it too. */
function bucketsOf({ received, key }: UnfinishedRow, keyPrefixes: readonly string[]): readonly number[] {
  const keys = new Set<string>();
  if (received !== null) keys.add(bucketKeyOf(received));
  if (key !== null) {
    keys.add(key);
    for (const prefix of keyPrefixes) if (key.startsWith(prefix)) keys.add(key.slice(prefix.length));
  }
  return [...new Set([...keys].map(bucketOf))];
}

/** For people, such as `2 rows wait for a retry, 1 row is parked`. */
export function waitingText({ counts }: Waiting): string {
  return [...counts]
    .map(([reason, count]) => `${count === 1 ? "1 row" : `${count} rows`} ${WORDS[reason][count === 1 ? 0 : 1]}`)
    .join(", ");
}

const WORDS: Readonly<Record<WaitReason, readonly [one: string, several: string]>> = {
  relay: ["waits for the relay", "wait for the relay"],
  pull: ["waits for a pull client", "wait for pull clients"],
  turn: ["waits for its delivery", "wait for their delivery"],
  delivery: ["is in delivery", "are in delivery"],
  retry: ["waits for a retry", "wait for a retry"],
  operator: ["is parked", "are parked"],
  time: ["is scheduled ahead", "are scheduled ahead"],
};
