import type { Metrics } from "../../ports/metrics.ts";
import type { OutboxBacklog, OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";

interface BacklogGaugesOptions {
  readonly store: Pick<OutboxStore, "backlog">;
  readonly destinations: readonly string[];
  readonly metrics: Metrics;
  readonly clock: Clock;
}

/**
 * Reads the backlog into the gauges. Counting a long backlog is slow, and 20 times slower by destination: each count
 * takes at most a fiftieth of the time, and is skipped until it is due again. Where the totals have just shown that
 * nothing is pending, nothing is counted by destination.
 *
 * @returns functions that throw StoreError when the database does not answer
 */
export function createBacklogGauges({ store, destinations, metrics, clock }: BacklogGaugesOptions) {
  let pending: Promise<number | undefined> = Promise.resolve(undefined);
  const readTotals = async () => {
    const backlog = store.backlog({ totalsOnly: true });
    pending = backlog.then(
      (read) => read.pending,
      () => undefined,
    );
    return await backlog;
  };
  return {
    totals: paced(clock, async () => {
      const backlog = await readTotals();
      metrics.outboxPending(backlog.pending);
      metrics.outboxOldestPendingAge((backlog.oldestPendingAgeMs ?? 0) / 1000);
      metrics.blockedKeys(backlog.blockedKeys);
      metrics.parkedRows(backlog.parked);
    }),
    byDestination: paced(clock, async () => {
      const isEmpty = (await pending) === 0;
      pending = Promise.resolve(undefined);
      const byDestination = isEmpty ? NONE : (await store.backlog()).byDestination;
      for (const name of destinations) {
        const { pending, oldestPendingAgeMs } = byDestination.get(name) ?? { pending: 0, oldestPendingAgeMs: null };
        metrics.destinationBacklog(name, pending, (oldestPendingAgeMs ?? 0) / 1000);
      }
    }),
  };
}

/** Runs an action for at most a fiftieth of the time; does nothing until it is due again. */
function paced(clock: Clock, action: () => Promise<void>): () => Promise<void> {
  let dueAt = Number.NEGATIVE_INFINITY;
  return async () => {
    const startedAt = clock.monotonic();
    if (startedAt < dueAt) return;
    await action();
    const now = clock.monotonic();
    dueAt = now + COST_FACTOR * (now - startedAt);
  };
}

const COST_FACTOR = 50;
const NONE: OutboxBacklog["byDestination"] = new Map();
