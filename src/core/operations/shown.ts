import {
  AT,
  as,
  bool,
  count,
  countOrNull,
  exampleOf,
  inCell,
  list,
  maybe,
  nullable,
  type Of,
  object,
  oneOf,
  orNull,
  TEXT,
  TEXT_OR_NULL,
  TIME,
  TIME_OR_NULL,
  text,
  UUID,
  type ValueOf,
} from "../../model/described.ts";
import { REFUSALS, type Refusal } from "../../model/refusals.ts";
import type { Consumption, DestinationOf, MessageId } from "../../model/rows.ts";
import { DESTINATION_STATES } from "../../ports/destinationStore.ts";

/** What operators are shown of the installation, by the commands, over HTTP and in the console. */

/** What that takes from the configuration. */
export interface OperationsSettings {
  readonly destinationOf: DestinationOf;
  readonly listOf: (topic: string) => readonly string[] | undefined;
  readonly destinations: Readonly<Record<string, ConfiguredDestination>>;
  readonly sources: Readonly<Record<string, { readonly consumption: Consumption }>>;
  readonly isRelayEnabled: boolean;
  /** `tracing.urlTemplate`. */
  readonly traceUrlTemplate?: string | undefined;
}

interface ConfiguredDestination {
  readonly maxAttempts?: number | undefined;
  readonly rateLimit?: { readonly perSecond: number } | undefined;
  readonly circuitBreaker?: object | undefined;
  readonly batch?: object | undefined;
}

const PAUSE = object({
  by: [text("Who paused it."), "ada@ops-1"],
  reason: [TEXT, "they migrate"],
  since: [TIME, "2025-01-31T12:00:00.000Z"],
  until: [as<Date | null>({ ...TIME_OR_NULL, description: "Null: until it is resumed." }), "2025-01-31T14:00:00.000Z"],
});

const BREAKER = object({
  openings: count("How often it has opened in a row."),
  reason: TEXT_OR_NULL,
  nextProbeMs: count("Open: ms until the next probe. Half-open: ms until the lease of its probe ends."),
});

const RATE = object({
  perSecond: [as<number>({ type: "number", exclusiveMinimum: 0 }), 50],
  taken: [
    as<number>({
      type: "number",
      minimum: 0,
      description: "Deliveries granted in the last whole second, begun or not.",
    }),
    0,
  ],
});

const RECENT = object({
  sent: [count("Deliveries that succeeded."), 90],
  failed: [count("Failures whose row is tried again or parked."), 2],
  dead: [count("Failures whose row died."), 0],
});

const OF_DESTINATION = {
  name: [TEXT, "billing"],
  state: [oneOf(DESTINATION_STATES, "The first that applies."), "paused"],
  pause: orNull(PAUSE),
  breaker: [orNull(BREAKER, "Null when it is closed."), null],
  backlog: [countOrNull("Rows that wait."), 812],
  oldestAgeMs: [nullable("number", { minimum: 0, description: "Age of the oldest due row." }), 61200],
  inFlight: [countOrNull("Rows that pollers have claimed, including rows that wait for a slot."), 0],
  blockedKeys: [countOrNull("Keys with a row that waits for its retry or is parked."), 3],
  parked: [countOrNull("Parked rows."), 0],
  recent: orNull(RECENT, "Deliveries of the last five minutes; null if the figures cannot be read."),
  rate: orNull(RATE, "Null without a limit."),
  lastSuccessAt: [TIME_OR_NULL, "2025-01-31T11:59:58.120Z"],
  lastFailureAt: TIME_OR_NULL,
  lastError: TEXT_OR_NULL,
} as const;

export const DESTINATION = object(OF_DESTINATION);
export type DestinationOverview = ValueOf<typeof DESTINATION>;

const minutes = <C extends string>(
  ...counters: readonly C[]
): Of<readonly ({ readonly at: Date } & Readonly<Record<C, number>>)[] | null> => ({
  type: ["array", "null"],
  description: "Oldest first, without minutes in which nothing was counted; null if the figures cannot be read.",
  items: object({
    at: TIME,
    ...Object.fromEntries(counters.map((counter) => [counter, count("In this minute.")])),
  }),
});

const SHOWN_DESTINATION = object(
  {
    ...OF_DESTINATION,
    dead: countOrNull("Among the 2,000 rows that died last."),
    lastDiedAt: TIME_OR_NULL,
    minutes: minutes("sent", "failed", "dead"),
  },
  "As `GET /admin/destinations`, with figures.",
);

const REPLICA = object({
  name: [TEXT, "relay-7f9c-1"],
  version: [TEXT, "1.0.0"],
  roles: [list(TEXT), ["poller"]],
  startedAt: [TIME_OR_NULL, AT],
  seenAt: [TIME_OR_NULL, AT],
  clockAheadMs: [
    as<number>({
      type: "number",
      description: "How far its clock is ahead of the database's; 0 for less than two seconds.",
    }),
    0,
  ],
});

