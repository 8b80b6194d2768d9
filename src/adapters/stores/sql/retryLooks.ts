import type { Clock } from "../../../time/clock.ts";
import { DueTimes } from "./dueTimes.ts";

/**
 * When a scope has to look for retries in front of its cursor. An index has them by the time at which they fall due, so a look costs what has fallen due of late,
 * whatever else is in front.
 *
 * Only retries of this process are known here: those of other replicas are met by sweeps, like everything else in front of the cursor. So is a retry that two
 * looks have not met, since the database's clock was set back or an earlier row of its key is in the way.
 */
export class RetryLooks {
  readonly #clock: Clock;
  readonly #dueTimes: DueTimes;
  #restsUntil = Number.NEGATIVE_INFINITY;

  /** @param dueTimes of retries that have been made before */
  constructor(clock: Clock, dueTimes: readonly DueTimes[]) {
    this.#clock = clock;
    this.#dueTimes = new DueTimes(clock, dueTimes);
  }

  /** A retry will be due in `delayMs`. */
  retryIn(delayMs: number): void {
    this.#dueTimes.add(delayMs);
  }

  /** How long ago retries can have fallen due that are to be looked for now, in ms; undefined where it is not time to look. */
  dueWithinMs(): number | undefined {
    const now = this.#clock.monotonic();
    const { first } = this.#dueTimes;
    return first === undefined || now < Math.max(first, this.#restsUntil) ? undefined : now - first + SETTLED_WITHIN_MS;
  }

  /**
   * A look has ended.
   *
   * @param beganAt monotonic ms
   * @param leavesSome it has claimed as many as it may: the next one is due at once
   */
  ended(beganAt: number, leavesSome: boolean): void {
    if (leavesSome) return;
    const now = this.#clock.monotonic();
    this.#restsUntil = now + Math.max(SHORTEST_REST_MS, REST_COST_FACTOR * (now - beganAt));
    // One look more for those that the database did not take for due yet.
    this.#dueTimes.forgetUntil(beganAt - SHORTEST_REST_MS);
  }

  /** No row of the scope can be in front of its cursor. */
  areNeedless(): void {
    this.#dueTimes.forgetUntil(this.#clock.monotonic());
  }
}

/** A row falls due earlier than this process thinks, as its settlement took some time: longer ones are rare. */
const SETTLED_WITHIN_MS = 5000;
const SHORTEST_REST_MS = 100;
/** As of sweeps: very many rows of other destinations may have fallen due. */
const REST_COST_FACTOR = 20;
