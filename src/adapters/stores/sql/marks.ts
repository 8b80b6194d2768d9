import type { Clock } from "../../../time/clock.ts";
import { higher, lower } from "./positions.ts";

/** What a snapshot of the database cannot see, and who began after it. */
export interface SnapshotBounds {
  /** The transactions that ran, of those before `end`. */
  readonly running: readonly bigint[];
  /** The transaction behind the newest one that had ended: it and those behind it may have been running too. */
  readonly end: bigint;
  /**
   * A transaction that began after the snapshot was taken, and has ended by now. Undefined when the mark was that of
   * the last read: none is begun for it.
   */
  readonly later: bigint | undefined;
  /**
   * Who was writing to the table when the snapshot had been taken and `later` had not begun: everybody who had no
   * number as a transaction yet, and those of {@link Marks.awaited} who had not ended. Undefined when nobody looked.
   */
  readonly writers: readonly string[] | undefined;
}

/** A mark that holds as long as none of some transactions has ended. */
export interface GuardedMark {
  readonly mark: string;
  readonly running: readonly bigint[];
}

/**
 * Low-water marks: positions of a table below which nothing is unfinished, remembered between statements of one
 * process. They only save work: with a fresh instance every statement is right, only slower. A statement that starts at
 * a mark does not walk over index entries of finished rows that an old transaction keeps alive. Positions are decimal
 * numbers, and whoever begins to write later has a higher one.
 *
 * - The low-water mark is the lowest unfinished position, refreshed about once a second. That of the outbox passes parked rows, which are looked for below it.
 * - The settled mark is a low-water mark below which nothing can appear any more: whoever still ran when it was read
 *   has ended since. A row below the newest mark whose transaction commits late is not a candidate until the next refresh,
 *   which is a matter of time; as an earlier row of its key it must count at once, which is a matter of order.
 * - The guarded mark is one of the last. What may still appear below it is of the few transactions that have run since
 *   before it was read: it counts in a statement whose snapshot sees none of them ended. So a transaction that stays
 *   open for hours, which keeps the settled mark where it is, costs nothing until it ends.
 *
 * A writer takes its position before it is numbered as a transaction: in between lie triggers, and waits for other
 * writers of the same row. No mark counts until the writers of its read that had no number are seen to have ended.
 */
export class Marks {
  readonly #clock: Clock;
  readonly #onForget: () => void;
  #mark = "0";
  #settledMark = "0";
  /** A mark that waits for the transactions before `next` to end. */
  #unsettled: ReadMark | undefined;
  /** The mark that is guarded; undefined before the first. */
  #guarded: ReadMark | undefined;
  #guardedMark: GuardedMark = NO_GUARD;
  /** A mark on its way to be the guarded one. */
  #newest: ReadMark | undefined;
  #behindMet: string | undefined;
  #newestTransaction = 0n;
  #markReadAt = Number.NEGATIVE_INFINITY;
  #fullMarkDueAt = 0;

  /**
   * @param onForget is called when the marks are thrown away: whatever else was remembered of the table's positions is
   * worth nothing then
   */
  constructor(clock: Clock, onForget: () => void = () => {}) {
    this.#clock = clock;
    this.#onForget = onForget;
  }

  get mark(): string {
    return this.#mark;
  }

  get settledMark(): string {
    return this.#settledMark;
  }

  get guardedMark(): GuardedMark {
    return this.#guardedMark;
  }

  /** @param intervalMs since the last read */
  markIsDue(intervalMs = MARK_INTERVAL_MS): boolean {
    return this.#clock.monotonic() >= this.#markReadAt + intervalMs;
  }

  /**
   * Whether the next mark has to be read without a bound. By the rules nothing appears below the settled mark; who
   * restores a backup, starts a sequence anew, sets a clock back or a row's state by hand breaks them, and is found out
   * by this.
   */
  fullMarkIsDue(): boolean {
    return this.#clock.monotonic() >= this.#fullMarkDueAt;
  }

  /**
   * Reading a mark without a bound took `tookMs`: no more than a fiftieth of the time is spent on it, but the next one is due within a minute. A read
   * that takes longer than a second has mostly waited for a lock, which costs the database nothing.
   */
  fullMarkTook(tookMs: number): void {
    this.#fullMarkDueAt = this.#clock.monotonic() + Math.min(FULL_MARK_COST_FACTOR * tookMs, LONGEST_FULL_MARK_WAIT_MS);
  }

