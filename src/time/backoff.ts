import type { Random } from "./clock.ts";

/**
 * The waits between tries to reach a broker: doubling from 100 ms up to 5 s, each with up to half of it taken off at random, so that replicas do
 * not come back in step after a broker's restart.
 */
export class Backoff {
  readonly #random: Random;
  #failures = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  /** Tries that failed since the last `reset`. */
  get failures(): number {
    return this.#failures;
  }

  /** @returns how long to wait after one more failure, in ms */
  next(): number {
    const longest = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.#failures);
    this.#failures += 1;
    return Math.round(longest * (1 - this.#random() / 2));
  }

  /** The broker was reached: the next failure starts with the shortest wait. */
  reset(): void {
    this.#failures = 0;
  }
}

const FIRST_MS = 100;
const LONGEST_MS = 5000;
