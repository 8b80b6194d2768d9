import type { Clock } from "../../../ports/runtime.ts";
import { Marks } from "./marks.ts";

/**
 * Where a claim starts to look, remembered between claims of one process: low-water marks, and a cursor. All hints only save work: with a fresh
 * instance every claim is right, only slower.
 *
 * The cursor lies past a front of rows that stay behind blocked keys. While it is set, claims leave out keys that are in backoff or slow, and start at
 * the first row of any other key that the last one met. A sweep from the mark meets what has become free or has appeared below the cursor: after a
 * second, or as soon as a retry of this process is due or has succeeded.
 */
export class ClaimHints {
  readonly marks: Marks;
  readonly #clock: Clock;
  #cursor: string | undefined;
  #sweepDueAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.marks = new Marks(clock);
  }

  get mark(): string {
    return this.marks.mark;
  }

  get cursor(): string | undefined {
    return this.#cursor;
  }

  /** True when the next claim has to look from the mark on: no front is known, or it is time to look at it again. */
  startsAtMark(): boolean {
    return this.#cursor === undefined || this.#clock.monotonic() >= this.#sweepDueAt;
  }

  /** A claim from the mark found enough free rows: there is no blocked front. */
  frontIsFree(): void {
    this.#cursor = undefined;
  }

  /**
   * A sweep past the blocked front took `tookMs` and ended at `position`. A long front is swept less often, so that sweeping
   * never takes more than a twentieth of the time.
   */
  frontIsBlocked(position: string, tookMs: number): void {
    this.#cursor = position;
    this.#sweepDueAt = this.#clock.monotonic() + Math.max(SWEEP_INTERVAL_MS, SWEEP_COST_FACTOR * tookMs);
  }

  /** A claim from the cursor met its first row of a key that is not blocked at `sequence`. */
  advance(sequence: string): void {
    if (this.#cursor !== undefined) this.#cursor = sequence;
  }

  /** A row of a key will be free in `delayMs`: look from the mark by then. */
  sweepWithin(delayMs: number): void {
    this.#sweepDueAt = Math.min(this.#sweepDueAt, this.#clock.monotonic() + delayMs);
  }
}

const SWEEP_INTERVAL_MS = 1000;
const SWEEP_COST_FACTOR = 20;
