import type { Refusal } from "../../model/refusals.ts";
import type { Consumption, DestinationOf, MessageId } from "../../model/rows.ts";
import type { DestinationState, RecentDeliveries } from "../../ports/destinationStore.ts";
import type { BlockedKey, ProcessAlive } from "../../ports/operationsStore.ts";

/** What operators are shown of the installation, by the commands, over HTTP and in the console. */

/** What that takes from the configuration. */
export interface OperationsSettings {
  readonly destinationOf: DestinationOf;
  readonly listOf: (topic: string) => readonly string[] | undefined;
  readonly destinations: Readonly<Record<string, ConfiguredDestination>>;
  readonly sources: Readonly<Record<string, { readonly consumption: Consumption }>>;
  readonly isRelayEnabled: boolean;
}

interface ConfiguredDestination {
  readonly maxAttempts?: number | undefined;
  readonly rateLimit?: { readonly perSecond: number } | undefined;
  readonly circuitBreaker?: object | undefined;
  readonly batch?: object | undefined;
}

/** What an operator is shown of a destination; the admin route answers with it as it is, times as ISO 8601. */
export interface DestinationOverview {
  readonly name: string;
  readonly state: DestinationState;
  readonly pause: {
    readonly by: string;
    readonly reason: string;
    readonly since: Date;
    /** Null until resumed. */
    readonly until: Date | null;
  } | null;
  /** Null when closed. */
  readonly breaker: {
    readonly openings: number;
    readonly reason: string | null;
    /** Of an open one: ms until the next probe. Of a half-open one: ms until the lease of the probe ends. */
    readonly nextProbeMs: number;
  } | null;
  readonly backlog: number;
  /** Age of the oldest due row in ms; null when there is none. */
  readonly oldestAgeMs: number | null;
  /** Rows that pollers have claimed and not finished, in all replicas: also those that still wait for a slot. */
  readonly inFlight: number;
  /** Keys with a row there that waits for its retry or is parked. */
  readonly blockedKeys: number;
  /** `taken`: deliveries that the limit granted to all replicas in the last whole second, begun or not. Null without one. */
  readonly rate: { readonly perSecond: number; readonly taken: number } | null;
  readonly parked: number;
  /** Null if the figures cannot be read. */
  readonly recent: RecentDeliveries | null;
  readonly lastSuccessAt: Date | null;
  readonly lastFailureAt: Date | null;
  readonly lastError: string | null;
}

/** The whole installation at a glance; figures that are not known are null. */
export interface OverviewShown {
  readonly at: Date;
  /** What to look at first. */
  readonly problems: readonly Problem[];
  readonly relayEnabled: boolean;
  /** By role; null where the table of the processes cannot be read. */
  readonly roles: Readonly<Record<string, { readonly replicas: number }>> | null;
  readonly replicas: readonly ProcessAlive[] | null;
  readonly sources: readonly SourceShown[];
  readonly destinations: readonly DestinationShown[];
  readonly unrouted: UnroutedShown;
  readonly outbox: OutboxShown | null;
  /** Undefined without cells. The figures are those of the cells that answer. */
  readonly cells?: readonly CellShown[] | undefined;
}

/** Something that is wrong, in a sentence that ends with the reason. */
export interface Problem {
  readonly text: string;
  readonly reason: string | null;
  /** The destination that it is about. */
  readonly destination: string | null;
}

export interface CellShown {
  readonly name: string;
  /** Null while it answers. */
  readonly awaySince: Date | null;
  readonly reason: string | null;
}

interface SourceShown {
  readonly name: string;
  readonly consumption: "push" | "pull";
  readonly pending: number | null;
  readonly oldestAgeMs: number | null;
  /** What was answered to senders, by reason, in all of `minutes`. */
  readonly refusals: Readonly<Partial<Record<Refusal, number>>> | null;
  /** Messages without a value for the configured aggregate id, in all of `minutes`. */
  readonly withoutAggregateId: number | null;
  readonly minutes: readonly Minute<"received" | "duplicate" | "filtered" | "dead" | "refused">[] | null;
}

/** Rows that no route takes to a destination, among the 2,000 that died last and the first 2,000 parked ones. */
interface UnroutedShown {
  readonly dead: number;
  readonly parked: number;
  readonly lastDiedAt: Date | null;
  /** A few of their topics, the newest first. */
  readonly topics: readonly string[];
}

interface DestinationShown extends Omit<DestinationOverview, "backlog" | "inFlight" | "blockedKeys" | "parked"> {
  /** With `oldestAgeMs` as of `outbox.asOf`. */
  readonly backlog: number | null;
  readonly inFlight: number | null;
  readonly blockedKeys: number | null;
  /** Among the dead rows that died last, 2,000 at most. */
  readonly dead: number | null;
  readonly lastDiedAt: Date | null;
  readonly parked: number | null;
  readonly minutes: readonly Minute<"sent" | "failed" | "dead">[] | null;
}

interface OutboxShown {
  readonly pending: number;
  readonly oldestAgeMs: number | null;
  readonly parked: number;
  readonly blockedKeys: number;
  /** 2,000 means that many or more. */
  readonly dead: number | null;
  readonly asOf: Date;
  /** When the backlog by destination was counted; null while it is counted for the first time. */
  readonly destinationsAsOf: Date | null;
}

export type Minute<C extends string> = { readonly at: Date } & Readonly<Record<C, number>>;

/** Rows that failed for the same reason. */
export interface FailureGroup {
  readonly state: "dead" | "parked";
  readonly destination: string | null;
  /** That of the newest row. */
  readonly reason: string | null;
  readonly count: number;
  readonly newestAt: Date | null;
  readonly oldestAt: Date | null;
  /** Of the newest rows. */
  readonly ids: readonly MessageId[];
}

/** Rows of a dry run. */
export interface FailedGroup extends Pick<FailureGroup, "destination" | "count"> {
  /** The text of the group, as a filter takes it; null of rows without a reason. */
  readonly reason: string | null;
  readonly topic: string | null;
}

/** Rows that failed for good, by reason. */
export interface FailuresShown {
  readonly groups: readonly FailureGroup[];
  readonly rowsRead: number;
  /** False when there are more rows: the newest were read. */
  readonly isComplete: boolean;
}

export interface BlockedKeyShown extends Omit<BlockedKey, "isParked" | "destination" | "isPinned"> {
  readonly state: "retry" | "parked";
  readonly destination: string | null;
}