const SOURCE = object({
  name: TEXT,
  consumption: oneOf(["push", "pull"]),
  pending: countOrNull("Rows that wait in the inbox, among the oldest 50,000."),
  oldestAgeMs: nullable("number", { minimum: 0 }),
  refusals: as<Readonly<Partial<Record<Refusal, number>>> | null>({
    type: ["object", "null"],
    description: "What senders were answered in these minutes, by reason.",
    propertyNames: { enum: REFUSALS },
    additionalProperties: count("Answers for this reason."),
  }),
  withoutAggregateId: countOrNull("Messages of these minutes without a value for the configured aggregate id."),
  minutes: minutes("received", "duplicate", "filtered", "dead", "refused"),
});

const UNROUTED = object(
  {
    dead: [count("Among the 2,000 rows that died last."), 0],
    parked: [count("Among the first 2,000 parked rows."), 0],
    lastDiedAt: [TIME_OR_NULL, null],
    topics: [list(TEXT, "At most three, those of the newest rows."), []],
  },
  "Rows that no route takes to a destination.",
);

const OUTBOX = object({
  pending: [count("Rows that wait."), 3],
  oldestAgeMs: [nullable("number", { minimum: 0 }), 40],
  parked: [count("Parked rows."), 0],
  blockedKeys: [count("Keys whose first row waits for its retry, or is parked."), 1],
  dead: [countOrNull("2,000 means that many or more."), 0],
  asOf: [as<Date>({ ...TIME, description: "When the backlog was counted." }), AT],
});

const ROLES = as<Readonly<Record<string, { readonly replicas: number }>> | null>({
  type: ["object", "null"],
  description: "By role, how many replicas of it are alive.",
  additionalProperties: object({ replicas: count("Seen within the last minute.") }),
});

const CELL = object({
  name: TEXT,
  awaySince: as<Date | null>({ ...TIME_OR_NULL, description: "Null while it answers." }),
  reason: nullable("string", "Why it does not answer."),
});
export type CellShown = ValueOf<typeof CELL>;

const PROBLEM = object({
  text: TEXT,
  reason: nullable("string", "The end of the sentence, in the words of a receiver, a database or an operator."),
  destination: nullable("string", "The destination that it is about."),
});
export type Problem = ValueOf<typeof PROBLEM>;

/** The whole installation at a glance; figures that are not known are null. */
export const OVERVIEW = object(
  {
    at: [TIME, AT],
    problems: [list(PROBLEM, "What to look at first, as `svc status` shows it."), []],
    relayEnabled: [bool("`inbox.relay.enabled` of this process."), true],
    roles: [ROLES, { poller: { replicas: 1 } }],
    replicas: [maybe(list(REPLICA, "Processes seen within the last minute.")), [exampleOf(REPLICA)]],
    sources: [list(SOURCE), []],
    destinations: [list(SHOWN_DESTINATION), []],
    unrouted: UNROUTED,
    outbox: maybe(OUTBOX),
  },
  {},
  { cells: list(CELL, "With cells: every configured one. The figures are of the cells that answer.") },
);
export type OverviewShown = ValueOf<typeof OVERVIEW>;

const FAILURE_GROUP = object({
  state: oneOf(["dead", "parked"]),
  destination: TEXT_OR_NULL,
  reason: nullable("string", "That of the newest row."),
  count: count("Rows."),
  newestAt: TIME_OR_NULL,
  oldestAt: TIME_OR_NULL,
  ids: list(as<MessageId>(UUID), "Of the newest five."),
});
export type FailureGroup = ValueOf<typeof FAILURE_GROUP>;

export const FAILURES = {
  groups: [list(FAILURE_GROUP), []],
  rowsRead: [count("Rows that were read."), 0],
  isComplete: [bool("False: there are more rows than were read."), true],
} as const;
export type FailuresShown = ValueOf<ReturnType<typeof object<typeof FAILURES>>>;

/** Rows of a dry run. */
export interface FailedGroup extends Pick<FailureGroup, "destination" | "count"> {
  /** The text of the group, as a filter takes it; null of rows without a reason. */
  readonly reason: string | null;
  readonly topic: string | null;
}

export const BLOCKED_KEY = inCell({
  key: TEXT,
  id: as<MessageId>({ ...UUID, description: "Of the row that blocks it." }),
  topic: TEXT_OR_NULL,
  destination: TEXT_OR_NULL,
  state: oneOf(["retry", "parked"]),
  attempt: count("Failed attempts of that row."),
  dueAt: TIME_OR_NULL,
  lastError: TEXT_OR_NULL,
  rowsBehind: count("Rows that wait behind it; 1,000 means that many or more."),
});
export type BlockedKeyShown = ValueOf<typeof BLOCKED_KEY>;
