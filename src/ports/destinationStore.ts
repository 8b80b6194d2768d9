import type { ClaimToken } from "../model/rows.ts";

/**
 * What replicas share about destinations: one small table with a row for each destination that has a state. The
 * database's clock decides all times; methods reject with `StoreError`. If the table is missing, `isAvailable` is
 * false: call no other method.
 */
export interface DestinationStore {
  /** False if {@link SchemaStore.checkColumns} found no usable table. */
  readonly isAvailable: boolean;

  /** Every destination that has a row, in one read. */
  states(): Promise<readonly SharedDestination[]>;

  /** Pauses a destination, even a paused one: the last reason counts. */
  pause(name: string, pause: NewPause): Promise<void>;

  /** Ends the pause. @returns false when the destination was not paused */
  resume(name: string): Promise<boolean>;

  /**
   * Takes `tokens` deliveries from the rate that all replicas share. Each call is granted, one after another: the
   * result is the wait. Unused tokens accumulate up to `capacity`.
   *
   * @returns ms until the deliveries may begin; 0 for at once
   */
  takeFromRate(name: string, rate: RateRequest): Promise<number>;

  /**
   * Opens a closed breaker if `probe` is null, or a half-open one under `probe`.
   *
   * @returns for how many ms; undefined when it did not
   */
  open(name: string, opening: Opening): Promise<number | undefined>;

  /** Takes the probe of a breaker whose open time or whose last probe's lease has ended. One caller gets it. */
  takeProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean>;

  /** Extends the lease of a running probe. @returns false when another replica has the probe by now */
  renewProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean>;

  /** Closes a half-open breaker whose probe succeeded. @returns false when another replica has the probe by now */
  close(name: string, probe: ClaimToken): Promise<boolean>;

  /**
   * Opens a half-open breaker whose probe decided nothing, and counts no opening. Any replica may take the next probe
   * after `waitMs`.
   *
   * @returns false when another replica has the probe by now
   */
  returnProbe(name: string, probe: ClaimToken, waitMs: number): Promise<boolean>;

  /** Records outcomes of deliveries in one statement; the latest wins. */
  report(reports: readonly DestinationReport[]): Promise<void>;
}

export interface NewPause {
  readonly by: string;
  readonly reason: string;
  /** Longest pause; undefined for no end. */
  readonly forMs: number | undefined;
}

export interface RateRequest {
  readonly tokens: number;
  readonly perSecond: number;
  /** Most unused tokens. */
  readonly capacity: number;
}

export interface Opening {
  /** Null when the breaker was closed. */
  readonly probe: ClaimToken | null;
  /** Length of the first opening; each further one is twice as long, up to `maxOpenMs`; times `factor`. */
  readonly openMs: number;
  readonly maxOpenMs: number;
  readonly factor: number;
  /** Lasts no shorter than this (`Retry-After`): at most `maxOpenMs`. */
  readonly atLeastMs: number;
  /** An opening later than this after the last close counts as the first one again. */
  readonly stableAfterMs: number;
  readonly reason: string;
}

export interface DestinationReport {
  readonly name: string;
  /** Ms since the last delivery that succeeded; undefined for none since the last report. */
  readonly succeededAgoMs: number | undefined;
  readonly failure: { readonly agoMs: number; readonly reason: string } | undefined;
  readonly isSlow: boolean;
}

export type BreakerState = "closed" | "open" | "half-open";

export interface SharedDestination {
  readonly name: string;
  /** In force now; null when there is none, or its time is over. */
  readonly pause: {
    readonly by: string;
    readonly reason: string;
    readonly at: Date;
    readonly until: Date | null;
  } | null;
  readonly breaker: {
    readonly state: BreakerState;
    /** Openings one after another; 0 when closed. */
    readonly openings: number;
    /** While open: ms until the next probe. While half-open: ms until the probe's lease ends. Else 0. */
    readonly remainingMs: number;
    readonly reason: string | null;
  };
  readonly lastSuccessAt: Date | null;
  /** When a delivery last failed, for whatever reason. */
  readonly lastFailureAt: Date | null;
  readonly lastError: string | null;
  /** When a replica last reported that it is slow; null for a time after now, of a clock that was set back. */
  readonly slowAt: Date | null;
  /** Some replica reported so in the last ten seconds. */
  readonly isSlow: boolean;
  /** Tokens taken from the shared rate in the last whole second; a replica may leave some unused. */
  readonly takenPerSecond: number;
}

/**
 * States of a destination; the first that applies counts.
 *
 * - `paused`: by an operator; `open`, `half-open`: its breaker holds rows back.
 * - `failing`: over half of the deliveries within {@link RECENT_MINUTES} failed, or none has succeeded since ten
 *   seconds before the last failure.
 * - `slow`: deliveries take over a second, or their answers do not end.
 * - `degraded`: rows are parked, or died within {@link RECENT_MINUTES}; others are delivered.
 * - `ok`: a delivery has succeeded. `unknown`: none has yet, as far as is known.
 */
export const DESTINATION_STATES = [
  "paused",
  "open",
  "half-open",
  "failing",
  "slow",
  "degraded",
  "ok",
  "unknown",
] as const;
export type DestinationState = (typeof DESTINATION_STATES)[number];

/** The whole minutes, and the present one, that decide whether a destination is failing or degraded. */
export const RECENT_MINUTES = 5;

/** Attempts within {@link RECENT_MINUTES} in all replicas, at most 20 s old. */
export interface RecentDeliveries {
  readonly sent: number;
  /** Their row is tried again or parked. */
  readonly failed: number;
  readonly dead: number;
}

export interface DestinationFacts extends Pick<SharedDestination, "lastSuccessAt" | "lastFailureAt"> {
  readonly isPaused: boolean;
  readonly breaker: BreakerState;
  readonly isSlow: boolean;
  /** Null if they cannot be read. */
  readonly recent: RecentDeliveries | null;
  readonly parked: number;
}

export function destinationState(facts: DestinationFacts): DestinationState {
  const { isPaused, breaker, isSlow, lastSuccessAt, recent, parked } = facts;
  if (isPaused) return "paused";
  if (breaker !== "closed") return breaker;
  if (isFailing(facts)) return "failing";
  if (isSlow) return "slow";
  if (parked > 0 || (recent?.dead ?? 0) > 0) return "degraded";
  return lastSuccessAt !== null || (recent?.sent ?? 0) > 0 ? "ok" : "unknown";
}

function isFailing({ lastSuccessAt, lastFailureAt, recent }: DestinationFacts): boolean {
  if (recent !== null && recent.failed + recent.dead > recent.sent) return true;
  // Single failures among many successes may be the last outcome, too.
  const succeededAt = lastSuccessAt?.getTime() ?? Number.NEGATIVE_INFINITY;
  return lastFailureAt !== null && lastFailureAt.getTime() - succeededAt >= FAILING_AFTER_MS;
}

const FAILING_AFTER_MS = 10_000;
