import type { Clock } from "../../../time/clock.ts";

/** What a snapshot of the database cannot see, and which transaction began after it. */
interface SnapshotBounds {
  /** The transactions that ran, of those before `end`. */
  readonly running: readonly bigint[];
  /** The transaction behind the newest one that had ended: it and those behind it may have been running too. */
  readonly end: bigint;
  /** A transaction that began after the snapshot, and has ended. Undefined for an unchanged mark. */
  readonly later: bigint | undefined;
  /**
   * Who was writing to the table between the snapshot and `later`: every writer without a transaction number, and those
   * of {@link LowWaterMarks.awaited} still running. Undefined when not read.
   */
  readonly writers: readonly string[] | undefined;
}

/** A mark that holds as long as none of some transactions has ended. */
interface ConditionalMark {
  readonly mark: string;
  readonly running: readonly bigint[];
}

/**
 * What a process remembers of a table, until it loses a connection: where statements start, to skip index entries of
 * finished rows that an old transaction keeps alive.
 */
export interface LowWater {
  readonly marks: LowWaterMarks;
  /** Reads the next mark. @param intervalMs since the last one; about a second by default */
  refreshIfDue(intervalMs?: number): Promise<void>;
  /** The parameter `lowWater` of a statement: nothing is unfinished below it. @param from replaces the newest mark */
  bound(from?: string): readonly string[];
}

/** For a database in which finished rows leave the indexes with their commit. */
export function noLowWater(clock: Clock): LowWater {
  return { marks: new LowWaterMarks(clock), refreshIfDue: async () => {}, bound: () => [] };
}

/**
 * The low-water marks of a table: positions below which nothing is unfinished, remembered between the statements of one
 * process. They only save work: with a fresh instance every statement is right, only slower. Positions are decimal
 * numbers; a later writer has a higher one.
 *
 * - newest: the lowest unfinished position, refreshed about once a second. That of the outbox passes parked rows, which
 *   are looked up below it.
 * - stable: nothing can appear below it, as every transaction that ran when it was read has ended.
 * - conditional: stable too, while the snapshot of a statement shows none of its `running` transactions ended.
 *
 * A row below the newest mark whose transaction commits late becomes a candidate at the next refresh. As an earlier row
 * of its key it must count at once, or order is lost: hence the stable and the conditional mark.
 * `docs/low-water-mark.md` explains them with a drawing.
 *
 * A writer takes its position before its transaction number: triggers, and waits for other writers of the same row,
 * come in between. A mark counts only after the writers without a number that its read saw have ended.
 */
export class LowWaterMarks {
  readonly #clock: Clock;
  #newest = "0";
  #stable = "0";
  /** A mark that waits for the transactions before `next` to end. */
  #unstable: ReadMark | undefined;
  /** The read behind the conditional mark; undefined before the first. */
  #conditionalRead: ReadMark | undefined;
  #conditional: ConditionalMark = NO_CONDITION;
  /** A read on its way to become the conditional one. */
  #nextConditional: ReadMark | undefined;
  #afterHighest: string | undefined;
  #newestTransaction = 0n;
  #markReadAt = Number.NEGATIVE_INFINITY;
  #fullReadDueAt = 0;
  readonly #onForget: (() => void)[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param listener is called when the marks are discarded: any other remembered position is then invalid */
  onForget(listener: () => void): void {
    this.#onForget.push(listener);
  }

  get newest(): string {
    return this.#newest;
  }

  get stable(): string {
    return this.#stable;
  }

  get conditional(): ConditionalMark {
    return this.#conditional;
  }

  isDue(intervalMs = READ_INTERVAL_MS): boolean {
    return this.#clock.monotonic() >= this.#markReadAt + intervalMs;
  }

  /**
   * Whether to read the next mark without a bound: this finds what appeared below the stable mark because a backup was
   * restored, a sequence restarted, a clock set back or a row's state changed by hand.
   */
  fullReadIsDue(): boolean {
    return this.#clock.monotonic() >= this.#fullReadDueAt;
  }

  /**
   * Reading a mark without a bound took `tookMs`: it may take a fiftieth of the time, but is due within a minute. A
   * read of over a second mostly waited for a lock, which costs the database nothing.
   */
  fullReadTook(tookMs: number): void {
    this.#fullReadDueAt = this.#clock.monotonic() + Math.min(FULL_READ_COST_FACTOR * tookMs, LONGEST_FULL_READ_WAIT_MS);
  }

