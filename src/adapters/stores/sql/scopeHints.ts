import type { ClaimScope } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { higher, lower } from "./lowWaterMarks.ts";
import { type DueTimes, RetryTimes, Sweeps } from "./sweeps.ts";

/** The table as a claim saw it that found no row of these destinations, or of all others. */
export interface SeenTable {
  readonly table: string;
  readonly destinations: readonly string[];
}

/** What a claim of a scope has found from the cursor on, or from the mark where it was the first one. */
interface ScopeClaimFound {
  /** Where it began. */
  readonly from: string;
  /** The first row of the scope that it found, which is not behind a blocked key. */
  readonly first: string | undefined;
  /** The end of the table, and when it was read: before the claim. */
  readonly end?: { readonly position: string; readonly readAt: number } | undefined;
  /** How long it took, in ms. */
  readonly tookMs: number;
  /** Where the database can tell whether another claim can find more. */
  readonly seen: SeenTable | undefined;
}

/** Positions in front of a scope's cursor, without the last. */
interface Stretch {
  readonly from: string;
  readonly to: string;
}

/** Where to claim due retries. */
interface DueRetries extends Stretch {
  /** How long ago they have fallen due at most, in ms. */
  readonly withinMs: number;
}

/** What is left of a sweep. */
interface DueSweep extends Stretch {
  /** Nothing of it has been swept yet. */
  readonly isFresh: boolean;
}

/** What a claim of a scope has found in front of the cursor. */
interface StretchSwept extends Pick<Stretch, "to"> {
  /** The first row of the scope that it found, which is not behind a blocked key. */
  readonly first: string | undefined;
  /** No such row that is free is left. */
  readonly hasTakenAll: boolean;
  /** How long it took, in ms. */
  readonly tookMs: number;
  /** As in {@link ScopeClaimFound}. */
  readonly seen: SeenTable | undefined;
}

/**
 * Where the claims of one scope start. In front of its rows there may be any number of others, so a scope always has a front to pass: its claims begin at
 * a cursor below which none of its rows was free. Now and then the front is swept for what has become free or has appeared there: stretch by stretch, each
 * along with a claim from the cursor, so that no claim takes long because the front is.
 *
 * The cursor keeps a second behind the rows that were found and the end of the table: positions are taken before they are committed, and a row that appears
 * below the cursor would wait for the next sweep, which is seldom where the front is long. In the first second of a scope nothing is known to be that old,
 * and the cursor keeps at the rows that were found; a sweep at its end finds what has appeared below. Rows of a key that was blocked or left
 * out, and is not any more, wait for a sweep: finding them at once would mean to sweep all the time. Retries alone are claimed at their time, past whatever
 * else is in front: such a claim tells nothing of the front, and changes neither the cursor nor the sweep under way.
 */
export class ScopeHints {
  readonly scope: Pick<ClaimScope, "name" | "which" | "destinations">;
  readonly #clock: Clock;
  readonly #sweeps: Sweeps;
  readonly #retries: RetryTimes;
  #cursor: string | undefined;
  /** The highest position that is known to have been there {@link LAG_MS} ago. */
  #lagged: string | undefined;
  /** One that will be. Others do not count until then, or none would ever be. */
  #seen: { readonly position: string; readonly at: number } | undefined;
  #foundNothing = false;
  /** What the last sweep saw, if it found nothing. */
  #seenTable: SeenTable | undefined;
  /** The end of the first second, until it has been swept for. */
  #firstSecondEndsAt: number | undefined;
  /** What is left of the sweep under way. */
  #left: (DueSweep & { readonly beganAt: number; readonly seen: SeenTable | undefined }) | undefined;
  /** Until then no further stretch is swept. */
  #restsUntil = Number.NEGATIVE_INFINITY;

  /**
   * @param wider hints of a scope that holds all rows of this one
   * @param retries when rows of this scope will be due that have failed before
   */
  constructor(
    clock: Clock,
    scope: Pick<ClaimScope, "name" | "which" | "destinations">,
    wider: ScopeHints | undefined,
    retries: readonly DueTimes[],
  ) {
    this.#clock = clock;
    this.scope = scope;
    this.#sweeps = new Sweeps(clock, REST_COST_FACTOR);
    this.#retries = new RetryTimes(clock, retries);
    if (wider === undefined) return;
    this.#cursor = wider.#cursor;
    this.#lagged = wider.#lagged;
    this.#seen = wider.#seen;
  }

  /** Where the next claim starts; undefined before the first one. */
  get cursor(): string | undefined {
    return this.#cursor;
  }

  /** Whether the next claim has to read the end of the table, though it is not the first: only then can the cursor go on. */
  get needsEnd(): boolean {
    return this.#foundNothing && !this.#isLagging();
  }

  /** Whether the last claim from the cursor on found no row. */
  get foundNothing(): boolean {
    return this.#foundNothing;
  }

  /** What the last sweep saw, if it found no row and the next one is only for what has changed since, not for the cursor. */
  get seen(): SeenTable | undefined {
    return this.#lagged === undefined ? undefined : this.#seenTable;
  }

