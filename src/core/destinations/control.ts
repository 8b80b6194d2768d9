import { withoutTable } from "../../model/errors.ts";
import {
  type DestinationStore,
  destinationState,
  RECENT_MINUTES,
  type RecentDeliveries,
  type SharedDestination,
} from "../../ports/destinationStore.ts";
import type { MinuteFigures, OperationsStore } from "../../ports/operationsStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { OutboxBacklog, OutboxStore } from "../../ports/store.ts";
import type { Audit } from "../operations/audit.ts";
import type { DestinationOverview, OperationsSettings } from "../operations/shown.ts";

interface DestinationControlOptions {
  /** Section `destinations`. */
  readonly destinations: OperationsSettings["destinations"];
  readonly store: {
    readonly destinations: Pick<DestinationStore, "isAvailable" | "states" | "pause" | "resume">;
    readonly outbox: Pick<OutboxStore, "backlog">;
    readonly operations: Pick<OperationsStore, "figures">;
  };
  readonly audit: Audit;
  readonly log: Log;
}

interface PauseRequest {
  readonly reason: string;
  /** Ends by itself after this time; undefined for never. */
  readonly forMs: number | undefined;
}

export class DestinationControl {
  readonly #options: DestinationControlOptions;

  constructor(options: DestinationControlOptions) {
    this.#options = options;
  }

  get names(): readonly string[] {
    return Object.keys(this.#options.destinations);
  }

  isKnown(name: string): boolean {
    return Object.hasOwn(this.#options.destinations, name);
  }

  /** False without the table of destinations: then they can only be listed. */
  get canPause(): boolean {
    return this.#options.store.destinations.isAvailable;
  }

  /** @throws StoreError */
  async list(): Promise<readonly DestinationOverview[]> {
    const { destinations, store } = this.#options;
    const [shared, { byDestination }, figures] = await Promise.all([
      this.canPause ? store.destinations.states() : [],
      store.outbox.backlog(),
      store.operations.figures(RECENT_MINUTES).catch(withoutTable),
    ]);
    return destinationOverview(destinations, shared, byDestination, figures);
  }

  /** @param name a configured destination. @throws StoreError */
  async pause(name: string, { reason, forMs }: PauseRequest, by: string): Promise<void> {
    const { store, audit, log } = this.#options;
    const until = forMs === undefined ? "until resumed" : `for ${Math.round(forMs / 1000)} s`;
    await store.destinations.pause(name, { by, reason, forMs });
    await audit.add({ actor: by, action: "pause", target: name, detail: `${until}: ${reason}` });
    log.info({ destination: name, by, reason, forMs }, "destination paused");
  }

  /** @param name a configured destination. @returns false when it was not paused. @throws StoreError */
  async resume(name: string, by: string): Promise<boolean> {
    const { store, audit, log } = this.#options;
    const resumed = await store.destinations.resume(name);
    if (resumed) await audit.add({ actor: by, action: "resume", target: name, detail: null });
    log.info({ destination: name, by, resumed }, resumed ? "destination resumed" : "destination was not paused");
    return resumed;
  }
}

/**
 * Combines the state of the configured destinations, in the order of the configuration.
 *
 * @param shared the state shared by replicas; empty if the table is missing
 * @param backlog undefined until it is counted
 * @param figures of the last {@link RECENT_MINUTES}; undefined if they cannot be read
 */
export function destinationOverview(
  configured: OperationsSettings["destinations"],
  shared: readonly SharedDestination[],
  backlog: OutboxBacklog["byDestination"] | undefined,
  figures: readonly MinuteFigures[] | undefined,
): readonly DestinationOverview[] {
  const byName = new Map(shared.map((each) => [each.name, each]));
  return Object.entries(configured).map(([name, { rateLimit, circuitBreaker }]) => {
    const known = byName.get(name);
    const waiting = backlog?.get(name);
    const none = backlog === undefined ? null : 0;
    // Without the configuration of a breaker, its state in the table has no effect.
    const isClosed = circuitBreaker === undefined || known?.breaker.state === "closed";
    const breaker = (isClosed ? undefined : known?.breaker) ?? null;
    const pause = known?.pause ?? null;
    const facts = {
      recent: recentDeliveries(figures, name),
      parked: waiting?.parked ?? none,
      lastSuccessAt: known?.lastSuccessAt ?? null,
      lastFailureAt: known?.lastFailureAt ?? null,
    };
    return {
      name,
      state: destinationState({
        ...facts,
        parked: facts.parked ?? 0,
        isPaused: pause !== null,
        breaker: breaker?.state ?? "closed",
        isSlow: known?.isSlow ?? false,
      }),
      pause: pause && { by: pause.by, reason: pause.reason, since: pause.at, until: pause.until },
      breaker: breaker && {
        openings: breaker.openings,
        reason: breaker.reason,
        nextProbeMs: Math.round(breaker.remainingMs),
      },
      backlog: waiting?.pending ?? none,
      oldestAgeMs: waiting?.oldestPendingAgeMs ?? null,
      inFlight: waiting?.processing ?? none,
      blockedKeys: waiting?.blockedKeys ?? none,
      rate: rateLimit === undefined ? null : { perSecond: rateLimit.perSecond, taken: known?.takenPerSecond ?? 0 },
      ...facts,
      lastError: known?.lastError ?? null,
    };
  });
}

/** @param figures as those of `destinationOverview` */
export function recentDeliveries(figures: readonly MinuteFigures[] | undefined, name: string): RecentDeliveries | null {
  if (figures === undefined) return null;
  const own = figures.filter((each) => each.kind === "destination" && each.name === name);
  const sumOf = (counter: keyof RecentDeliveries) => own.reduce((sum, each) => sum + each[counter], 0);
  return { sent: sumOf("sent"), failed: sumOf("failed"), dead: sumOf("dead") };
}