  /** The newest mark that is remembered; undefined before the first. */
  get lastRead(): string | undefined {
    return (this.#nextConditional ?? this.#conditionalRead)?.mark;
  }

  /** Writers that marks wait for. The next read checks which of them still write. */
  get awaited(): readonly string[] {
    return [...new Set([this.#unstable, this.#nextConditional].flatMap((read) => [...(read?.writers ?? [])]))];
  }

  /** The position after the highest one seen: the mark where nothing is unfinished. Undefined before the first. */
  get afterHighest(): string | undefined {
    return this.#afterHighest;
  }

  /** A statement has found an unfinished row at this position. */
  saw(position: string): void {
    const after = String(BigInt(position) + 1n);
    this.#afterHighest = this.#afterHighest === undefined ? after : higher(after, this.#afterHighest);
  }

  /** Discards all marks: the table may be in an earlier state (a failover, a restored backup). */
  forget(): void {
    this.#newest = "0";
    this.#stable = "0";
    this.#unstable = undefined;
    this.#conditionalRead = undefined;
    this.#conditional = NO_CONDITION;
    this.#nextConditional = undefined;
    this.#afterHighest = undefined;
    this.#newestTransaction = 0n;
    this.#markReadAt = Number.NEGATIVE_INFINITY;
    for (const listener of this.#onForget) listener();
  }

  /**
   * @param mark the lowest unfinished position, or what replaces it; undefined for neither
   * @param snapshot of the statement that read it
   */
  setNewest(mark: string | undefined, { running, end, later, writers }: SnapshotBounds): void {
    if (end <= this.#newestTransaction) this.forget();
    if (mark !== undefined) this.#newest = mark;
    // All of them lie before `end`, since that is behind the transaction `next`.
    const stillRunning = ({ next }: ReadMark) => running.filter((transaction) => transaction < next);
    if (this.#unstable?.writers.size === 0 && stillRunning(this.#unstable).length === 0) {
      // Whatever they left below it is in `mark` by now; later writers have higher positions.
      this.#stable = this.#unstable.mark;
      this.#unstable = undefined;
    }
    if (mark !== undefined) this.#stable = lower(mark, this.#stable);
    if (this.#nextConditional?.writers.size === 0) {
      this.#conditionalRead = this.#nextConditional;
      this.#nextConditional = undefined;
    }
    if (this.#conditionalRead !== undefined) {
      // Those that ended between the two reads are in the second one.
      const { mark: read } = this.#conditionalRead;
      this.#conditional = { mark: lower(read, this.#newest), running: stillRunning(this.#conditionalRead) };
    }
    // Writers that ended meanwhile count at the next read: this snapshot may be older than their end.
    const stillWriting = new Set(writers);
    for (const read of [this.#unstable, this.#nextConditional]) {
      for (const writer of read?.writers ?? []) if (!stillWriting.has(writer)) read?.writers.delete(writer);
    }
    if (later !== undefined) this.#remember({ mark: this.#newest, next: later, writers: stillWriting });
    this.#markReadAt = this.#clock.monotonic();
  }

  #remember(read: ReadMark): void {
    this.#newestTransaction = read.next;
    // One that waits for writers is kept while others come: else none would ever count under constant writes.
    if (this.#nextConditional === undefined || read.writers.size === 0) this.#nextConditional = read;
    this.#unstable ??= read;
  }
}

/** A mark, a transaction that began after its read, and the writers without a number since then. */
interface ReadMark {
  readonly mark: string;
  readonly next: bigint;
  readonly writers: Set<string>;
}

const NO_CONDITION: ConditionalMark = { mark: "0", running: [] };
const READ_INTERVAL_MS = 1000;
const FULL_READ_COST_FACTOR = 50;
const LONGEST_FULL_READ_WAIT_MS = 60_000;

/** Positions are decimal numbers of any length. */
export function lower(a: string, b: string): string {
  return BigInt(a) < BigInt(b) ? a : b;
}

export function higher(a: string, b: string): string {
  return BigInt(a) > BigInt(b) ? a : b;
}
