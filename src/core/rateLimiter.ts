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
 * slice while it waits for the last one: for a backlog that is about five statements a second for the whole fleet, for a thin stream at most one a row; and
 * no gap between two slices goes unused.
 *
 * In any second there are at most `burst` and one slice: `burst - perSecond` can be saved up, and a slice may be used as soon as all of it is due.
 */
export class RateLimiter {
  readonly #options: RateLimiterOptions;
  /** Tokens of one request at most. */
  readonly #slice: number;
  /** For how long a token may be used once it is due: what is used later would come on top of what is due then. */
  readonly #usableMs: number;
  /** Tokens that are taken and not used at most. */
  readonly #most: number;
  #due: { readonly at: number; tokens: number }[] = [];
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
    this.#usableMs = (this.#slice / options.perSecond) * USABLE_SHARE * 1000;
  }

  /** Deliveries that may begin now. */
  available(): number {
    const since = this.#options.clock.monotonic() - this.#usableMs;
    this.#due = this.#due.filter(({ at, tokens }) => at > since && tokens > 0);
    return this.#due.reduce((sum, { tokens }) => sum + tokens, 0);
  }

  /** A delivery begins. */
  use(): void {
    const oldest = this.#due.find(({ tokens }) => tokens > 0);
    if (oldest !== undefined) oldest.tokens -= 1;
  }

  /** So many rows could begin now but for the rate. */
  want(rows: number): void {
    const now = this.#options.clock.monotonic();
    const usable = this.available();
    if (usable === 0) this.#waitingSince ??= now;
    const missing = Math.min(rows, this.#most) - usable - this.#coming;
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
    const dueAt = this.#options.clock.monotonic() + waitMs;
    this.#after(waitMs, () => this.#become(tokens, dueAt));
    if (waitMs > 0) this.want(rows);
  }

  /** @param dueAt monotonic ms; a process that was suspended comes to this late */
  #become(tokens: number, dueAt: number): void {
    this.#coming -= tokens;
    this.#due.push({ at: dueAt, tokens });
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
/** Of the time until the next slice is due: answers of the database take more or less time on their way. */
const USABLE_SHARE = 0.9;
const LEAST_BACKOFF_MS = 100;
const MOST_BACKOFF_MS = 1000;
