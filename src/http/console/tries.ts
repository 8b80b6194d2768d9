import type { Clock } from "../../time/clock.ts";

const MOST_FAILURES = 10;
const WINDOW_MS = 60_000;
const MOST_ADDRESSES = 1000;

/** Bounds failed sign-ins: ten a minute from each address. Behind a proxy all callers share its address. */
export class FailedTries {
  readonly #clock: Pick<Clock, "now">;
  readonly #byAddress = new Map<string, { count: number; until: number }>();

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  /** Seconds until an address may try again; 0 when it may now. */
  waitOf(address: string): number {
    const found = this.#byAddress.get(address);
    const now = this.#clock.now();
    if (found === undefined || found.until <= now || found.count < MOST_FAILURES) return 0;
    return Math.ceil((found.until - now) / 1000);
  }

  add(address: string): void {
    const now = this.#clock.now();
    const found = this.#byAddress.get(address);
    if (found !== undefined && found.until > now) {
      found.count++;
      return;
    }
    // The oldest one goes: memory stays bounded whoever tries.
    const [oldest] = this.#byAddress.keys();
    if (oldest !== undefined && this.#byAddress.size >= MOST_ADDRESSES) this.#byAddress.delete(oldest);
    this.#byAddress.delete(address);
    this.#byAddress.set(address, { count: 1, until: now + WINDOW_MS });
  }
}
