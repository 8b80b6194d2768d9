import type { Clock } from "../../../time/clock.ts";

/** When something will be due, in ascending order and rounded up to {@link GRAIN_MS}, so that the times are not many. */
export class DueTimes {
  readonly #clock: Clock;
  readonly #times: number[];

  /** @param others of them those that have yet to come are taken over */
  constructor(clock: Clock, others: readonly DueTimes[] = []) {
    this.#clock = clock;
    const now = clock.monotonic();
    const times = others.flatMap((each) => each.#times.filter((time) => time > now));
    this.#times = [...new Set(times)].sort((a, b) => a - b);
  }

  /** Monotonic ms. */
  get first(): number | undefined {
    return this.#times[0];
  }

  add(delayMs: number): void {
    const now = this.#clock.monotonic();
    // Of the times that have come the first is enough, however long nobody asks.
    const come = this.#times.findLastIndex((each) => each <= now);
    if (come > 0) this.#times.splice(1, come);
    const time = Math.ceil((now + delayMs) / GRAIN_MS) * GRAIN_MS;
    const before = this.#times.findLastIndex((each) => each <= time);
    if (this.#times[before] !== time) this.#times.splice(before + 1, 0, time);
  }

  /** Also forgets `time` itself. */
  forgetUntil(time: number): void {
    this.#times.splice(0, this.#times.findLastIndex((each) => each <= time) + 1);
  }
}

const GRAIN_MS = 20;
