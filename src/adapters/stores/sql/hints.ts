import type { Clock } from "../../../ports/runtime.ts";
import { Marks } from "./marks.ts";

/**
 * Where a claim starts to look, remembered between claims of one process: low-water marks, and a cursor. All hints only save work: with a fresh
 * instance every claim is right, only slower.
 *
 * The cursor lies past a front of rows that stay behind blocked keys. While it is set, claims leave out keys that are in backoff or slow, and start at
 * the first row of any other key that the last one met. A sweep from the mark meets what has become free or has appeared below the cursor: after a
 * second, and whenever a retry of this process is due.
 */
export class ClaimHints {
  readonly marks: Marks;
  readonly #clock: Clock;
  #cursor: string | undefined;
  #sweepDueAt = 0;
  /** No sweep for the sake of a key before. */
  #restsUntil = 0;
  /** When keys will be free, in ascending order and rounded up to {@link GRAIN_MS}, so that they are not many. */
  readonly #freeAt: number[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.marks = new Marks(clock, () => {
      this.#cursor = undefined;
    });
  }

  get mark(): string {
    return this.marks.mark;
  }

  get cursor(): string | undefined {
    return this.#cursor;
  }

  /** True when the next claim has to look from the mark on: no front is known, or it is time to look at it again. */
  startsAtMark(): boolean {
    const [freeAt = Number.POSITIVE_INFINITY] = this.#freeAt;
    const dueAt = Math.min(this.#sweepDueAt, Math.max(freeAt, this.#restsUntil));
    return this.#cursor === undefined || this.#clock.monotonic() >= dueAt;
  }

  /** A claim from the mark found enough free rows: there is no blocked front. */
  frontIsFree(): void {
    this.#cursor = undefined;
    this.#forgetFreeBefore(this.#clock.monotonic());
  }

  /**
   * A sweep past the blocked front took `tookMs` and ended at `position`. A long front is swept less often, so that sweeping never takes more than a
   * twentieth of the time, or a fifth where keys become free all the time.
   */
  frontIsBlocked(position: string, tookMs: number): void {
    const endedAt = this.#clock.monotonic();
    this.#cursor = position;
    this.#sweepDueAt = endedAt + Math.max(SWEEP_INTERVAL_MS, SWEEP_COST_FACTOR * tookMs);
    this.#restsUntil = endedAt + REST_COST_FACTOR * tookMs;
    // It has met those that were free when it began.
    this.#forgetFreeBefore(endedAt - tookMs);
  }

  /** A claim from the cursor met its first row of a key that is not blocked at `sequence`. */
  advance(sequence: string): void {
    if (this.#cursor !== undefined) this.#cursor = sequence;
  }

  /** A row of a key will be free in `delayMs`: look from the mark then. */
  sweepWithin(delayMs: number): void {
    const time = Math.ceil((this.#clock.monotonic() + delayMs) / GRAIN_MS) * GRAIN_MS;
    const before = this.#freeAt.findLastIndex((each) => each <= time);
    if (this.#freeAt[before] !== time) this.#freeAt.splice(before + 1, 0, time);
  }

  #forgetFreeBefore(time: number): void {
    this.#freeAt.splice(0, this.#freeAt.findLastIndex((each) => each <= time) + 1);
  }
}

const GRAIN_MS = 20;
const SWEEP_INTERVAL_MS = 1000;
const SWEEP_COST_FACTOR = 20;
const REST_COST_FACTOR = 4;
