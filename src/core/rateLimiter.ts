import type { DestinationStore } from "../ports/destinationStore.ts";
import type { Clock, Timer } from "../ports/runtime.ts";

export interface RateLimiterOptions {
  /** Of the destination. */
  readonly name: string;
  readonly perSecond: number;
  /** Most deliveries in any second; by default `perSecond`, rounded up. */
  readonly burst?: number | undefined;
  readonly store: Pick<DestinationStore, "takeFromRate">;
  /** Told when deliveries may begin. */
  readonly onTokens: () => void;
  /** Told when the database did not answer; the next request is made a little later. */
  readonly onError: (error: unknown) => void;
  readonly clock: Clock;
  readonly timer: Timer;
}

/**
 * This process' part of the rate that all replicas share. It takes tokens in slices of a fifth of a second's worth, only for rows that wait, and the next
 * slice while it waits for the last one: the statements are about five a second for the whole fleet, however many messages there are, and no gap between two
 * slices goes unused.
 *
 * In any second there are at most `burst` and one slice: `burst - perSecond` can be saved up, and a slice may be used as soon as all of it is due.
 */
export class RateLimiter {
  readonly #options: RateLimiterOptions;
  /** Tokens of one request. */
  readonly #slice: number;
  /** Tokens that are taken and not used at most. */
  readonly #most: number;
  #usable = 0;
  #usableSince = 0;
  /** Taken, and due later. */
  #coming = 0;
  #isAsking = false;
  #asksAgainAt = Number.NEGATIVE_INFINITY;
  #backoffMs = 0;
  #waitingSince: number | undefined;
  #waitedMs = 0;
  #isStopped = false;
  readonly #timers = new Set<() => void>();

  constructor(options: RateLimiterOptions) {
    this.#options = options;
    this.#slice = Math.max(1, Math.round(options.perSecond * SLICE_S));
    this.#most = this.#slice <= options.perSecond ? 2 * this.#slice : this.#slice;
  }

  /** Deliveries that may begin now. */
  available(): number {
    if (this.#usable > 0 && this.#options.clock.monotonic() - this.#usableSince > UNUSED_MS) this.#usable = 0;
    return this.#usable;
  }

  /** A delivery begins. */
  use(): void {
    this.#usable = Math.max(0, this.#usable - 1);
  }

  /** So many rows wait, and could begin now but for the rate. */
  want(rows: number): void {
    const now = this.#options.clock.monotonic();
    if (this.available() === 0) this.#waitingSince ??= now;
    const missing = Math.min(rows, this.#most) - this.#usable - this.#coming;
    if (missing <= 0 || this.#isAsking || this.#isStopped || now < this.#asksAgainAt) return;
    void this.#ask(Math.min(missing, this.#slice), rows);
  }

  /** Ms for which rows have waited for tokens since this was last asked. */
  takeWaitedMs(): number {
    if (this.#waitingSince !== undefined) this.#endWait(true);
    const ms = this.#waitedMs;
    this.#waitedMs = 0;
    return ms;
  }

  /** Takes nothing more. */
  stop(): void {
    this.#isStopped = true;
    for (const cancel of this.#timers) cancel();
    this.#timers.clear();
  }

  async #ask(tokens: number, rows: number): Promise<void> {
    const { store, name, perSecond, burst } = this.#options;
    this.#isAsking = true;
    let waitMs: number;
    try {
      waitMs = await store.takeFromRate(name, {
        tokens,
        perSecond,
        capacity: Math.max(0, (burst ?? Math.ceil(perSecond)) - perSecond),
      });
    } catch (error) {
      this.#isAsking = false;
      this.#backOff(error);
      return;
    }
    this.#isAsking = false;
    this.#backoffMs = 0;
    this.#coming += tokens;
    this.#after(waitMs, () => this.#become(tokens));
    if (waitMs > 0) this.want(rows);
  }

  #become(tokens: number): void {
    this.#coming -= tokens;
    this.#usable = this.available() + tokens;
    this.#usableSince = this.#options.clock.monotonic();
    this.#endWait(false);
    this.#options.onTokens();
  }

  #backOff(error: unknown): void {
    this.#backoffMs = Math.min(Math.max(LEAST_BACKOFF_MS, 2 * this.#backoffMs), MOST_BACKOFF_MS);
    this.#asksAgainAt = this.#options.clock.monotonic() + this.#backoffMs;
    this.#options.onError(error);
    // Whoever still waits asks again.
    this.#after(this.#backoffMs, this.#options.onTokens);
  }

  #after(ms: number, action: () => void): void {
    if (this.#isStopped) return;
    if (ms <= 0) {
      action();
      return;
    }
    const cancel = this.#options.timer(ms, () => {
      this.#timers.delete(cancel);
      action();
    });
    this.#timers.add(cancel);
  }

  #endWait(goesOn: boolean): void {
    if (this.#waitingSince === undefined) return;
    const now = this.#options.clock.monotonic();
    this.#waitedMs += now - this.#waitingSince;
    this.#waitingSince = goesOn ? now : undefined;
  }
}

const SLICE_S = 0.2;
/** A token that nobody has used by then is gone: it would come on top of those of its later second. */
const UNUSED_MS = 1000;
const LEAST_BACKOFF_MS = 100;
const MOST_BACKOFF_MS = 1000;
