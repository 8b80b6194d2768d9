import type { Outcome } from "../../../model/rows.ts";
import type { ClaimScope } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { higher } from "./lowWaterMarks.ts";
import { ScopeHints } from "./scopeHints.ts";
import { DueTimes, Sweeps } from "./sweeps.ts";

/**
 * Where claims start, remembered between the claims of one process. All hints only save work: with a fresh instance every claim is right, only slower.
 */
export class OutboxHints {
  /** For claims of all rows. */
  readonly unscoped: ClaimHints;
  readonly #clock: Clock;
  /** By their names, the one that was used last at the end. A sweep finds rows of destinations that a scope has only now. */
  readonly #scopes = new Map<string, ScopeHints>();
  /** When retries fall due, by their destinations: a scope that is made until then claims them, too. */
  readonly #retries = new Map<string, DueTimes>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.unscoped = new ClaimHints(clock);
  }

  /** Nothing that was known of the table's positions counts any more. */
  forget(): void {
    this.unscoped.frontIsUnknown();
    // A claim that is under way goes on with hints that nobody asks any more.
    this.#scopes.clear();
  }

  /** For a claim of this scope. */
  of(scope: ClaimScope): ScopeHints {
    const hints = this.#scopes.get(scope.name) ?? this.#make(scope);
    this.#scopes.delete(scope.name);
    this.#scopes.set(scope.name, hints);
    const [oldest] = this.#scopes.keys();
    if (this.#scopes.size > MOST_SCOPES && oldest !== undefined) this.#scopes.delete(oldest);
    return hints;
  }

  /**
   * A row that has failed will be due in `delayMs`. Every scope that holds it claims due retries then; and who claims it by now sweeps, for what waits
   * behind it.
   *
   * @param settlement of the row. Where no scope claims it alone, it is among the rows of every scope that leaves some out
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
    return [...this.#scopes.values()]
      .filter(({ scope, cursor }) => cursor !== undefined && isWithin(scope, destinations))
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

function isWithin(
  { which, destinations }: Pick<ClaimScope, "which" | "destinations">,
  others: readonly string[],
): boolean {
  return which === "except" && destinations.every((each) => others.includes(each));
}

/** Far more than are in use at a time. */
const MOST_SCOPES = 1000;

/**
 * Where a claim of all rows starts: at the low-water mark, or at a cursor.
 *
 * The cursor lies past a front of rows that stay behind blocked keys. While it is set, claims leave out keys that are in backoff or slow, and start at
 * the first row of any other key that the last one found.
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

  /** A claim from the mark found enough free rows: there is no blocked front. */
  frontIsFree(): void {
    this.#cursor = undefined;
    this.#sweeps.forgetFreeBefore(this.#clock.monotonic());
  }

  /** What was known of it does not count any more. */
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
