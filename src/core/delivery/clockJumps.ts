import type { Clock } from "../../time/clock.ts";

/**
 * Notices that the database's clock was set ahead, which ends the leases of all claims at once. Whoever holds one goes on
 * with it until its lease has ended by a clock that does not jump; taken from it before, its rows would be delivered twice,
 * and out of order. A failover to a server whose clock is ahead is the same, and so is a pause of this virtual machine.
 */
export class ClockJumps {
  readonly #clock: Pick<Clock, "monotonic">;
  /** The database's clock less ours, at most, and when that was read. */
  #last: { readonly ahead: number; readonly at: number } | undefined;
  #jumpedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /**
   * Looks at the database's clock. Call it about every second.
   *
   * @param read reads it, in ms
   * @returns ms since it jumped last; infinity if it never did
   * @throws what `read` throws
   */
  async look(read: () => Promise<number>): Promise<number> {
    const before = this.#clock.monotonic();
    const now = await read();
    const after = this.#clock.monotonic();
    // The server read it between the two: a slow answer does not look like a jump.
    if (this.#last !== undefined && after - this.#last.at < REMEMBERED_MS && now - after > this.#last.ahead + JUMP_MS) {
      this.#jumpedAt = after;
    }
    this.#last = { ahead: now - before, at: after };
    return after - this.#jumpedAt;
  }
}

/** A jump that a lease outlasts: it is renewed long before its end. */
const JUMP_MS = 1000;
/** Clocks drift apart: after longer than this, that may look like a jump. */
const REMEMBERED_MS = 60_000;
