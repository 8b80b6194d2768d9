import type { Clock } from "../../../time/clock.ts";

/** Due times in ascending order, rounded up to {@link GRAIN_MS} to keep them few. */
export class DueTimes {
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
export class Sweeps {
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
export class RetryTimes {
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
