import type { Clock } from "../../../ports/runtime.ts";

/** What a snapshot of the database cannot see, and who began after it. */
export interface SnapshotBounds {
  /** The transactions that ran, of those before `end`. */
  readonly running: readonly bigint[];
  /** The transaction behind the newest one that had ended: it and those behind it may have been running too. */
  readonly end: bigint;
  /** A transaction that began after the snapshot was taken. Undefined when the mark was that of the last read: none is begun for it. */
  readonly later: bigint | undefined;
}

/** A mark that holds as long as none of some transactions has ended. */
export interface GuardedMark {
  readonly mark: string;
  readonly running: readonly bigint[];
}

/**
 * Low-water marks: positions of a table below which nothing is unfinished, remembered between statements of one process. They only save work: with a
 * fresh instance every statement is right, only slower. A statement that starts at a mark does not walk over index entries of finished rows
 * that an old transaction keeps alive. Positions are decimal numbers, and whoever begins to write later has a higher one.
 *
 * - The low-water mark is the lowest unfinished position, refreshed about once a second.
 * - The settled mark is a low-water mark below which nothing can appear any more: whoever still ran when it was read has ended since. A row
 *   below the newest mark whose transaction commits late is no candidate until the next refresh, which is a matter of time; as an earlier row of
 *   its key it must count at once, which is a matter of order.
 * - The guarded mark is the last one but one. What may still appear below it is of the few transactions that have run since before it was read:
 *   it counts in a statement whose snapshot sees none of them ended. So a transaction that stays open for hours, which keeps the settled mark
 *   where it is, costs nothing until it ends.
 */
export class Marks {
  readonly #clock: Clock;
  #mark = "0";
  #settledMark = "0";
  /** A mark that waits for the transactions before `next` to end. */
  #unsettled: ReadMark | undefined;
  #guardedMark: GuardedMark = { mark: "0", running: [] };
  /** The newest mark, on its way to be the guarded one. */
  #newest: ReadMark | undefined;
  #behindMet: string | undefined;
  #markReadAt = Number.NEGATIVE_INFINITY;
  #fullMarkDueAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
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
   * Whether the next mark has to be read without a bound. By the rules nothing appears below the settled mark; who restores a backup, starts a
   * sequence anew, sets a clock back or a row's state by hand breaks them, and is found out by this.
   */
  fullMarkIsDue(): boolean {
    return this.#clock.monotonic() >= this.#fullMarkDueAt;
  }

  /** Reading a mark without a bound took `tookMs`: never more than a fiftieth of the time is spent on it. */
  fullMarkTook(tookMs: number): void {
    this.#fullMarkDueAt = this.#clock.monotonic() + FULL_MARK_COST_FACTOR * tookMs;
  }

  /** The mark that was read last; undefined before the first. */
  get lastRead(): string | undefined {
    return this.#newest?.mark;
  }

  /** The position behind the highest one that this process has met: the mark where nothing is unfinished. Undefined when it has met none. */
  get behindMet(): string | undefined {
    return this.#behindMet;
  }

  /** A statement has met an unfinished row at this position. */
  meet(position: string): void {
    const behind = String(BigInt(position) + 1n);
    this.#behindMet = this.#behindMet === undefined ? behind : higher(behind, this.#behindMet);
  }

  /**
   * @param mark the lowest unfinished position, or what may stand for it; undefined when there is neither
   * @param snapshot of the statement that read it
   */
  setMark(mark: string | undefined, { running, end, later }: SnapshotBounds): void {
    if (mark !== undefined) this.#mark = mark;
    const stillRunning = ({ next }: ReadMark) => [
      ...running.filter((transaction) => transaction < next),
      ...transactionsFrom(end, next),
    ];
    if (this.#unsettled !== undefined && stillRunning(this.#unsettled).length === 0) {
      // Whatever they left below it is in `mark` by now; who began later has higher positions.
      this.#settledMark = this.#unsettled.mark;
      this.#unsettled = undefined;
    }
    if (mark !== undefined) this.#settledMark = lower(mark, this.#settledMark);
    if (this.#newest !== undefined) {
      // Those that ended between the two reads are in the second one.
      this.#guardedMark = { mark: lower(this.#newest.mark, this.#mark), running: stillRunning(this.#newest) };
    }
    if (later !== undefined) {
      this.#newest = { mark: this.#mark, next: later };
      this.#unsettled ??= this.#newest;
    }
    this.#markReadAt = this.#clock.monotonic();
  }
}

/** A low-water mark, with a transaction that began after it was read, as did all behind it. */
interface ReadMark {
  readonly mark: string;
  readonly next: bigint;
}

/** From the first one up to, and without, the last. */
function transactionsFrom(first: bigint, last: bigint): bigint[] {
  const all: bigint[] = [];
  for (let transaction = first; transaction < last; transaction += 1n) all.push(transaction);
  return all;
}

function lower(a: string, b: string): string {
  return BigInt(a) < BigInt(b) ? a : b;
}

function higher(a: string, b: string): string {
  return BigInt(a) > BigInt(b) ? a : b;
}

const MARK_INTERVAL_MS = 1000;
const FULL_MARK_COST_FACTOR = 50;
