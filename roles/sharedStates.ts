import type { DestinationGates } from "../src/core/destinations/gates.ts";
import type { DestinationStore } from "../src/ports/destinationStore.ts";
import { Loop } from "../src/runtime/loop.ts";
import type { Clock } from "../src/time/clock.ts";

interface Member {
  readonly gates: DestinationGates;
  readonly isSlow: (destination: string) => boolean;
  /** Whether it may learn of a pause later. */
  readonly isIdle: () => boolean;
}

interface SharedStatesOptions {
  readonly store: Pick<DestinationStore, "states">;
  /** How many times longer than in a small fleet an idle process may rest. */
  readonly fleetFactor: () => number;
  readonly clock: Clock;
}

/**
 * Keeps the gates of this process in step with what replicas share about destinations: pauses, breakers. The pollers of
 * several cells share one read.
 */
export class SharedStates {
  /** Reads them, while it runs. */
  readonly loop: Loop;
  readonly #options: SharedStatesOptions;
  readonly #members = new Set<Member>();
  /** Monotonic ms. */
  #refreshedAt = Number.NEGATIVE_INFINITY;
  #hasFailed = false;
  #onRefreshed: (() => void)[] = [];

  constructor(options: SharedStatesOptions) {
    this.#options = options;
    const { fleetFactor, clock } = options;
    this.loop = new Loop({
      name: "destinations",
      pass: () => this.#pass(),
      intervalMs: () => (this.#isIdle ? IDLE_REFRESH_MS * fleetFactor() : REFRESH_MS),
      backoff: { firstMs: 100, longestMs: REFRESH_MS },
      staleAfterMs: REFRESH_MS + STALE_AFTER_MS,
      onError: (error, failures) => {
        for (const { gates } of this.#members) gates.refreshFailed(error, failures);
      },
      clock,
    });
  }

  /** Adds the gates of a poller. @returns takes them out, before they stop */
  join(member: Member): () => void {
    this.#members.add(member);
    this.#refreshedAt = Number.NEGATIVE_INFINITY;
    this.loop.wake();
    return () => this.#members.delete(member);
  }

  /** Whether a read is worth waiting for: none has succeeded lately, and the last one has not failed. */
  get areStale(): boolean {
    return !this.areKnown && !this.#hasFailed;
  }

  get areKnown(): boolean {
    return this.#options.clock.monotonic() - this.#refreshedAt <= STALE_STATE_MS;
  }

  /** Resolves after the next read, whether or not it succeeds. Only the loop reads: two reads at once could end in the wrong order. */
  next(): Promise<void> {
    return new Promise<void>((resolve) => {
      this.#onRefreshed.push(resolve);
      this.loop.wake();
    });
  }

  get #isIdle(): boolean {
    return [...this.#members].every(({ isIdle }) => isIdle());
  }

  async #pass(): Promise<void> {
    let states: ReturnType<DestinationStore["states"]> | undefined;
    const read = () => {
      states ??= this.#options.store.states();
      return states;
    };
    try {
      await Promise.all([...this.#members].map(({ gates, isSlow }) => gates.refresh(isSlow, read)));
      this.#refreshedAt = this.#options.clock.monotonic();
      this.#hasFailed = false;
    } catch (error) {
      this.#hasFailed = true;
      throw error;
    } finally {
      for (const resolve of this.#onRefreshed) resolve();
      this.#onRefreshed = [];
    }
  }
}

/** A pause is in force in every replica within a second. */
export const REFRESH_MS = 500;
/** Without a delivery it is in force with the next claim. */
const IDLE_REFRESH_MS = 5000;
const STALE_STATE_MS = 750;
/** A read that takes this long is stuck. */
const STALE_AFTER_MS = 30_000;
