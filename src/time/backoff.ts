import type { Random } from "./clock.ts";

/** The shortest wait, after the first failure, and the longest, in ms. */
export interface BackoffRange {
  readonly firstMs: number;
  readonly longestMs: number;
}

/**
 * The wait in ms after the n-th failure in a row: `firstMs * 2^(n-1)`, at most `longestMs`, less a random part of up to
 * half, so that replicas that lost their server together do not return together.
 */
export function backoffMs(failures: number, { firstMs, longestMs }: BackoffRange, random: Random): number {
  return Math.round(Math.min(longestMs, firstMs * 2 ** (failures - 1)) * (1 - random() / 2));
}

/** The waits between tries to reach a broker. */
const BROKER: BackoffRange = { firstMs: 100, longestMs: 5000 };

/** Counts failures in a row and gives the wait after each. */
export class Backoff {
  readonly #random: Random;
  readonly #range: BackoffRange;
  #failures = 0;

  /** @param range default: 100 ms to 5 s */
  constructor(random: Random, range: BackoffRange = BROKER) {
    this.#random = random;
    this.#range = range;
  }

  get failures(): number {
    return this.#failures;
  }

  next(): number {
    this.#failures += 1;
    return backoffMs(this.#failures, this.#range, this.#random);
  }

  /** Makes the next failure start with the shortest wait. */
  reset(): void {
    this.#failures = 0;
  }
}
