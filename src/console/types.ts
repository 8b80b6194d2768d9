/** What the admin routes answer with, as `/openapi.json` describes it. Times are ISO-8601 text in UTC. */

export interface SessionInfo {
  readonly isSignedIn: boolean;
  readonly method: "bearer" | "api-key" | "hmac" | "none";
  readonly headerName: string | null;
  readonly by: string | null;
  readonly csrfToken: string | null;
  readonly endsAt: string | null;
  readonly showsPayloads: boolean;
}

interface SourceMinute {
  readonly at: string;
  readonly received: number;
  readonly duplicate: number;
  readonly filtered: number;
  readonly dead: number;
}

interface DestinationMinute {
  readonly at: string;
  readonly sent: number;
  readonly failed: number;
  readonly dead: number;
}

export interface SourceOverview {
  readonly name: string;
  readonly consumption: string;
  readonly pending: number | null;
  readonly oldestAgeMs: number | null;
  /** Those in which something was counted, oldest first; null where the figures cannot be read. */
  readonly minutes: readonly SourceMinute[] | null;
}

export interface Destination {
  readonly name: string;
  readonly state: string;
  readonly pause: {
    readonly by: string;
    readonly reason: string;
    readonly since: string;
    readonly until: string | null;
  } | null;
  readonly breaker: {
    readonly openings: number;
    readonly reason: string | null;
    readonly nextProbeMs: number;
  } | null;
  readonly backlog: number | null;
  readonly oldestAgeMs: number | null;
  readonly inFlight: number | null;
  readonly rate: { readonly perSecond: number; readonly taken: number } | null;
  readonly lastSuccessAt: string | null;
  readonly lastFailureAt: string | null;
  readonly lastError: string | null;
}

export interface DestinationOverview extends Destination {
  readonly dead: number | null;
  readonly parked: number | null;
  readonly blockedKeys: number | null;
  readonly minutes: readonly DestinationMinute[] | null;
}

export interface Replica {
  readonly name: string;
  readonly version: string;
  readonly roles: readonly string[];
  readonly startedAt: string | null;
  readonly seenAt: string | null;
}

export interface Overview {
  readonly at: string;
  readonly relayEnabled: boolean;
  readonly roles: Readonly<Record<string, { readonly replicas: number }>> | null;
  readonly replicas: readonly Replica[] | null;
  readonly sources: readonly SourceOverview[];
  readonly destinations: readonly DestinationOverview[];
  /** Null until it was counted for the first time. */
  readonly outbox: {
    readonly pending: number;
    readonly oldestAgeMs: number | null;
    readonly parked: number;
    readonly blockedKeys: number;
    readonly dead: number | null;
    readonly asOf: string;
    /** When the backlog by destination was counted. */
    readonly destinationsAsOf: string | null;
  } | null;
}

export interface FoundMessage {
  readonly id: string;
  readonly table: "inbox" | "outbox";
  readonly createdAt: string | null;
  readonly source: string | null;
  readonly topic: string | null;
  readonly key: string | null;
  readonly state: string;
  readonly attempt: number;
  readonly lastError: string | null;
}

interface FilteredMessage {
  readonly at: string;
  readonly source: string;
  readonly idempotencyKey: string | null;
  readonly correlationId: string | null;
  readonly replica: string;
}

export interface MessagePage {
  readonly messages: readonly FoundMessage[];
  readonly cursor: string | null;
  /** Messages of the last 24 hours that a filter dropped: of a search by idempotency key or correlation id. */
  readonly filtered?: readonly FilteredMessage[];
}

export interface TimelineEvent {
  readonly at: string | null;
  readonly event: string;
  readonly text: string;
  readonly attempt?: number;
  readonly actor?: string;
  readonly destination?: string;
  readonly code?: string;
  readonly status?: string;
  readonly durationMs?: number;
  readonly reason?: string;
}

export interface Message {
  readonly id: string;
  readonly state: string;
  readonly source: string | null;
  readonly idempotencyKey: string | null;
  readonly correlationId: string | null;
  readonly topic: string | null;
  readonly key: string | null;
  readonly destination: string | null;
  readonly attempts: number;
  readonly maxAttempts: number | null;
  readonly lastError: string | null;
  /** How often it was received again in the last 24 hours; null where that is not known. */
  readonly duplicates: number | null;
  readonly waits: readonly { readonly code: string; readonly text: string }[];
  readonly events: readonly TimelineEvent[];
  readonly payload?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface FailureGroup {
  readonly state: "dead" | "parked";
  readonly destination: string | null;
  readonly reason: string | null;
  readonly count: number;
  readonly newestAt: string | null;
  readonly oldestAt: string | null;
  readonly ids: readonly string[];
}

export interface Failures {
  readonly groups: readonly FailureGroup[];
  readonly rowsRead: number;
  readonly isComplete: boolean;
}

export interface BlockedKey {
  readonly key: string;
  readonly id: string;
  readonly topic: string | null;
  readonly destination: string | null;
  readonly state: string;
  readonly attempt: number;
  readonly dueAt: string | null;
  readonly lastError: string | null;
  /** Counted up to a thousand. */
  readonly rowsBehind: number;
}

export interface AuditEntry {
  readonly id: string;
  readonly at: string | null;
  readonly actor: string;
  readonly action: string;
  readonly target: string | null;
  readonly detail: string | null;
}

export interface ReplayFilter {
  readonly state?: string;
  readonly ids?: readonly string[];
  readonly topic?: string;
  readonly destination?: string;
  readonly createdAfter?: string;
  readonly createdBefore?: string;
}

export interface DryRun {
  readonly count: number;
  readonly isExact: boolean;
  readonly sample: readonly Partial<FoundMessage>[];
}

export interface ReplayJob {
  readonly id: string;
  readonly state: "running" | "cancelled" | "done" | "failed" | "interrupted";
  readonly by: string;
  readonly createdAt: string | null;
  readonly updatedAt: string | null;
  readonly filter: ReplayFilter;
  readonly perSecond: number | null;
  readonly total: number | null;
  readonly moved: number;
  readonly lastError: string | null;
}
