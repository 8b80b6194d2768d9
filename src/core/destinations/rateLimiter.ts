import type { DestinationStore } from "../../ports/destinationStore.ts";
import type { Clock, Random, Timer } from "../../time/clock.ts";
import { Backoff } from "../../time/wait.ts";

interface RateLimiterOptions {
  readonly name: string;
  readonly perSecond: number;
  /** Most deliveries in any second; by default `perSecond`, rounded up. */
  readonly burst?: number | undefined;
  readonly store: Pick<DestinationStore, "takeFromRate">;
  /** Called when deliveries may begin. */
  readonly onTokens: () => void;
  /** Called when the database did not answer; the next request follows shortly. */
  readonly onError: (error: unknown) => void;
  readonly clock: Clock;
  readonly timer: Timer;
  readonly random: Random;
}

/**
 * This process' part of the rate that all replicas share. It takes tokens in grants of at most a slice, a fifth of a
 * second's worth, and asks for the next grant while it waits for the last one: about five statements a second for the
 * whole fleet under a backlog, at most one a row for a thin stream.
 *
 * The size of a grant follows demand, as in TCP: one token at first, more while tokens run out before rows do, fewer
 * after tokens went unused. Ready rows do not show demand: a single key has one, however many wait behind it.
 *
 * In any second there are at most `burst` and one slice: `burst - perSecond` can be saved up, and each token may be
 * used for almost a slice from its own time on.
 */
export class RateLimiter {
  readonly #options: RateLimiterOptions;
  readonly #slice: number;
  readonly #usableMs: number;
  #window = 1;
  #grants: RateGrant[] = [];
  /** The last grant was used up, and nothing has waited for more since. */
  #isUsedUp = false;
  #usedAt = Number.NEGATIVE_INFINITY;
  #unusedAt = Number.NEGATIVE_INFINITY;
  #isAsking = false;
  #asksAgainAt = Number.NEGATIVE_INFINITY;
  readonly #backoff: Backoff;
  #waitingSince: number | undefined;
  #waitedMs = 0;
  #isStopped = false;
  /** Cancels the timer of the next token, or of the end of a backoff. */
  #cancelTimer: (() => void) | undefined;

  constructor(options: RateLimiterOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.random, RETRY_WAITS);
    this.#slice = Math.max(1, Math.round(options.perSecond * SLICE_S));
    this.#usableMs = (this.#slice / options.perSecond) * USABLE_SHARE * 1000;
  }

  available(): number {
    const now = this.#options.clock.monotonic();
    let usable = 0;
    for (const grant of this.#grants) {
      if (grant.expire(now)) this.#shrink(now, grant.usedTokens);
      usable += grant.usable(now);
    }
    this.#grants = this.#grants.filter(({ leftTokens }) => leftTokens > 0);
    return usable;
  }

  use(): void {
    const now = this.#options.clock.monotonic();
    const grant = this.#grants.find((each) => each.usable(now) > 0);
    if (grant === undefined) return;
    grant.usedTokens += 1;
    this.#endWait(false);
    this.#usedAt = now;
    if (grant.isUsedUp) this.#isUsedUp = true;
  }

  /** Number of rows that could begin now if the rate allowed it. */
  want(rows: number): void {
    const now = this.#options.clock.monotonic();
    if (this.available() === 0 && this.#waitingSince === undefined) {
      this.#waitingSince = now;
      this.#grow(now, rows);
    }
    const taken = this.#grants.reduce((sum, { leftTokens }) => sum + leftTokens, 0);
    // A window above 1 shows that more rows come than are ready now.
    const most = this.#window > 1 ? 2 * this.#window : Math.min(rows, 2);
    const mayAsk = !this.#isAsking && !this.#isStopped && now >= this.#asksAgainAt;
    if (mayAsk && taken + this.#window <= most) void this.#ask(this.#window, rows);
    this.#wakeForNext(now);
  }

  /** Ms for which rows have waited for tokens since the last call. */
  takeWaitedMs(): number {
    if (this.#waitingSince !== undefined) this.#endWait(true);
    const ms = this.#waitedMs;
    this.#waitedMs = 0;
    return ms;
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #shrink(now: number, used: number): void {
    this.#window = Math.max(1, Math.min(this.#window, Math.max(used, Math.floor(this.#window / 2))));
    this.#unusedAt = now;
  }

  #grow(now: number, rows: number): void {
    if (now - this.#usedAt > this.#usableMs) this.#window = 1;
    else if (this.#isUsedUp && now - this.#unusedAt > CAUTIOUS_MS) {
      const more = rows > this.#window ? this.#window : Math.ceil(this.#window / 4);
      this.#window = Math.min(this.#window + more, this.#slice);
    }
    this.#isUsedUp = false;
  }

  async #ask(tokens: number, rows: number): Promise<void> {
    const { store, name, perSecond, burst, clock } = this.#options;
    const askedAt = clock.monotonic();
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
    this.#backoff.reset();
    if (this.#isStopped) return;
    const answeredAt = clock.monotonic();
    // The database granted them somewhere in between: they begin at the latest such time and end at the earliest. Half
    // of the time is left in any case, so that a slow database lets rows through.
    const usableMs = Math.max(this.#usableMs - (answeredAt - askedAt), this.#usableMs / 2);
    this.#grants.push(new RateGrant({ tokens, answeredAt, waitMs, intervalMs: 1000 / perSecond, usableMs }));
    if (this.available() > 0) this.#notify();
    else this.want(rows);
  }

  #backOff(error: unknown): void {
    this.#asksAgainAt = this.#options.clock.monotonic() + this.#backoff.next();
    this.#options.onError(error);
    this.#wakeForNext(this.#options.clock.monotonic());
  }

  /** When the next token is due, or the database may be asked again. @param now monotonic ms */
  #wakeForNext(now: number): void {
    const times = [this.#asksAgainAt, ...this.#grants.map((grant) => grant.nextAt(now))];
    const next = Math.min(...times.filter((time) => time > now));
    if (next !== Number.POSITIVE_INFINITY) this.#wakeAfter(Math.max(Math.ceil(next - now), LEAST_WAKE_MS));
  }

  #wakeAfter(ms: number): void {
    if (this.#isStopped || this.#cancelTimer !== undefined) return;
    this.#cancelTimer = this.#options.timer(ms, () => {
      this.#cancelTimer = undefined;
      this.#notify();
    });
  }

  #notify(): void {
    if (this.available() > 0) this.#endWait(false);
    this.#options.onTokens();
  }

  #endWait(goesOn: boolean): void {
    if (this.#waitingSince === undefined) return;
    const now = this.#options.clock.monotonic();
    this.#waitedMs += now - this.#waitingSince;
    this.#waitingSince = goesOn ? now : undefined;
  }
}

