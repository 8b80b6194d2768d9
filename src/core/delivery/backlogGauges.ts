import { withoutTable } from "../../model/errors.ts";
import { RECENT_MINUTES } from "../../ports/destinationStore.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import type { OutboxBacklog, OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import { recentDeliveries } from "../destinations/control.ts";
import type { DestinationGates } from "../destinations/gates.ts";

interface BacklogGaugesOptions {
  readonly outbox: Pick<OutboxStore, "backlog">;
  /** Has what the processes of the installation counted. */
  readonly operations: Pick<OperationsStore, "figures">;
  /** Of the database of the outbox. */
  readonly lists: Pick<OperationsStore, "partlyDead">;
  readonly gates: Pick<DestinationGates, "showRecent" | "isHeld">;
  readonly destinations: readonly string[];
  readonly metrics: Metrics;
  readonly clock: Clock;
}

/**
 * Reads the backlog into the gauges. Counting a long backlog is slow, and 20 times slower by destination, so nothing is
 * counted by destination if the totals have just shown that nothing is pending.
 *
 * @returns reads what is due; throws StoreError when the database does not answer
 */
export function createBacklogGauges({
  outbox,
  operations,
  lists,
  gates,
  destinations,
  metrics,
  clock,
}: BacklogGaugesOptions): () => Promise<void> {
  let isEmpty = false;
  const totals = paced(clock, async () => {
    const backlog = await outbox.backlog({ totalsOnly: true });
    metrics.outboxPending(backlog.pending);
    metrics.outboxOldestPendingAge((backlog.oldestPendingAgeMs ?? 0) / 1000);
    metrics.blockedKeys(backlog.blockedKeys);
    metrics.parkedRows(backlog.parked);
    isEmpty = backlog.pending + backlog.parked === 0;
  });
  const counted = paced(clock, async () => {
    const byDestination = isEmpty ? NONE : (await outbox.backlog()).byDestination;
    const figures = await operations.figures(RECENT_MINUTES).catch(withoutTable);
    gates.showRecent(
      new Map(
        destinations.map((name) => [
          name,
          { recent: recentDeliveries(figures, name), parked: byDestination.get(name)?.parked ?? 0 },
        ]),
      ),
    );
    for (const name of destinations) {
      const { pending = 0, due = 0, oldestPendingAgeMs } = byDestination.get(name) ?? {};
      metrics.destinationBacklog(name, pending, (oldestPendingAgeMs ?? 0) / 1000);
      metrics.destinationDue(name, gates.isHeld(name) ? 0 : due);
    }
  });
  const partlyDead = paced(clock, async () => {
    metrics.partlyDeadMessages(await lists.partlyDead(MOST_DEAD));
  });
  return async () => {
    isEmpty = false;
    await totals();
    await counted();
    await partlyDead();
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
/** Dead rows that are read, the newest. */
const MOST_DEAD = 1000;
const NONE: OutboxBacklog["byDestination"] = new Map();
