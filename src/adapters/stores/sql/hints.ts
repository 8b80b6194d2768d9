import type { Outcome } from "../../../model/rows.ts";
import type { ClaimScope } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { higher, lower } from "./lowWaterMarks.ts";

/** Where claims start, remembered by one process. Hints only save work: without them claims are only slower. */
export class OutboxHints {
  readonly unscoped: ClaimHints;
  readonly #clock: Clock;
  /** By name, the most recently used at the end. A sweep finds rows of destinations new to a scope. */
  readonly #scopes = new Map<string, ScopeHints>();
  /** When retries fall due, by their destinations: a scope that is made until then claims them, too. */
  readonly #retries = new Map<string, DueTimes>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.unscoped = new ClaimHints(clock);
  }

  /** Discards all positions of the table. */
  forget(): void {
    this.unscoped.frontIsUnknown();
    // A running claim continues with hints that are no longer used.
    this.#scopes.clear();
  }

  of(scope: ClaimScope): ScopeHints {
    const hints = this.#scopes.get(scope.name) ?? this.#make(scope);
    this.#scopes.delete(scope.name);
    this.#scopes.set(scope.name, hints);
    const [oldest] = this.#scopes.keys();
    if (this.#scopes.size > MOST_SCOPES && oldest !== undefined) this.#scopes.delete(oldest);
    return hints;
  }

  /**
   * A failed row is due in `delayMs`. Every scope that holds it then claims due retries; the scope that claims it now
   * sweeps, for what waits behind it.
   *
   * @param settlement of the row. Without a scope it is among the rows of every scope that leaves some out
   */
  retryIn(delayMs: number, { scope, destination }: Pick<Outcome, "scope" | "destination">): void {
    this.unscoped.sweepWithin(delayMs);
    if (destination !== undefined) this.#retriesTo(destination).add(delayMs);
    for (const hints of this.#scopes.values()) {
      if (scope === undefined ? hints.scope.which === "except" : hints.scope.name === scope) hints.sweepWithin(delayMs);
      if (destination === undefined || isOf(hints.scope, destination)) hints.retryIn(delayMs);
    }
  }

  #make(scope: ClaimScope): ScopeHints {
    const retries = [...this.#retries].filter(([destination]) => isOf(scope, destination)).map(([, times]) => times);
    return new ScopeHints(this.#clock, scope, this.#widerThan(scope), retries);
  }

  #retriesTo(destination: string): DueTimes {
    const times = this.#retries.get(destination) ?? new DueTimes(this.#clock);
    this.#retries.set(destination, times);
    return times;
  }

  /** Of those that leave out some of the same destinations and no other: the one that has come furthest. */
  #widerThan({ which, destinations }: ClaimScope): ScopeHints | undefined {
    if (which === "only") return undefined;
    const isSubset = (some: readonly string[]) => some.every((each) => destinations.includes(each));
    return [...this.#scopes.values()]
      .filter(({ scope, cursor }) => cursor !== undefined && scope.which === "except" && isSubset(scope.destinations))
      .reduce<ScopeHints | undefined>(
        (furthest, each) =>
          furthest === undefined || higher(each.cursor ?? "0", furthest.cursor ?? "0") === each.cursor
            ? each
            : furthest,
        undefined,
      );
  }

  /** Rows of any destination are free now. */
  sweepSoon(): void {
    this.unscoped.sweepWithin(0);
    for (const hints of this.#scopes.values()) hints.sweepWithin(0);
  }
}

function isOf({ which, destinations }: Pick<ClaimScope, "which" | "destinations">, destination: string): boolean {
  return destinations.includes(destination) === (which === "only");
}

/** Far more than are in use at a time. */
const MOST_SCOPES = 1000;

/**
 * Where a claim of all rows starts: at the low-water mark, or at a cursor.
 *
 * The cursor is past a front of rows behind blocked keys. While it is set, claims leave out keys in backoff or slow
 * keys, and start at the first row of any other key that the last claim found.
 */
export class ClaimHints {
  readonly #clock: Clock;
  readonly #sweeps: Sweeps;
  #cursor: string | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sweeps = new Sweeps(clock);
  }

  get cursor(): string | undefined {
    return this.#cursor;
  }

  /** True when the next claim starts from the mark: no front is known, or it is time to sweep it again. */
  startsAtMark(): boolean {
    return this.#cursor === undefined || this.#sweeps.isDue();
  }

  /** A claim from the mark found enough free rows: no front is blocked. */
  frontIsFree(): void {
    this.#cursor = undefined;
    this.#sweeps.forgetFreeBefore(this.#clock.monotonic());
  }

  frontIsUnknown(): void {
    this.#cursor = undefined;
  }

  /** A sweep past the blocked front took `tookMs` and ended at `position`. */
  frontIsBlocked(position: string, tookMs: number): void {
    this.#cursor = position;
    this.#sweeps.ended(tookMs);
  }

  /** A claim from the cursor found its first row of a key that is not blocked at `sequence`. */
  advance(sequence: string): void {
    if (this.#cursor !== undefined) this.#cursor = sequence;
  }

  /** A row of a key will be free in `delayMs`: sweep then. */
  sweepWithin(delayMs: number): void {
    this.#sweeps.sweepWithin(delayMs);
  }
}

/** The table as a claim saw it that found no row of these destinations, or of all others. */
export interface SeenTable {
  readonly table: string;
  readonly destinations: readonly string[];
}

/** What a claim of a scope found from the cursor on, or from the mark for the first one. */
interface ScopeClaimFound {
  readonly from: string;
  /** The first row of the scope that it found, which is not behind a blocked key. */
  readonly first: string | undefined;
  /** The end of the table, and when it was read: before the claim. */
  readonly end?: { readonly position: string; readonly readAt: number } | undefined;
  readonly tookMs: number;
  /** Where the database can detect whether another claim can find more. */
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
  readonly isFresh: boolean;
}

/** What a claim of a scope has found in front of the cursor. */
interface StretchSwept extends Pick<Stretch, "to"> {
  /** The first row of the scope that it found, which is not behind a blocked key. */
  readonly first: string | undefined;
  /** No such row that is free is left. */
  readonly hasTakenAll: boolean;
  readonly tookMs: number;
  readonly seen: SeenTable | undefined;
}

/**
 * Where the claims of one scope start. Any number of other rows may be in front of its own, so its claims begin at a
 * cursor below which none of its rows was free. Now and then it sweeps the front for rows that became free or appeared
 * there: stretch by stretch, each along with a claim from the cursor, so that no claim takes long.
 *
 * The cursor stays a second behind the rows found and the end of the table: positions are taken before they are
 * committed, and a row that appears below the cursor waits for the next sweep, which is rare for a long front. In the
 * first second of a scope the cursor stays at the rows found; a sweep at its end finds what appeared below. Rows of a
 * key that was blocked or left out wait for a sweep. Retries alone are claimed on time, past whatever is in front: such
 * a claim changes neither the cursor nor a running sweep.
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
  /** The last claim from the cursor on found no row. */
  foundNothing = false;
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
   * @param retries due times of rows that failed before
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

  /** Whether the next claim must read the end of the table, though it is not the first, to advance the cursor. */
  get needsEnd(): boolean {
    return this.foundNothing && !this.#isLagging();
  }

  /** What the last sweep saw, if it found no row and the next one is only for changes since. */
  get seen(): SeenTable | undefined {
    return this.#lagged === undefined ? undefined : this.#seenTable;
  }

  /** Nothing has changed since the last sweep, as it took `tookMs` to find out. */
  sweepIsNeedless(tookMs: number): void {
    this.#sweepEnded(this.#clock.monotonic() - tookMs, tookMs, this.#seenTable);
  }

  /** When the running sweep continues, in ms; undefined for none. */
  get goesOnInMs(): number | undefined {
    return this.#left === undefined ? undefined : Math.max(0, this.#restsUntil - this.#clock.monotonic());
  }

  dueRetries(mark: string): DueRetries | undefined {
    const withinMs = this.#retries.dueWithinMs();
    if (this.#cursor === undefined || withinMs === undefined) return undefined;
    if (lower(mark, this.#cursor) !== this.#cursor) return { from: mark, to: this.#cursor, withinMs };
    this.#retries.areNeedless();
    return undefined;
  }

  retriesClaimed(beganAt: number, leavesSome: boolean): void {
    this.#retries.ended(beganAt, leavesSome);
  }

  dueSweep(mark: string): DueSweep | undefined {
    const now = this.#clock.monotonic();
    if (this.#cursor === undefined || now < this.#restsUntil) return undefined;
    if (this.#left === undefined) {
      const firstSecondIsOver = this.#firstSecondEndsAt !== undefined && now >= this.#firstSecondEndsAt;
      if (!firstSecondIsOver && !this.#sweeps.isDue()) return undefined;
      this.#firstSecondEndsAt = undefined;
      this.#left = { from: mark, to: this.#cursor, isFresh: true, beganAt: now, seen: undefined };
    }
    const { isFresh, to } = this.#left;
    const from = higher(this.#left.from, mark);
    if (lower(from, to) !== to) this.#left = { ...this.#left, from };
    // The mark is past the cursor: all that a sweep finds was set back to pending below it.
    else if (isFresh) this.#left = { ...this.#left, from, to: from };
    else {
      this.#sweepEnded(this.#left.beganAt, 0, this.#left.seen);
      return undefined;
    }
    return this.#left;
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
    // Claims continue from there, and soon take them.
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
    this.foundNothing = first === undefined;
  }

  retryIn(delayMs: number): void {
    this.#retries.retryIn(delayMs);
  }

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

/** Due times in ascending order, rounded up to {@link GRAIN_MS} to keep them few. */
class DueTimes {
  readonly #clock: Clock;
  readonly #times: number[];

  /** @param others of them those that have yet to come are taken over */
  constructor(clock: Clock, others: readonly DueTimes[] = []) {
    this.#clock = clock;
    const now = clock.monotonic();
    const times = others.flatMap((each) => each.#times.filter((time) => time > now));
    this.#times = [...new Set(times)].sort((a, b) => a - b);
  }

  get first(): number | undefined {
    return this.#times[0];
  }

  add(delayMs: number): void {
    const now = this.#clock.monotonic();
    // Of the times that have passed the first is enough.
    const come = this.#times.findLastIndex((each) => each <= now);
    if (come > 0) this.#times.splice(1, come);
    const time = Math.ceil((now + delayMs) / GRAIN_MS) * GRAIN_MS;
    const before = this.#times.findLastIndex((each) => each <= time);
    if (this.#times[before] !== time) this.#times.splice(before + 1, 0, time);
  }

  /** Also forgets `time` itself. */
  forgetUntil(time: number): void {
    this.#times.splice(0, this.#times.findLastIndex((each) => each <= time) + 1);
  }
}

/**
 * When claims that begin at a cursor start from the low-water mark again (a sweep), for rows that became free or
 * appeared below the cursor: after a second, and whenever a retry of this process is due. A long front is swept less
 * often: sweeps take at most a twentieth of the time, or a fifth where keys become free all the time.
 */
class Sweeps {
  readonly #clock: Clock;
  #dueAt = 0;
  /** Until then no sweep is due because a key becomes free. */
  #restsUntil = 0;
  readonly #freeAt: DueTimes;
  readonly #restCostFactor: number;

  /** @param restCostFactor rest after a sweep until a free key makes one due, as a multiple of its time */
  constructor(clock: Clock, restCostFactor = 4) {
    this.#clock = clock;
    this.#freeAt = new DueTimes(clock);
    this.#restCostFactor = restCostFactor;
  }

  isDue(): boolean {
    const { first: freeAt = Number.POSITIVE_INFINITY } = this.#freeAt;
    return this.#clock.monotonic() >= Math.min(this.#dueAt, Math.max(freeAt, this.#restsUntil));
  }

  /** A sweep has just ended. @param tookMs its time, or that of its last part @param beganAt monotonic ms */
  ended(tookMs: number, beganAt = this.#clock.monotonic() - tookMs): void {
    const endedAt = this.#clock.monotonic();
    this.#dueAt = endedAt + Math.max(SWEEP_INTERVAL_MS, SWEEP_COST_FACTOR * tookMs);
    this.#restsUntil = endedAt + this.#restCostFactor * tookMs;
    // It has found those that were free when it began.
    this.forgetFreeBefore(beganAt);
  }

  /** A row of a key will be free in `delayMs`: a sweep is due then. */
  sweepWithin(delayMs: number): void {
    this.#freeAt.add(delayMs);
  }

  forgetFreeBefore(time: number): void {
    this.#freeAt.forgetUntil(time);
  }
}

/**
 * When a scope claims due retries in front of its cursor. An index has them by due time, so such a claim costs only
 * what fell due recently.
 *
 * It knows only retries of this process: sweeps find those of other replicas, and a retry that two such claims missed,
 * because the database's clock was set back or an earlier row of its key blocks it.
 */
class RetryTimes {
  readonly #clock: Clock;
  readonly #dueTimes: DueTimes;
  #restsUntil = Number.NEGATIVE_INFINITY;

  /** @param dueTimes of retries that have been made before */
  constructor(clock: Clock, dueTimes: readonly DueTimes[]) {
    this.#clock = clock;
    this.#dueTimes = new DueTimes(clock, dueTimes);
  }

  retryIn(delayMs: number): void {
    this.#dueTimes.add(delayMs);
  }

  /** How long ago the retries to claim now can have fallen due, in ms; undefined where it is not time yet. */
  dueWithinMs(): number | undefined {
    const now = this.#clock.monotonic();
    const { first } = this.#dueTimes;
    return first === undefined || now < Math.max(first, this.#restsUntil) ? undefined : now - first + SETTLE_TIME_MS;
  }

  /**
   * A claim of due retries has ended.
   *
   * @param beganAt monotonic ms
   * @param leavesSome it was full: the next one is due at once
   */
  ended(beganAt: number, leavesSome: boolean): void {
    if (leavesSome) return;
    const now = this.#clock.monotonic();
    this.#restsUntil = now + Math.max(SHORTEST_REST_MS, RETRY_REST_FACTOR * (now - beganAt));
    // One claim more for those that were not due yet by the database's clock.
    this.#dueTimes.forgetUntil(beganAt - SHORTEST_REST_MS);
  }

  /** No row of the scope can be in front of its cursor. */
  areNeedless(): void {
    this.#dueTimes.forgetUntil(this.#clock.monotonic());
  }
}

const GRAIN_MS = 20;
const SWEEP_INTERVAL_MS = 1000;
const SWEEP_COST_FACTOR = 20;
/** A row falls due earlier than this process thinks, as its settlement took some time: longer times are rare. */
const SETTLE_TIME_MS = 5000;
const SHORTEST_REST_MS = 100;
/** As of sweeps: very many rows of other destinations may have fallen due. */
const RETRY_REST_FACTOR = 20;