  /** The newest mark that is remembered; undefined before the first. */
  get lastRead(): string | undefined {
    return (this.#newest ?? this.#guarded)?.mark;
  }

  /** Writers that marks wait for. The next read has to tell which of them still write. */
  get awaited(): readonly string[] {
    return [...new Set([this.#unsettled, this.#newest].flatMap((read) => [...(read?.writers ?? [])]))];
  }

  /**
   * The newest transaction that this process knows to have ended; 0 before the first. A database in which it has not is
   * another one.
   */
  get newestTransaction(): bigint {
    return this.#newestTransaction;
  }

  /**
   * The position behind the highest one that this process has met: the mark where nothing is unfinished. Undefined when
   * it has met none.
   */
  get behindMet(): string | undefined {
    return this.#behindMet;
  }

  /** A statement has met an unfinished row at this position. */
  meet(position: string): void {
    const behind = String(BigInt(position) + 1n);
    this.#behindMet = this.#behindMet === undefined ? behind : higher(behind, this.#behindMet);
  }

  /**
   * The table may have gone back in time (a failover, a restored backup, a sequence that starts anew): nothing that was
   * read of it counts.
   */
  forget(): void {
    this.#mark = "0";
    this.#settledMark = "0";
    this.#unsettled = undefined;
    this.#guarded = undefined;
    this.#guardedMark = NO_GUARD;
    this.#newest = undefined;
    this.#behindMet = undefined;
    this.#newestTransaction = 0n;
    this.#markReadAt = Number.NEGATIVE_INFINITY;
    this.#onForget();
  }

  /**
   * @param mark the lowest unfinished position, or what may stand for it; undefined when there is neither
   * @param snapshot of the statement that read it
   */
  setMark(mark: string | undefined, { running, end, later, writers }: SnapshotBounds): void {
    if (end <= this.#newestTransaction) this.forget();
    if (mark !== undefined) this.#mark = mark;
    // All of them lie before `end`, since that is behind the transaction `next`.
    const stillRunning = ({ next }: ReadMark) => running.filter((transaction) => transaction < next);
    if (this.#unsettled?.writers.size === 0 && stillRunning(this.#unsettled).length === 0) {
      // Whatever they left below it is in `mark` by now; who began later has higher positions.
      this.#settledMark = this.#unsettled.mark;
      this.#unsettled = undefined;
    }
    if (mark !== undefined) this.#settledMark = lower(mark, this.#settledMark);
    if (this.#newest?.writers.size === 0) {
      this.#guarded = this.#newest;
      this.#newest = undefined;
    }
    if (this.#guarded !== undefined) {
      // Those that ended between the two reads are in the second one.
      this.#guardedMark = { mark: lower(this.#guarded.mark, this.#mark), running: stillRunning(this.#guarded) };
    }
    // Who has ended by now counts at the next read: this snapshot may be older than the end.
    const stillWriting = new Set(writers);
    for (const read of [this.#unsettled, this.#newest]) {
      for (const writer of read?.writers ?? []) if (!stillWriting.has(writer)) read?.writers.delete(writer);
    }
    if (later !== undefined) this.#remember({ mark: this.#mark, next: later, writers: stillWriting });
    this.#markReadAt = this.#clock.monotonic();
  }

  #remember(read: ReadMark): void {
    this.#newestTransaction = read.next;
    // One that waits for writers is kept while others come: else none would ever count where somebody always writes.
    if (this.#newest === undefined || read.writers.size === 0) this.#newest = read;
    this.#unsettled ??= read;
  }
}

/**
 * A low-water mark, with a transaction that began after it was read, as did all behind it, and the writers without a
 * number that have not ended since.
 */
interface ReadMark {
  readonly mark: string;
  readonly next: bigint;
  readonly writers: Set<string>;
}

const NO_GUARD: GuardedMark = { mark: "0", running: [] };
const MARK_INTERVAL_MS = 1000;
const FULL_MARK_COST_FACTOR = 50;
const LONGEST_FULL_MARK_WAIT_MS = 60_000;
