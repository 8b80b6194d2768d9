import type { Clock } from "../../time/clock.ts";
import type { PlannedMove } from "./shares.ts";
import type { Waiting } from "./unfinished.ts";

/** How long closed buckets wait for their rows. */
export class Patience {
  readonly #clock: Clock;
  readonly #waitMs: number;
  readonly #endsAt: number;
  /** Rows of each bucket at the first look. */
  #before: ReadonlyMap<number, number> | undefined;
  /** Those that leave too slowly are left out once, when the first wait is over. */
  #isExtended = false;

  constructor(clock: Clock, waitMs: number) {
    this.#clock = clock;
    this.#waitMs = waitMs;
    this.#endsAt = clock.monotonic() + waitMs;
  }

  /** @returns those that are not waited for any longer */
  lateOf(moves: readonly PlannedMove[], waiting: ReadonlyMap<number, Waiting>): readonly PlannedMove[] {
    const rowsOf = (bucket: number) => [...(waiting.get(bucket)?.counts.values() ?? [])].reduce((sum, n) => sum + n, 0);
    this.#before ??= new Map(moves.map(({ bucket }) => [bucket, rowsOf(bucket)]));
    const before = this.#before;
    const now = this.#clock.monotonic();
    if (now < this.#endsAt) return [];
    if (now >= this.#endsAt + MORE_WAITS * this.#waitMs) return moves;
    if (this.#isExtended) return [];
    this.#isExtended = true;
    return moves.filter(({ bucket }) => {
      const rows = rowsOf(bucket);
      return rows > MORE_WAITS * ((before.get(bucket) ?? 0) - rows);
    });
  }
}

/** By which a wait is extended where the rows that have left in it say that the others will. */
const MORE_WAITS = 3;
