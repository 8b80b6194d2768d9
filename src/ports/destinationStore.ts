import type { ClaimToken } from "../model/rows.ts";

/**
 * What replicas share about destinations: one small table with a row for each destination about which there is
 * something to say. The database's clock decides all times; methods reject with `StoreError`. Where the table is
 * missing, `isAvailable` is false and no other method may be called.
 */
export interface DestinationStore {
  /** False where the table is missing, which {@link SchemaStore.checkColumns} finds out. */
  readonly isAvailable: boolean;

  /** Every destination that has a row, in one read. */
  states(): Promise<readonly SharedDestination[]>;

  /** Pauses a destination, also one that is paused already: the last reason counts. */
  pause(name: string, pause: NewPause): Promise<void>;

  /** Ends the pause. @returns false when the destination was not paused */
  resume(name: string): Promise<boolean>;

  /**
   * Takes `tokens` deliveries from the rate that all replicas share. They are granted in any case, one after the other:
   * the answer tells when. What was not taken in the past is there to be taken at once, up to `capacity`.
   *
   * @returns ms until the deliveries may begin; 0 for at once
   */
  takeFromRate(name: string, rate: RateRequest): Promise<number>;

  /**
   * Opens the breaker if it is closed and there is no `probe`, or half-open under `probe`.
   *
   * @returns false when it is neither, and nothing was changed
   */
  open(name: string, opening: Opening): Promise<boolean>;

  /**
   * Takes the probe of an open breaker whose time is over, or of a half-open one whose probe's lease has run out. At
   * most one caller gets it.
   */
  takeProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean>;

  /** Extends the lease of a probe under way. @returns false when it is somebody else's by now */
  renewProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean>;

  /** Closes a half-open breaker whose probe succeeded. @returns false when the probe is somebody else's by now */
  close(name: string, probe: ClaimToken): Promise<boolean>;

  /** Releases a probe that decided nothing: anybody may take the next one at once. */
  returnProbe(name: string, probe: ClaimToken): Promise<void>;

  /** Notes the outcome of deliveries; the latest wins. One statement for all of them. */
  report(reports: readonly DestinationReport[]): Promise<void>;
}

export interface NewPause {
  readonly by: string;
  readonly reason: string;
  /** Ends by itself after so many ms; undefined for never. */
  readonly forMs: number | undefined;
}

export interface RateRequest {
  readonly tokens: number;
  readonly perSecond: number;
  /** Tokens that may be saved up. */
  readonly capacity: number;
}

export interface Opening {
  /** Null when the breaker was closed. */
  readonly probe: ClaimToken | null;
  /**
   * The first opening lasts this long, each further one twice as long as the last, up to `maxOpenMs`; times `factor`,
   * for jitter.
   */
  readonly openMs: number;
  readonly maxOpenMs: number;
  readonly factor: number;
  /** Lasts no shorter than this (`Retry-After`). */
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
  /** Deliveries take long just now. */
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
    /**
     * Of an open one: ms until a probe may be sent. Of a half-open one: ms until the lease of the probe ends. 0 when
     * that is over, or closed.
     */
    readonly remainingMs: number;
    readonly reason: string | null;
  };
  readonly lastSuccessAt: Date | null;
  readonly lastFailureAt: Date | null;
  readonly lastError: string | null;
  /** Some replica reported so in the last ten seconds. */
  readonly isSlow: boolean;
  /** Tokens taken from the shared rate in the last whole second. */
  readonly takenPerSecond: number;
}

/**
 * State of a destination, the first that applies: paused by an operator; breaker open, or half-open while a probe runs;
 * deliveries slow or failing.
 */
export const DESTINATION_STATES = ["paused", "open", "half-open", "slow", "ok"] as const;
export type DestinationState = (typeof DESTINATION_STATES)[number];

/** @param is which of them apply */
export function destinationState(is: Readonly<Record<Exclude<DestinationState, "ok">, boolean>>): DestinationState {
  return DESTINATION_STATES.find((state) => state !== "ok" && is[state]) ?? "ok";
}
