import type {
  BlockedKeyShown,
  DestinationOverview as DestinationAlone,
  FailedGroup,
  FailuresShown,
  OverviewShown,
} from "../core/operations/shown.ts";
import type { FilteredMessage, Timeline } from "../core/operations/timeline.ts";
import type { FoundMessage as Found } from "../ports/messageStore.ts";
import type * as operations from "../ports/operationsStore.ts";

/** What the admin routes answer with, as `/openapi.json` describes it. */

/** A value after its way through JSON: times are ISO-8601 text in UTC. */
type Json<T> = T extends Date
  ? string
  : T extends string | number | boolean | null | undefined
    ? T
    : { readonly [K in keyof T]: Json<T[K]> };

export interface SessionInfo {
  readonly isSignedIn: boolean;
  readonly method: "bearer" | "api-key" | "hmac" | "none";
  readonly headerName: string | null;
  readonly by: string | null;
  readonly csrfToken: string | null;
  readonly endsAt: string | null;
  readonly showsPayloads: boolean;
}

export type Overview = Json<OverviewShown>;
export type SourceOverview = Overview["sources"][number];
export type DestinationOverview = Overview["destinations"][number];
export type Replica = NonNullable<Overview["replicas"]>[number];
export type Destination = Json<DestinationAlone>;

export type FoundMessage = Json<Omit<Found, "position">>;
export interface MessagePage {
  readonly messages: readonly FoundMessage[];
  readonly cursor: string | null;
  /** Messages of the last 24 hours that a filter dropped: of a search by idempotency key or correlation id. */
  readonly filtered?: readonly Json<FilteredMessage>[];
}

export interface Message extends Json<Timeline> {
  readonly payload?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
}
export type TimelineEvent = Message["events"][number];

export type Failures = Json<FailuresShown>;
export type FailureGroup = Failures["groups"][number];
export type BlockedKey = Json<BlockedKeyShown>;
export type AuditEntry = Json<operations.AuditEntry>;

/** What the operator typed; the service checks it. */
export interface ReplayFilter {
  readonly state?: string;
  readonly ids?: readonly string[];
  readonly topic?: string;
  /** Null: that no route sends anywhere. */
  readonly destination?: string | null;
  readonly reason?: string;
  readonly createdAfter?: string;
  readonly createdBefore?: string;
}
/** A line of the answer to a replay. */
export interface ReplayProgress {
  readonly moved?: number;
  readonly finishedBefore?: string;
  readonly refusal?: string;
  readonly done?: true;
  readonly error?: string;
}
export interface DryRun {
  readonly count: number;
  readonly isExact: boolean;
  readonly sample: readonly Partial<FoundMessage>[];
  readonly groups: readonly FailedGroup[];
}
