import { type DestinationState, destinationState } from "../../model/destinations.ts";
import type { SharedDestination } from "../../ports/destinationStore.ts";
import type { OutboxBacklog } from "../../ports/store.ts";

/** What an operator is shown of a destination; the admin route answers with it as it is, times as ISO 8601. */
export interface DestinationOverview {
  readonly name: string;
  /** A pause hides the others, an open or half-open breaker that deliveries are slow. */
  readonly state: DestinationState;
  readonly pause: {
    readonly by: string;
    readonly reason: string;
    readonly since: Date;
    /** Null for until it is resumed. */
    readonly until: Date | null;
  } | null;
  /** Null for a closed one. */
  readonly breaker: {
    readonly openings: number;
    readonly reason: string | null;
    /** Of an open one: ms until the next probe. Of a half-open one: ms until the lease of the probe ends. */
    readonly nextProbeMs: number;
  } | null;
  /** Rows that wait. */
  readonly backlog: number;
  /** Age of the oldest due row in ms; null when there is none. */
  readonly oldestAgeMs: number | null;
  /** Rows in processing, in all replicas. */
  readonly inFlight: number;
  /** Deliveries begun in the last whole second, by all replicas; null without a limit. */
  readonly rate: { readonly perSecond: number; readonly taken: number } | null;
  readonly lastSuccessAt: Date | null;
  readonly lastFailureAt: Date | null;
  readonly lastError: string | null;
}

/** A destination as far as the overview needs its configuration. */
export interface ConfiguredDestination {
  readonly kind: string;
  readonly rateLimit?: { readonly perSecond: number } | undefined;
  readonly circuitBreaker?: object | undefined;
}

/**
 * Puts together what is known of the configured destinations, in the order of the configuration.
 *
 * @param shared what replicas share; empty where the table is missing
 */
export function destinationOverview(
  configured: Readonly<Record<string, ConfiguredDestination>>,
  shared: readonly SharedDestination[],
  backlog: OutboxBacklog["byDestination"],
): readonly DestinationOverview[] {
  const byName = new Map(shared.map((each) => [each.name, each]));
  return Object.entries(configured).map(([name, { rateLimit, circuitBreaker }]) => {
    const known = byName.get(name);
    const waiting = backlog.get(name);
    // Nobody heeds what is left of a breaker that the configuration has no more.
    const breaker = circuitBreaker === undefined || known?.breaker.state === "closed" ? undefined : known?.breaker;
    return {
      name,
      state: destinationState({
        paused: known?.pause != null,
        open: breaker?.state === "open",
        "half-open": breaker?.state === "half-open",
        slow: known?.isSlow ?? false,
      }),
      pause: known === undefined || known.pause === null ? null : pauseOf(known.pause),
      breaker: breaker === undefined ? null : breakerOf(breaker),
      backlog: waiting?.pending ?? 0,
      oldestAgeMs: waiting?.oldestPendingAgeMs ?? null,
      inFlight: waiting?.processing ?? 0,
      rate: rateLimit === undefined ? null : { perSecond: rateLimit.perSecond, taken: known?.takenPerSecond ?? 0 },
      lastSuccessAt: known?.lastSuccessAt ?? null,
      lastFailureAt: known?.lastFailureAt ?? null,
      lastError: known?.lastError ?? null,
    };
  });
}

function pauseOf({ by, reason, at, until }: NonNullable<SharedDestination["pause"]>) {
  return { by, reason, since: at, until };
}

function breakerOf({ openings, reason, remainingMs }: SharedDestination["breaker"]) {
  return { openings, reason, nextProbeMs: Math.round(remainingMs) };
}
