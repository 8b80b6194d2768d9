import { bucketKeyOf, bucketOf } from "../../model/cells.ts";
import { errorText, mayPass, type StoreError } from "../../model/errors.ts";
import { groupBy } from "../../model/groups.ts";
import type { MessageId } from "../../model/rows.ts";
import type { BucketStore, FinishedRow, StoredRow } from "../../ports/bucketStore.ts";
import type { Clock } from "../../time/clock.ts";
import { waitOrAbort } from "../../time/wait.ts";

/**
 * Copies the finished rows of buckets into the cells to which they move, pass by pass, so that a repetition of a message
 * is a duplicate there too. A pass reads what was received since the mark before the last one; the caller names the rows
 * that were not finished then, however old they are.
 */
export class Copies {
  readonly #from: BucketStore;
  readonly #onRefused: OnRefused;
  readonly #clock: Clock;
  /** Where the next pass begins; undefined for the oldest row. */
  #since: string | undefined;
  /** Where the next but one begins. */
  #mark: string | undefined;
  /** When that was, in ms since 1970 by the database's clock. */
  #markedMs = Number.NEGATIVE_INFINITY;
  /** Rows that no pass has found finished. */
  readonly #late = new Set<MessageId>();
  /** Rows of one statement: fewer after one that took too long, until they are fast again. */
  #mostRows = MOST_ROWS;
  /** Rows copied by the last pass and this one: both read the newest ones. */
  #lastCopied: ReadonlySet<MessageId> = new Set();

  /** @param onRefused takes the bucket out of the targets */
  constructor(from: BucketStore, clock: Clock, onRefused: OnRefused) {
    this.#from = from;
    this.#clock = clock;
    this.#onRefused = onRefused;
  }

  /**
   * Marks this moment: what is received later is left to the pass after the next one. Call it before the unfinished rows
   * are read: then each row received before is finished, and found by the next pass, or noted.
   *
   * @throws StoreError, and the reason of the signal
   */
  async mark(signal: AbortSignal): Promise<void> {
    const areReceiptsOver = await waitOrAbort(this.#from.awaitReceipts(), signal, "a copying pass");
    const overlapMs = areReceiptsOver ? CLOCK_MARGIN_MS : LONGEST_RECEIPT_MS;
    const { position, nowMs } = await waitOrAbort(this.#from.positionBefore(overlapMs), signal, "a copying pass");
    // What was received under a clock that was set back may be before any position.
    if (nowMs < this.#markedMs) this.#since = undefined;
    this.#mark = position;
    this.#markedMs = nowMs;
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
    this.#since = this.#mark;
    return found;
  }

  async #copy(
    rows: readonly FinishedRow[],
    targets: ReadonlyMap<number, BucketStore>,
    signal: AbortSignal,
  ): Promise<number> {
    let found = 0;
    for (const [target, group] of groupBy(rows, (row) => targets.get(bucketOf(bucketKeyOf(row))))) {
      if (target === undefined) continue;
      for (const part of partsOf(group)) {
        // A row of it may have been refused in the part before.
        const ids = part.filter((row) => targets.has(bucketOf(bucketKeyOf(row)))).map(({ id }) => id);
        const stored = await waitOrAbort(this.#from.read(ids), signal, "a copying pass");
        await this.#store(stored, target, signal);
      }
      found += group.length;
    }
    return found;
  }

  /** Rows of one part. Where they take too long in a cell that answers, fewer at a time. */
  async #store(rows: readonly StoredRow[], target: BucketStore, signal: AbortSignal): Promise<void> {
    for (let at = 0; at < rows.length; ) {
      const part = rows.slice(at, at + this.#mostRows);
      const startedAt = this.#clock.monotonic();
      try {
        const { refused } = await waitOrAbort(target.copy(part, signal), signal, "a copying pass");
        for (const [row, reason] of refused) this.#onRefused(bucketOfStored(row), row.id ?? "", reason);
        at += part.length;
        if (this.#clock.monotonic() - startedAt < FAST_MS) this.#mostRows = Math.min(MOST_ROWS, 2 * this.#mostRows);
      } catch (error) {
        if (!mayPass(error) || !(await answers(target, signal))) throw error;
        this.#mostRows = Math.ceil(part.length / 2);
        const [row, ...others] = part;
        if (row === undefined || others.length > 0) continue;
        // The server has ended it.
        if ((error as StoreError).code !== "contention") throw error;
        this.#onRefused(bucketOfStored(row), row.id ?? "", errorText(error));
        at += 1;
      }
    }
  }

  /** Those among the late rows that are finished by now. */
  async #copyLate(targets: ReadonlyMap<number, BucketStore>, signal: AbortSignal): Promise<number> {
    const late = [...this.#late];
    let found = 0;
    for (let at = 0; at < late.length; at += MOST_ROWS) {
      const rows = await waitOrAbort(this.#from.read(late.slice(at, at + MOST_ROWS)), signal, "a copying pass");
      for (const [target, own] of groupBy(rows, (row) => targets.get(bucketOfStored(row)))) {
        if (target === undefined) continue;
        await this.#store(own, target, signal);
        for (const { id } of own) this.#late.delete(id as MessageId);
        found += own.length;
      }
    }
    return found;
  }
}

/** Told of each row that the table of the new cell does not take, with the reason. */
type OnRefused = (bucket: number, id: string, reason: string) => void;

const bucketOfStored = ({ aggregateId = null, idempotencyKey }: StoredRow): number =>
  bucketOf(bucketKeyOf({ aggregateId, idempotencyKey: idempotencyKey ?? "" }));

const answers = (target: BucketStore, signal: AbortSignal): Promise<boolean> =>
  waitOrAbort(target.all(), signal, "reading buckets").then(
    () => true,
    () => false,
  );

/** A clock may be slowed down meanwhile. */
const CLOCK_MARGIN_MS = 1000;
/** Longer than a receipt, by whose beginning its rows are dated, takes where they cannot be waited for. */
const LONGEST_RECEIPT_MS = 120_000;
const PAGE = 2000;
const MOST_ROWS = 100;
/** A copy of twice as many rows would not take too long. */
const FAST_MS = 1000;
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
