import type { Metrics } from "../../ports/metrics.ts";
import type { OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";

interface BacklogGaugesOptions {
  readonly store: Pick<OutboxStore, "backlog">;
  readonly destinations: readonly string[];
  readonly metrics: Metrics;
  readonly clock: Clock;
}

/**
 * Reads the backlog into the gauges. Counting a long backlog is slow, and 20 times slower by destination: each count
 * takes at most a fiftieth of the time, and is skipped until it is due again.
 */
export class BacklogGauges {
  readonly #options: BacklogGaugesOptions;
  readonly #totals: Pace;
  readonly #byDestination: Pace;

  constructor(options: BacklogGaugesOptions) {
    this.#options = options;
    this.#totals = new Pace(options.clock);
    this.#byDestination = new Pace(options.clock);
  }

  /** @throws StoreError when the database does not answer */
  async totals(): Promise<void> {
    const { store, metrics } = this.#options;
    await this.#totals.run(async () => {
      const backlog = await store.backlog({ totalsOnly: true });
      metrics.outboxPending(backlog.pending);
      metrics.outboxOldestPendingAge((backlog.oldestPendingAgeMs ?? 0) / 1000);
      metrics.blockedKeys(backlog.blockedKeys);
      metrics.parkedRows(backlog.parked);
    });
  }

  /** @throws StoreError when the database does not answer */
  async byDestination(): Promise<void> {
    const { store, metrics, destinations } = this.#options;
    await this.#byDestination.run(async () => {
      const { byDestination } = await store.backlog();
      for (const name of destinations) {
        const { pending, oldestPendingAgeMs } = byDestination.get(name) ?? { pending: 0, oldestPendingAgeMs: null };
        metrics.destinationBacklog(name, pending, (oldestPendingAgeMs ?? 0) / 1000);
      }
    });
  }
}

/** Runs a function for at most a fiftieth of the time. */
class Pace {
  readonly #clock: Clock;
  #dueAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async run(action: () => Promise<void>): Promise<void> {
    const startedAt = this.#clock.monotonic();
    if (startedAt < this.#dueAt) return;
    await action();
    const now = this.#clock.monotonic();
    this.#dueAt = now + COST_FACTOR * (now - startedAt);
  }
}

const COST_FACTOR = 50;
