import type { Clock } from "../../../time/clock.ts";
import { DueTimes } from "./dueTimes.ts";

/**
 * When a claim that begins at a cursor has to look from the mark again, for what has become free or has appeared below the cursor: after a
 * second, and whenever a retry of this process is due. A long front is swept less often, so that sweeping never takes more than a
 * twentieth of the time, or a fifth where keys become free all the time.
 */
export class Sweeps {
  readonly #clock: Clock;
  #dueAt = 0;
  /** Until then no sweep is due because a key becomes free. */
  #restsUntil = 0;
  /** When keys will be free. */
  readonly #freeAt: DueTimes;
  readonly #restCostFactor: number;

  /** @param restCostFactor how many times as long as a sweep took none is due because a key becomes free */
  constructor(clock: Clock, restCostFactor = 4) {
    this.#clock = clock;
    this.#freeAt = new DueTimes(clock);
    this.#restCostFactor = restCostFactor;
  }

  isDue(): boolean {
    const { first: freeAt = Number.POSITIVE_INFINITY } = this.#freeAt;
    return this.#clock.monotonic() >= Math.min(this.#dueAt, Math.max(freeAt, this.#restsUntil));
  }

  /** A sweep has just ended. @param tookMs its time, or that of its last part @param beganAt monotonic ms */
  ended(tookMs: number, beganAt = this.#clock.monotonic() - tookMs): void {
    const endedAt = this.#clock.monotonic();
    this.#dueAt = endedAt + Math.max(INTERVAL_MS, COST_FACTOR * tookMs);
    this.#restsUntil = endedAt + this.#restCostFactor * tookMs;
    // It has met those that were free when it began.
    this.forgetFreeBefore(beganAt);
  }

  /** A row of a key will be free in `delayMs`: a sweep is due then. */
  sweepWithin(delayMs: number): void {
    this.#freeAt.add(delayMs);
  }

  forgetFreeBefore(time: number): void {
    this.#freeAt.forgetUntil(time);
  }
}

const INTERVAL_MS = 1000;
const COST_FACTOR = 20;
