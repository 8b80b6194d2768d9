import { bucketKeyOf, bucketOf } from "../../model/cells.ts";
import type { MessageId } from "../../model/rows.ts";
import type { BucketStore, FinishedRow } from "../../ports/bucketStore.ts";
import { waitOrAbort } from "../../time/wait.ts";

/**
 * Copies the finished rows of buckets into the cells to which they move, pass by pass, so that a repetition of a message
 * is a duplicate there too. A pass reads what was received since a while before the last one began; before it, the
 * caller names the rows that were not finished yet, however old they are.
 */
export class Copies {
  readonly #from: BucketStore;
  /** Where the next pass begins; undefined for the oldest row. */
  #since: string | undefined;
  /** When the last pass began, in ms since 1970 by the database's clock. */
  #beganMs = Number.NEGATIVE_INFINITY;
  /** Rows that no pass has found finished. */
  readonly #late = new Set<MessageId>();
  /** Rows copied by the last pass and this one: both read the newest ones. */
  #lastCopied: ReadonlySet<MessageId> = new Set();

  constructor(from: BucketStore) {
    this.#from = from;
  }

  /** @param ids rows that are not finished: the next passes look at them by name */
  note(ids: readonly MessageId[]): void {
    for (const id of ids) this.#late.add(id);
  }

  /**
   * @param targets by bucket
   * @returns how many rows it found that the last pass had not
   * @throws StoreError, and the reason of the signal, after which the pass counts for nothing
   */
  async pass(targets: ReadonlyMap<number, BucketStore>, signal: AbortSignal): Promise<number> {
    const { position, nowMs } = await waitOrAbort(this.#from.positionBefore(OVERLAP_MS), signal, "a copying pass");
    // What was received under a clock that was set back may be before any position.
    if (nowMs < this.#beganMs) this.#since = undefined;
    const copied = new Set<MessageId>();
    let found = 0;
    for (let from = this.#since; ; ) {
      const { rows, next } = await waitOrAbort(this.#from.finished(from, PAGE), signal, "a copying pass");
      const fresh = rows.filter(({ id }) => !this.#lastCopied.has(id));
      found += await this.#copy(fresh, targets, signal);
      // The next pass reads only the newest ones again.
      if (copied.size > MOST_REMEMBERED) copied.clear();
      for (const { id } of rows) copied.add(id);
      if (next === undefined) break;
      from = next;
    }
    found += await this.#copyLate(targets, signal);
    this.#lastCopied = copied;
    this.#since = position;
    this.#beganMs = nowMs;
    return found;
  }

  async #copy(
    rows: readonly FinishedRow[],
    targets: ReadonlyMap<number, BucketStore>,
    signal: AbortSignal,
  ): Promise<number> {
    const byTarget = new Map<BucketStore, FinishedRow[]>();
    for (const row of rows) {
      const target = targets.get(bucketOf(bucketKeyOf(row)));
      if (target === undefined) continue;
      const group = byTarget.get(target) ?? [];
      group.push(row);
      byTarget.set(target, group);
    }
    let found = 0;
    for (const [target, group] of byTarget) {
      for (const part of partsOf(group))
        await this.#copyNamed(
          part.map(({ id }) => id),
          target,
          signal,
        );
      found += group.length;
    }
    return found;
  }

  async #copyNamed(ids: readonly MessageId[], target: BucketStore, signal: AbortSignal): Promise<void> {
    const rows = await waitOrAbort(this.#from.read(ids), signal, "a copying pass");
    await waitOrAbort(target.copy(rows), signal, "a copying pass");
  }

  /** Those among the late rows that are finished by now. */
  async #copyLate(targets: ReadonlyMap<number, BucketStore>, signal: AbortSignal): Promise<number> {
    const late = [...this.#late];
    let found = 0;
    for (let at = 0; at < late.length; at += MOST_ROWS) {
      const rows = await waitOrAbort(this.#from.read(late.slice(at, at + MOST_ROWS)), signal, "a copying pass");
      for (const [bucket, target] of targets) {
        const own = rows.filter(
          ({ aggregateId, idempotencyKey }) => bucketOf(aggregateId ?? idempotencyKey ?? "") === bucket,
        );
        if (own.length === 0) continue;
        await waitOrAbort(target.copy(own), signal, "a copying pass");
        for (const { id } of own) this.#late.delete(id as MessageId);
        found += own.length;
      }
    }
    return found;
  }
}

/** Longer than the longest receipt, by whose beginning its rows are dated. */
const OVERLAP_MS = 120_000;
const PAGE = 2000;
const MOST_ROWS = 100;
const MOST_BYTES = 4 * 1024 * 1024;
const MOST_REMEMBERED = 500_000;

/** Parts for one statement each; one row may be larger than that. */
function* partsOf(rows: readonly FinishedRow[]): Generator<readonly FinishedRow[]> {
  let part: FinishedRow[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (part.length > 0 && (part.length >= MOST_ROWS || bytes + row.bytes > MOST_BYTES)) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(row);
    bytes += row.bytes;
  }
  if (part.length > 0) yield part;
}
