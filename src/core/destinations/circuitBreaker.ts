import type { Clock } from "../../time/clock.ts";
import type { ReceiverReport } from "./receiver.ts";

/** `destinations.<name>.circuitBreaker`. */
export interface BreakerLimits {
  /** Share of the deliveries in the window, from above 0 to 1. */
  readonly failureRatio: number;
  readonly minimumAttempts: number;
  readonly windowMs: number;
  /** How long the breaker is open the first time. */
  readonly openMs: number;
  /** The longest it is open, after doubling. */
  readonly maxOpenMs: number;
}

/** That a breaker should open. */
export interface OpeningReason {
  readonly reason: string;
  /** No shorter than this. */
  readonly atLeastMs: number;
}

/**
 * Counts what the deliveries of this process tell of one receiver, and says when its breaker should open:
 *
 * - `failureRatio` of the deliveries in the window failed, and there were `minimumAttempts`;
 * - nothing but failures came for a second, and there were `minimumAttempts`: what went well before an outage would hide it for half a window, and rows use
 *   their attempts up meanwhile;
 * - nothing but failures came for a whole window, of three rows or more: a receiver that hangs is tried seldom, and would never get to `minimumAttempts`; or
 * - three answers in the window asked to be left alone for a while (`Retry-After`).
 */
export class CircuitBreaker {
  readonly #limits: BreakerLimits;
  readonly #clock: Clock;
  /** Tenths of the window, the newest last; empty ones are not kept. */
  #slices: Slice[] = [];
  /** Since the last success. */
  #inARow = 0;
  /** Of these rows; no more than it takes. */
  readonly #rowsInARow = new Set<string>();
  /** From when the first of them began to when the last one ended. */
  #failingSince = 0;
  #failedAt = 0;
  #askedToWait: { readonly at: number; readonly until: number }[] = [];
  #resetAt = Number.NEGATIVE_INFINITY;

  constructor(limits: BreakerLimits, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  /** A delivery of a row has ended. One that began before the last reset does not count. @param beganAt monotonic ms */
  add({ receiver, retryAfterMs }: ReceiverReport, beganAt: number, row: string): void {
    if (receiver === "unknown" || beganAt < this.#resetAt) return;
    const now = this.#clock.monotonic();
    const slice = this.#sliceAt(now);
    slice.attempts += 1;
    if (receiver === "well") {
      this.#endStreak();
      return;
    }
    slice.failures += 1;
    if (this.#inARow === 0) this.#failingSince = beganAt;
    this.#inARow += 1;
    if (this.#rowsInARow.size < LEAST_ROWS_IN_A_ROW) this.#rowsInARow.add(row);
    this.#failedAt = now;
    if (retryAfterMs !== undefined && retryAfterMs > 0) {
      this.#askedToWait = [...this.#askedToWait.slice(1 - WAITS_ASKED), { at: now, until: now + retryAfterMs }];
    }
  }

  /** Why the breaker should open now; undefined when it should not. */
  shouldOpen(): OpeningReason | undefined {
    const { failureRatio, minimumAttempts, windowMs, maxOpenMs } = this.#limits;
    const now = this.#clock.monotonic();
    const waits = this.#askedToWait.filter(({ at }) => now - at <= windowMs);
    if (waits.length >= WAITS_ASKED) {
      const atLeastMs = Math.min(maxOpenMs, Math.max(...waits.map(({ until }) => until - now)));
      return { reason: `${WAITS_ASKED} answers asked to wait (Retry-After)`, atLeastMs: Math.max(0, atLeastMs) };
    }
    this.#forgetBefore(now - windowMs);
    const attempts = this.#slices.reduce((sum, slice) => sum + slice.attempts, 0);
    const failures = this.#slices.reduce((sum, slice) => sum + slice.failures, 0);
    if (attempts >= minimumAttempts && failures / attempts >= failureRatio) {
      return { reason: `${failures} of ${attempts} deliveries failed within ${windowMs} ms`, atLeastMs: 0 };
    }
    const failingMs = this.#failedAt - this.#failingSince;
    const isSudden = this.#inARow >= minimumAttempts && failingMs >= Math.min(SUDDEN_MS, windowMs);
    if (isSudden || (this.#rowsInARow.size >= LEAST_ROWS_IN_A_ROW && failingMs >= windowMs)) {
      return { reason: `all ${this.#inARow} deliveries within ${Math.round(failingMs)} ms failed`, atLeastMs: 0 };
    }
    return undefined;
  }

  /** Begins to count anew. */
  reset(): void {
    this.#slices = [];
    this.#endStreak();
    this.#askedToWait = [];
    this.#resetAt = this.#clock.monotonic();
  }

  #endStreak(): void {
    this.#inARow = 0;
    this.#rowsInARow.clear();
  }

  #sliceAt(now: number): Slice {
    const { windowMs } = this.#limits;
    this.#forgetBefore(now - windowMs);
    const newest = this.#slices.at(-1);
    if (newest !== undefined && now - newest.beganAt < windowMs / SLICES) return newest;
    const slice = { beganAt: now, attempts: 0, failures: 0 };
    this.#slices.push(slice);
    return slice;
  }

  #forgetBefore(time: number): void {
    while (this.#slices[0] !== undefined && this.#slices[0].beganAt <= time) this.#slices.shift();
  }
}

interface Slice {
  /** Monotonic ms. */
  readonly beganAt: number;
  attempts: number;
  failures: number;
}

const SLICES = 10;
const SUDDEN_MS = 1000;
/** One or two rows that fail through a night are no outage. */
const LEAST_ROWS_IN_A_ROW = 3;
const WAITS_ASKED = 3;
