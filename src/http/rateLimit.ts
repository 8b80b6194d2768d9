import type { Clock } from "../time/clock.ts";

/**
 * A token bucket: a full minute's requests may come at once, after that they refill evenly. One bucket per source; callers
 * are not told apart (spec, "Limits").
 */
export class RateLimit {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #perMinute: number;
  /** In requests times ms: a ms refills `#perMinute` of them and a request costs a minute's worth, without rounding. */
  #level: number;
  #refilledAt: number;

  constructor(requestsPerMinute: number, clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
    this.#perMinute = requestsPerMinute;
    this.#level = requestsPerMinute * MINUTE_MS;
    this.#refilledAt = clock.monotonic();
  }

  /** @returns 0 when the request may pass, else the whole seconds (at least 1) after which the next one may */
  take(): number {
    const now = this.#clock.monotonic();
    const full = this.#perMinute * MINUTE_MS;
    this.#level = Math.min(full, this.#level + (now - this.#refilledAt) * this.#perMinute);
    this.#refilledAt = now;
    if (this.#level >= MINUTE_MS) {
      this.#level -= MINUTE_MS;
      return 0;
    }
    const waitMs = (MINUTE_MS - this.#level) / this.#perMinute;
    return Math.max(1, Math.ceil(waitMs / 1000));
  }
}

const MINUTE_MS = 60_000;