const SLICE_S = 0.2;
/** Of a slice: in one second the token due at its end may be used, and those of a whole slice before it. */
const USABLE_SHARE = 0.9;
/** Grants do not grow for this long after tokens went unused. */
const CAUTIOUS_MS = 1000;
const RETRY_WAITS = { firstMs: 100, longestMs: 1000 };
/** At thousands a second several tokens are due at a time. */
const LEAST_WAKE_MS = 5;

interface RateGrantOptions {
  readonly tokens: number;
  /** Monotonic ms. */
  readonly answeredAt: number;
  /** From then on until the last token is due. */
  readonly waitMs: number;
  /** Between two tokens. */
  readonly intervalMs: number;
  /** How long a due token is usable; later it would add to those due then. */
  readonly usableMs: number;
}

/** Tokens taken from a rate together. Each is due one interval after the previous one, whatever the grants' sizes. */
class RateGrant {
  readonly #options: RateGrantOptions;
  usedTokens = 0;
  #expired = 0;

  constructor(options: RateGrantOptions) {
    this.#options = options;
  }

  /** Tokens that can still be used, now or later. */
  get leftTokens(): number {
    return this.#options.tokens - this.usedTokens - this.#expired;
  }

  get isUsedUp(): boolean {
    return this.usedTokens === this.#options.tokens;
  }

  /** Tokens that may be used now. @param now monotonic ms, here and below */
  usable(now: number): number {
    return Math.max(0, this.#due(now) - this.usedTokens - this.#expired);
  }

  /** Drops the tokens whose time has passed. @returns whether there were any */
  expire(now: number): boolean {
    const expired = this.#due(now - this.#options.usableMs) - this.usedTokens - this.#expired;
    if (expired <= 0) return false;
    this.#expired += expired;
    return true;
  }

  /** When the next token is due; infinite when all are. */
  nextAt(now: number): number {
    const { tokens, answeredAt, waitMs, intervalMs } = this.#options;
    const due = this.#due(now);
    return due === tokens ? Number.POSITIVE_INFINITY : answeredAt + waitMs - (tokens - 1 - due) * intervalMs;
  }

  /** Tokens whose time has come by `now`: the oldest ones. */
  #due(now: number): number {
    const { tokens, answeredAt, waitMs, intervalMs } = this.#options;
    if (now < answeredAt) return 0;
    const missing = Math.ceil((answeredAt + waitMs - now) / intervalMs - ROUNDING);
    return Math.min(Math.max(tokens - missing, 0), tokens);
  }
}

const ROUNDING = 1e-6;
