import type { Clock } from "../../../ports/runtime.ts";

/** The transactions that a snapshot of the database cannot see: those that still ran, and all from `next` on. */
export interface SnapshotBounds {
  readonly running: readonly bigint[];
  readonly next: bigint;
}

/** A mark that holds as long as none of some transactions has ended. */
export interface GuardedMark {
  readonly mark: string;
  readonly running: readonly bigint[];
}

/**
 * Where a claim starts to look, remembered between claims of one process. All hints only save work: with a fresh
 * instance every claim is right, only slower.
 *
 * - The low-water mark is the lowest unfinished sequence, refreshed about once a second. A claim that starts there does not walk
 *   over index entries of finished rows that an old transaction keeps alive.
 * - The settled mark is a low-water mark below which nothing can appear any more: whoever still ran when it was read has ended since. A row
 *   below the newest mark whose transaction commits late is no candidate until the next refresh, which is a matter of time; as an earlier row of
 *   its key it must count at once, which is a matter of order.
 * - The guarded mark is the last one but one. What may still appear below it is of the few transactions that have run since before it was read:
 *   it counts in a statement whose snapshot sees none of them ended. So a transaction that stays open for hours, which keeps the settled mark
 *   where it is, costs nothing until it ends.
 * - The cursor lies past a front of rows that stay behind blocked keys. While it is set, claims leave out keys that are in
 *   backoff or slow, and start at the first row of any other key that the last one met. A sweep from the mark meets what has become free or
 *   has appeared below the cursor: after a second, or as soon as a retry of this process is due or has succeeded.
 */
export class ClaimHints {
  readonly #clock: Clock;
  #mark = "0";
  #settledMark = "0";
  /** A mark that waits for the transactions before `next` to end. */
  #unsettled: ReadMark | undefined;
  #guardedMark: GuardedMark = { mark: "0", running: [] };
  /** The newest mark, on its way to be the guarded one. */
  #newest: ReadMark | undefined;
  #markDueAt = 0;
  #fullMarkDueAt = 0;
  #cursor: string | undefined;
  #sweepDueAt = 0;

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

  get cursor(): string | undefined {
    return this.#cursor;
  }

  markIsDue(): boolean {
    return this.#clock.monotonic() >= this.#markDueAt;
  }

  /**
   * Whether the next mark has to be read without a bound. By the rules nothing appears below the settled mark; who restores a backup or starts the
   * sequence anew breaks them, and is found out by this.
   */
  fullMarkIsDue(): boolean {
    return this.#clock.monotonic() >= this.#fullMarkDueAt;
  }

  /** Reading a mark without a bound took `tookMs`: never more than a fiftieth of the time is spent on it. */
  fullMarkTook(tookMs: number): void {
    this.#fullMarkDueAt = this.#clock.monotonic() + FULL_MARK_COST_FACTOR * tookMs;
  }

  /**
   * @param mark the lowest unfinished sequence, or undefined when everything is finished
   * @param snapshot what the statement that read it could not see
   */
  setMark(mark: string | undefined, { running, next }: SnapshotBounds): void {
    if (mark !== undefined) this.#mark = mark;
    const stillRunning = (read: ReadMark) => running.filter((transaction) => transaction < read.next);
    if (this.#unsettled !== undefined && stillRunning(this.#unsettled).length === 0) {
      // Whatever they left below it is in `mark` by now; who began later draws higher sequences.
      this.#settledMark = this.#unsettled.mark;
      this.#unsettled = undefined;
    }
    if (mark !== undefined) this.#settledMark = lower(mark, this.#settledMark);
    if (this.#newest !== undefined) {
      // Those that ended between the two marks are in the second one.
      this.#guardedMark = { mark: lower(this.#newest.mark, this.#mark), running: stillRunning(this.#newest) };
    }
    this.#newest = { mark: this.#mark, next };
    this.#unsettled ??= this.#newest;
    this.#markDueAt = this.#clock.monotonic() + MARK_INTERVAL_MS;
  }

  /** True when the next claim has to look from the mark on: no front is known, or it is time to look at it again. */
  startsAtMark(): boolean {
    return this.#cursor === undefined || this.#clock.monotonic() >= this.#sweepDueAt;
  }

  /** A claim from the mark found enough free rows: there is no blocked front. */
  frontIsFree(): void {
    this.#cursor = undefined;
  }

  /**
   * A sweep past the blocked front took `tookMs` and ended at `position`. A long front is swept less often, so that sweeping
   * never takes more than a twentieth of the time.
   */
  frontIsBlocked(position: string, tookMs: number): void {
    this.#cursor = position;
    this.#sweepDueAt = this.#clock.monotonic() + Math.max(SWEEP_INTERVAL_MS, SWEEP_COST_FACTOR * tookMs);
  }

  /** A claim from the cursor met its first row of a key that is not blocked at `sequence`. */
  advance(sequence: string): void {
    if (this.#cursor !== undefined) this.#cursor = sequence;
  }

  /** A row of a key will be free in `delayMs`: look from the mark by then. */
  sweepWithin(delayMs: number): void {
    this.#sweepDueAt = Math.min(this.#sweepDueAt, this.#clock.monotonic() + delayMs);
  }
}

/** A low-water mark, with the first transaction that its snapshot knew nothing of. */
interface ReadMark {
  readonly mark: string;
  readonly next: bigint;
}

function lower(a: string, b: string): string {
  return BigInt(a) < BigInt(b) ? a : b;
}

const MARK_INTERVAL_MS = 1000;
const FULL_MARK_COST_FACTOR = 50;
const SWEEP_INTERVAL_MS = 1000;
const SWEEP_COST_FACTOR = 20;
