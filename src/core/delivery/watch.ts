import type { Store } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { Poller } from "./poller.ts";

interface WatchOptions {
  readonly store: Pick<Store, "isOutboxWatched" | "glanceAtOutbox">;
  readonly poller: Pick<Poller, "pass" | "claimed" | "nextPassWithinMs">;
  /** Wait between passes without a wake, in ms (`outbox.pollIntervalMs`; longer while a capture wakes this poller). */
  readonly pollIntervalMs: () => number;
  /** How many times longer than in a small fleet a poller may rest. */
  readonly fleetFactor: () => number;
  /** Called before a pass that may claim rows. */
  readonly beforeClaims: () => Promise<void>;
  readonly clock: Clock;
}

/**
 * Shares the watch over the outbox among the pollers of a database: one looks for due rows at each poll interval, and
 * what is announced wakes it alone. The others rest, and glance at the outbox once a second, in a large fleet less
 * often, so that nothing depends on the watcher:
 *
 * - If a row has been due for longer than a watcher that keeps up would leave it, a resting poller claims it, and polls for
 *   some seconds, and for longer when that recurs.
 * - Wakes of its own process, and times that it has set itself (retries, probes), are never left to others.
 */
export class OutboxWatch {
  readonly #options: WatchOptions;
  #awakeUntil = Number.NEGATIVE_INFINITY;
  /** The present wait is that of a resting poller. */
  #rests = false;
  #busyAt = Number.NEGATIVE_INFINITY;
  #claimedBefore = 0;
  /** For how long the last overdue rows kept it awake, in ms. */
  #unwatchedMs = 0;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /** Whether another poller watches, and has left no row undone lately. */
  get mayRest(): boolean {
    const { store, clock } = this.#options;
    return store.isOutboxWatched() && clock.monotonic() >= this.#awakeUntil;
  }

  /** Whether it may rest and has not claimed a row for some seconds. */
  get isIdle(): boolean {
    this.#noteClaims();
    return this.mayRest && this.#options.clock.monotonic() - this.#busyAt >= BUSY_MS;
  }

  /** Rows were added, or a claim may be made now: the next pass claims. */
  endRest(): void {
    this.#rests = false;
  }

  /** Before each wait for the next pass. @returns the longest one, in ms */
  waitMs(): number {
    const { poller, pollIntervalMs, fleetFactor } = this.#options;
    const longestMs = this.mayRest ? Math.max(pollIntervalMs(), REST_MS * fleetFactor()) : pollIntervalMs();
    this.#rests = this.mayRest && longestMs <= poller.nextPassWithinMs;
    return Math.min(longestMs, poller.nextPassWithinMs);
  }

  /** As {@link Poller.pass}; after a rest only if rows are overdue or the poller may not rest any longer. */
  async pass(): Promise<"again" | "idle" | "full"> {
    const { poller, beforeClaims } = this.#options;
    const rested = this.#rests && this.mayRest;
    this.#rests = false;
    if (rested && !(await this.#mustClaim())) return "idle";
    await beforeClaims();
    const before = poller.claimed;
    const result = await poller.pass();
    this.#noteClaims();
    if (poller.claimed > before && rested && this.mayRest) this.#isUnwatched();
    return result;
  }

  /** Receipts claim rows, too. */
  #noteClaims(): void {
    const { poller, clock } = this.#options;
    if (poller.claimed !== this.#claimedBefore) this.#busyAt = clock.monotonic();
    this.#claimedBefore = poller.claimed;
  }

  async #mustClaim(): Promise<boolean> {
    const { isOverdue } = await this.#options.store.glanceAtOutbox(OVERDUE_MS);
    return isOverdue || !this.mayRest;
  }

  #isUnwatched(): void {
    const recurs = this.#options.clock.monotonic() - this.#awakeUntil < this.#unwatchedMs;
    this.#unwatchedMs = recurs ? Math.min(2 * this.#unwatchedMs, LONGEST_UNWATCHED_MS) : UNWATCHED_MS;
    this.#awakeUntil = this.#options.clock.monotonic() + this.#unwatchedMs;
  }
}

/** If the watcher hangs, a row waits this much longer until a resting poller glances; others follow. */
const REST_MS = 1000;
const OVERDUE_MS = 500;
const UNWATCHED_MS = 2500;
const LONGEST_UNWATCHED_MS = 60_000;
const BUSY_MS = 2000;
