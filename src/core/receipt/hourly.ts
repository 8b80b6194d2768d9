import type { Clock } from "../../time/clock.ts";

/** Limits repeated log lines to one an hour for each key. */
export class Hourly {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #lastAt = new Map<string, number>();

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** @returns whether the line of this key is to be logged now; that begins its next hour */
  isDue(key: string): boolean {
    const now = this.#clock.monotonic();
    const last = this.#lastAt.get(key);
    if (last !== undefined && now - last < HOUR_MS) return false;
    this.#lastAt.set(key, now);
    return true;
  }
}

const HOUR_MS = 3_600_000;
