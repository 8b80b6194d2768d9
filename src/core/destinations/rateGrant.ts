export interface RateGrantOptions {
  readonly tokens: number;
  /** Monotonic ms. */
  readonly answeredAt: number;
  /** From then on until the last token is due. */
  readonly waitMs: number;
  /** Between two tokens. */
  readonly intervalMs: number;
  /** For how long a token may be used once it is due: what is used later would come on top of what is due then. */
  readonly usableMs: number;
}

/**
 * Tokens that were taken from a rate together. Each has a time of its own, one interval after the one before: in any stretch of time no more of them are
 * due than the rate allows, whatever the sizes of the grants.
 */
export class RateGrant {
  readonly #options: RateGrantOptions;
  #used = 0;
  #expired = 0;

  constructor(options: RateGrantOptions) {
    this.#options = options;
  }

  get used(): number {
    return this.#used;
  }

  /** Tokens that can still be used, now or later. */
  get left(): number {
    return this.#options.tokens - this.#used - this.#expired;
  }

  /** Whether the last token was used, and none went unused. */
  get isUsedUp(): boolean {
    return this.#used === this.#options.tokens;
  }

  /** Tokens that may be used now. @param now monotonic ms, here and below */
  usable(now: number): number {
    return Math.max(0, this.#due(now) - this.#used - this.#expired);
  }

  use(): void {
    this.#used += 1;
  }

  /** Drops the tokens whose time is over. @returns whether there were any */
  expire(now: number): boolean {
    const expired = this.#due(now - this.#options.usableMs) - this.#used - this.#expired;
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
