import type { Clock } from "../../time/clock.ts";

/** Whether rows that this process failed to deliver still wait for their next attempt: nothing wakes the poller when one falls due. */
export class PendingRetries {
  readonly #clock: Clock;
  #until = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param delayMs how long the row waits once its failure is settled */
  add(delayMs: number): void {
    this.#until = Math.max(this.#until, this.#clock.monotonic() + delayMs + SETTLING_MS);
  }

  any(): boolean {
    return this.#clock.monotonic() < this.#until;
  }
}

/** A retry's delay begins when it is settled, a little after the attempt has failed. */
const SETTLING_MS = 1000;