  /** Nothing has changed since the last sweep, as it took `tookMs` to find out. */
  sweepIsNeedless(tookMs: number): void {
    this.#sweepEnded(this.#clock.monotonic() - tookMs, tookMs, this.#seenTable);
  }

  /** When the sweep under way goes on, in ms; undefined where there is none. */
  get goesOnInMs(): number | undefined {
    return this.#left === undefined ? undefined : Math.max(0, this.#restsUntil - this.#clock.monotonic());
  }

  /** Retries that are to be claimed in front of the cursor now. @param mark below which nothing is unfinished */
  dueRetries(mark: string): DueRetries | undefined {
    const withinMs = this.#retries.dueWithinMs();
    if (this.#cursor === undefined || withinMs === undefined) return undefined;
    if (lower(mark, this.#cursor) !== this.#cursor) return { from: mark, to: this.#cursor, withinMs };
    this.#retries.areNeedless();
    return undefined;
  }

  /** A claim of due retries has ended. Parameters as of {@link RetryTimes.ended}. */
  retriesClaimed(beganAt: number, leavesSome: boolean): void {
    this.#retries.ended(beganAt, leavesSome);
  }

  /** What is left of a sweep that is due now. @param mark below which nothing is unfinished */
  dueSweep(mark: string): DueSweep | undefined {
    const now = this.#clock.monotonic();
    if (this.#cursor === undefined || now < this.#restsUntil) return undefined;
    if (this.#left === undefined) {
      const firstSecondIsOver = this.#firstSecondEndsAt !== undefined && now >= this.#firstSecondEndsAt;
      if (!firstSecondIsOver && !this.#sweeps.isDue()) return undefined;
      this.#firstSecondEndsAt = undefined;
      this.#left = { from: mark, to: this.#cursor, isFresh: true, beganAt: now, seen: undefined };
    }
    this.#left = { ...this.#left, from: higher(this.#left.from, mark) };
    if (lower(this.#left.from, this.#left.to) !== this.#left.to) return this.#left;
    this.#sweepEnded(this.#left.beganAt, 0, this.#left.seen);
    return undefined;
  }

  /** Remembers what a claim has found in a stretch of the sweep. */
  swept({ to, first, hasTakenAll, tookMs, seen }: StretchSwept): void {
    this.#restsUntil = this.#clock.monotonic() + REST_COST_FACTOR * tookMs;
    this.#updateLagged();
    // After the first second; it stays where it is later on.
    if (this.#cursor !== undefined && this.#lagged !== undefined) this.#cursor = lower(this.#cursor, this.#lagged);
    if (this.#left === undefined) return;
    const { to: end, beganAt, isFresh, seen: seenFirst } = this.#left;
    // Where nothing has changed since the first part, the others have seen the same.
    const table = first === undefined && seen !== undefined ? (isFresh ? seen : seenFirst) : undefined;
    const leavesSome = first !== undefined && !hasTakenAll;
    // Claims go on from there: so many are soon taken one claim after another.
    if (leavesSome) this.#cursor = lower(first, this.#cursor ?? first);
    if (leavesSome || to === end) this.#sweepEnded(beganAt, tookMs, table);
    else this.#left = { from: to, to: end, isFresh: false, beganAt, seen: table };
  }

  /** Remembers what a claim has found from the cursor on. */
  claimed({ from, first, end, tookMs, seen }: ScopeClaimFound): void {
    const front = first ?? higher(from, end?.position ?? this.#seen?.position ?? from);
    const now = this.#clock.monotonic();
    this.#updateLagged();
    if (end !== undefined) this.#seen ??= { position: end.position, at: end.readAt };
    if (first !== undefined) this.#seen ??= { position: first, at: now };
    if (this.#cursor === undefined) {
      this.#firstSecondEndsAt = (this.#seen?.at ?? now) + LAG_MS;
      this.#sweepEnded(now - tookMs, tookMs, first === undefined ? seen : undefined);
    }
    // After a claim of more than a second its own end counts.
    this.#updateLagged();
    this.#cursor = this.#lagged === undefined ? front : lower(front, this.#lagged);
    this.#foundNothing = first === undefined;
  }

  /** A row of the scope that has failed will be due in `delayMs`: claim it then. */
  retryIn(delayMs: number): void {
    this.#retries.retryIn(delayMs);
  }

  /** A row of a key will be free in `delayMs`: sweep then. */
  sweepWithin(delayMs: number): void {
    this.#sweeps.sweepWithin(delayMs);
  }

  #sweepEnded(beganAt: number, tookMs: number, seen: SeenTable | undefined): void {
    this.#left = undefined;
    this.#seenTable = seen;
    this.#sweeps.ended(tookMs, beganAt);
  }

  #updateLagged(): void {
    if (this.#seen === undefined || this.#isLagging()) return;
    this.#lagged = higher(this.#seen.position, this.#lagged ?? this.#seen.position);
    this.#seen = undefined;
  }

  #isLagging(): boolean {
    return this.#seen !== undefined && this.#clock.monotonic() < this.#seen.at + LAG_MS;
  }
}

/** Longer than it takes from the insert of a row to its commit, mostly. */
const LAG_MS = 1000;
/** With a long front a retry may be late, rather than the rows of others. */
const REST_COST_FACTOR = 20;
