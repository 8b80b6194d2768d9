/**
 * The stored records, and the words for what happens to them. Each thing has one word, in code, log and documents.
 *
 * - message: what a source receives and a destination gets.
 * - inbox row: a received message, unchanged, unique by `(source, idempotencyKey)`.
 * - outbox row: a message to deliver; `sequence` orders the rows of one `key`.
 * - key, aggregate: rows that share one are delivered in order; rows without one are independent.
 * - source, route, destination: the entrance of a message; the rule from its topic to a destination; its exit.
 * - label: the `destination` of an outbox row together with the hash of the `routes` that chose it.
 * - pin: a `destination` without such a hash: an application or an operator (by a replay) chose it, whatever the
 *   routes.
 * - list: the `destinations` of a route that sends each message to several. Its message gets a delivery row for each.
 * - message row: an outbox row whose message has been expanded into delivery rows: `sent`, with their payload and
 *   headers.
 * - delivery row: an outbox row with the `messageSequence` of its message row; it has a destination, attempts and a
 *   fate of its own, and no payload.
 * - place: the position of an outbox row in the order of its key: its sequence, of a delivery row that of its message.
 * - lane: rows that this order holds for: all rows of a key that are no delivery rows; its delivery rows of one
 *   destination.
 * - relay: to copy pending push rows of the inbox into the outbox.
 * - claim: a replica's temporary right to deliver rows, named by a claim token and ended by its lease.
 * - delivery: one claimed row on its way to its destination; attempt: one try of it.
 * - slot: one of the `outbox.concurrency` deliveries at a time. permit: what a destination's limits grant a delivery.
 * - outcome: how a claimed row ended: sent, retry, park, dead or release. Every outcome closes the claim on its row.
 * - settle: to write outcomes, each only while the row still carries its claim token (the fence).
 * - release: an unattempted row becomes pending again. reclaim: the same for rows of an expired claim.
 * - parked row: failed for good, but still first of its key until an operator retries or discards it.
 * - receipt: what a sender learns of its message.
 * - result: what a call returns (`InsertResult`, `RelayResult`, `ClaimResult`, `DeliveryResult`, `SettleResult`).
 * - verdict: whether a delivery shows its receiver to be well, failed or neither.
 * - history: what happened to an outbox row: an entry for each attempt that `outbox.history` keeps, and for each action
 *   of an operator.
 */

export type OutboxState = "pending" | "processing" | "sent" | "dead";

/**
 * `scheduled_at` of a parked row. A row is parked if it is `pending`, has failed (`attempt` > 0) and is scheduled at
 * exactly this instant, which every time column can hold. To a claim, of older versions too, it is a retry that is not
 * due. A row that an application schedules there has not failed, and is not parked.
 */
export const PARKED_UNTIL = "9999-12-31T00:00:00Z";

export const CONSUMPTIONS = ["push", "pull"] as const;
export type Consumption = (typeof CONSUMPTIONS)[number];

declare const messageIdBrand: unique symbol;
declare const claimTokenBrand: unique symbol;

/** The id of a row. Branded, as the fenced update takes it together with a {@link ClaimToken}. */
export type MessageId = string & { readonly [messageIdBrand]: true };
export type ClaimToken = string & { readonly [claimTokenBrand]: true };

export type Headers = Readonly<Record<string, string>>;

/** Headers to fill, without a prototype: `__proto__` is a name like any other. */
export const emptyHeaders = (): Record<string, string> => Object.create(null);

/** Keys of `database.columnMapping.inbox` with their default column names (spec, "Inbox row"). */
export const INBOX_COLUMNS = {
  id: "id",
  source: "source",
  idempotencyKey: "idempotency_key",
  aggregateId: "aggregate_id",
  eventType: "event_type",
  payload: "payload",
  state: "state",
  createdAt: "created_at",
  processedAt: "processed_at",
  claimedAt: "claimed_at",
  claimToken: "claim_token",
  leaseExpiresAt: "lease_expires_at",
  correlationId: "correlation_id",
  consumption: "consumption",
  scheduledAt: "scheduled_at",
  attempt: "attempt",
  lastError: "last_error",
  headers: "headers",
  expiresAt: "expires_at",
} as const;

/** Keys of `database.columnMapping.outbox` with their default column names (spec, "Outbox row"). */
export const OUTBOX_COLUMNS = {
  id: "id",
  topic: "topic",
  key: "key",
  aggregateType: "aggregate_type",
  payload: "payload",
  headers: "headers",
  state: "state",
  attempt: "attempt",
  maxAttempts: "max_attempts",
  scheduledAt: "scheduled_at",
  createdAt: "created_at",
  updatedAt: "updated_at",
  claimedAt: "claimed_at",
  claimToken: "claim_token",
  leaseExpiresAt: "lease_expires_at",
  lastError: "last_error",
  sequence: "sequence",
  destination: "destination",
  routes: "routes",
  expiresAt: "expires_at",
  messageSequence: "message_sequence",
  expandedTo: "expanded_to",
} as const;

/** Characters of the column `routes`, see `compileRouting`. */
export const ROUTES_HASH_LENGTH = 8;

/** Columns of the table of the destinations, see `DestinationStore`. Only the table can have another name. */
export const DESTINATION_COLUMNS = {
  name: "name",
  pausedAt: "paused_at",
  pausedUntil: "paused_until",
  pausedBy: "paused_by",
  pauseReason: "pause_reason",
  breakerState: "breaker_state",
  openings: "openings",
  openedAt: "opened_at",
  openUntil: "open_until",
  breakerReason: "breaker_reason",
  closedAt: "closed_at",
  probeToken: "probe_token",
  probeAt: "probe_at",
  probeUntil: "probe_until",
  rateNextAt: "rate_next_at",
  rateSecond: "rate_second",
  rateTaken: "rate_taken",
  rateTakenBefore: "rate_taken_before",
  lastSuccessAt: "last_success_at",
  lastFailureAt: "last_failure_at",
  lastError: "last_error",
  slowAt: "slow_at",
} as const;

/** Columns of the table of the history, see `HistoryStore`. Only the table can have another name. */
export const HISTORY_COLUMNS = {
  id: "id",
  outboxId: "outbox_id",
  at: "at",
  event: "event",
  attempt: "attempt",
  actor: "actor",
  destination: "destination",
  code: "code",
  status: "status",
  durationMs: "duration_ms",
  reason: "reason",
} as const;
/** Columns of the table of the journal, see `JournalStore`. Only the table can have another name. */
export const JOURNAL_COLUMNS = {
  id: "id",
  at: "at",
  source: "source",
  outcome: "outcome",
  idempotencyKey: "idempotency_key",
  correlationId: "correlation_id",
  messageId: "message_id",
  replica: "replica",
} as const;

type OptionalColumn = "destination" | "routes" | "expiresAt" | "messageSequence" | "expandedTo";
type OwnColumnNames<C> = { readonly [K in keyof C]: K extends OptionalColumn ? string | null : string };

export type InboxColumnNames = OwnColumnNames<typeof INBOX_COLUMNS>;
export type OutboxColumnNames = OwnColumnNames<typeof OUTBOX_COLUMNS>;
export type DestinationColumnNames = Readonly<Record<keyof typeof DESTINATION_COLUMNS, string>>;
export type JournalColumnNames = Readonly<Record<keyof typeof JOURNAL_COLUMNS, string>>;
export type HistoryColumnNames = Readonly<Record<keyof typeof HISTORY_COLUMNS, string>>;

/** Tables for operators. */
const OPERATIONS_TABLES = ["process", "figures", "audit", "journal", "cell"] as const;
export type OperationsTables = Readonly<Record<(typeof OPERATIONS_TABLES)[number], string>>;

/** @param prefix of `database.operationsTablePrefix` */
export function operationsTables(prefix: string): OperationsTables {
  return Object.fromEntries(OPERATIONS_TABLES.map((table) => [table, `${prefix}${table}`])) as OperationsTables;
}

/** A received message on its way into the inbox. */
export interface NewInboxRow {
  readonly id: MessageId;
  readonly source: string;
  readonly idempotencyKey: string;
  readonly aggregateId: string | null;
  readonly eventType: string | null;
  /** The received text, byte for byte, unless a source transform replaced it. */
  readonly payload: string;
  /** `dead` for a message that is only kept for inspection (a broker body that is not JSON, a refused transform). */
  readonly state: "pending" | "dead";
  readonly consumption: Consumption;
  readonly correlationId: string | null;
  readonly headers: Headers;
  readonly lastError: string | null;
  /** When it is due; at its receipt by default. */
  readonly schedule?: Schedule | undefined;
  /** The time from which it is not delivered; undefined for never. */
  readonly expiry?: Expiry | undefined;
}

/** A row is due when all of it has come, and not before its receipt. */
export interface Schedule {
  /** From the publication, in ms: a multiple of 1000. */
  readonly delayMs: number;
  /** In ms since 1970; null, or a time after the receipt by the database's clock, for the receipt. */
  readonly publishedAt: number | null;
  /** In ms since 1970; null for none. */
  readonly notBefore: number | null;
}

/** The earlier one counts. */
export interface Expiry {
  /** In ms since 1970; null for none. */
  readonly at: number | null;
  /** In ms from the receipt; null for none. */
  readonly afterMs: number | null;
}

/** Why a row that was not delivered in time is dead. */
export const EXPIRED = "expired: it was not delivered in time";
/** Why a row whose topic renders empty is dead, on the row and in the log. */
export const EMPTY_TOPIC = "the topic template renders empty";
/**
 * Beginning of the `last_error` of a delivery until its condition was true: each attempt, also after a replay,
 * evaluates it first.
 */
export const CONDITION = "the condition (when) ";
/** Why the relay gives up inbox rows, as `last_error` begins, by the label of the metric. */
export const RELAY_DEATHS = {
  expired: EXPIRED,
  topic_empty: EMPTY_TOPIC,
  outbox_refused: "the outbox table refuses this message",
} as const;

/** The label of the reason for which the relay gave up a row; undefined for another reason. */
export function relayDeath(reason: string): keyof typeof RELAY_DEATHS | undefined {
  const labels = Object.keys(RELAY_DEATHS) as (keyof typeof RELAY_DEATHS)[];
  return labels.find((label) => reason.startsWith(RELAY_DEATHS[label]));
}

export interface RoutedRow {
  readonly topic: string | null;
  /** Null until the routes have sent it somewhere. */
  readonly destination: string | null;
  /** The application or an operator chose the destination: routes do not count. */
  readonly isPinned: boolean;
}

export type DestinationOf = (row: RoutedRow) => string | undefined;

export function nowhere({ topic, destination, isPinned }: RoutedRow): string {
  if (!isPinned) return `no route matches the topic ${JSON.stringify(topic)}`;
  return `the row is pinned to the destination ${JSON.stringify(destination)}, which is not configured: configure it, or replay the row to another one`;
}

export interface OrderedRow extends RoutedRow {
  readonly id: MessageId;
  /** Decimal text: a 64-bit identity does not fit a JavaScript number. */
  readonly sequence: string;
  readonly key: string | null;
  /** Failed deliveries so far; 0 on the first delivery. */
  readonly attempt: number;
}

/** An outbox row under a claim. Except `key` and `aggregateType`, only an owner's own table allows null. */
export interface ClaimedRow extends OrderedRow {
  readonly claimToken: ClaimToken;
  /** Of a delivery row. */
  readonly messageId?: MessageId | undefined;
  /** Of a delivery row: see {@link CONDITION}. */
  readonly hasOpenCondition?: boolean | undefined;
  readonly aggregateType: string | null;
  readonly payload: string | null;
  readonly tooLarge?: TooLarge | null;
  readonly headers: Headers;
  /** The ceiling: a failure that makes `attempt` reach it makes the row dead. */
  readonly maxAttempts: number;
  /** Null also for a time that no `Date` can hold, such as `infinity`. */
  readonly createdAt: Date | null;
  /** From its claim, by the database's clock; none is left of an expired row. Null if it never expires. */
  readonly expiresInMs: number | null;
}

/**
 * Of a payload or of headers, as text. A larger one would end the process that reads it: with the copies in the driver
 * and towards the receiver it takes three times as much memory, and no JavaScript text holds 512 MiB.
 */
export const MAX_TEXT_BYTES = 64 * 1024 * 1024;

/** What of a claimed row was left in the table: it is larger than {@link MAX_TEXT_BYTES}. */
export type TooLarge = "payload" | "headers";

export const reasonTooLarge = (what: TooLarge): string =>
  `the ${what} ${what === "payload" ? "has" : "have"} more than ${MAX_TEXT_BYTES / 2 ** 20} MiB as text, the most that is delivered: send a reference to larger data`;

export interface DeliverableRow extends ClaimedRow {
  readonly topic: string;
  readonly payload: string;
}

/** What a sender learns of its message; each kind maps to one HTTP answer, and to "acknowledge" for a broker. */
export type Receipt =
  | { readonly kind: "stored"; readonly id: MessageId }
  | { readonly kind: "duplicate" }
  | { readonly kind: "filtered" }
  /**
   * The service never accepts this message unless its sender changes it; `reason` is written for its sender and holds
   * no secret.
   */
  | { readonly kind: "rejected"; readonly rejection: Rejection; readonly reason: string }
  /** The database did not take it; the sender may send it again. */
  | { readonly kind: "unavailable"; readonly reason: string }
  /**
   * Its transform could not run now, or the expression for its key timed out: not stored, the sender may send it again.
   */
  | { readonly kind: "busy"; readonly reason: string }
  /** Another message of its request was refused, and all of them are stored or none. */
  | { readonly kind: "withheld" };

/** `unstorable`: the database refuses the row's data for good. */
export type Rejection = "invalid_json" | "extraction_failed" | "transform_failed" | "unstorable";

export type InsertResult =
  /** `relayed`: with its outbox row, or all of its deliveries, in that state. */
  | { readonly kind: "stored"; readonly relayed?: "pending" | "claimed"; readonly isExpanded?: boolean }
  | { readonly kind: "duplicate" }
  /**
   * The database refuses this row alone: its data can never be stored (text that a `jsonb` column cannot hold), or,
   * with `mayPassLater`, a trigger or policy refused it for now.
   */
  | { readonly kind: "refused"; readonly reason: string; readonly mayPassLater?: boolean };

/** As {@link InsertResult}, with several cells, one of them possibly away. */
export type CellInsertResult = InsertResult | { readonly kind: "unavailable"; readonly reason: string };

/** How one claimed outbox row ended (spec, "States and transitions"; design, "Attempts"). */
export type Outcome = {
  readonly id: MessageId;
  readonly claimToken: ClaimToken;
  /** The row's destination, if the row failed now or before. */
  readonly destination?: string | undefined;
  /** What its history keeps; undefined for nothing. */
  readonly record?: AttemptRecord | undefined;
  /** `traceparent` of its attempt; undefined without tracing. */
  readonly trace?: string | undefined;
} & (
  | { readonly kind: "sent" }
  /** Failed with attempts left: `attempt` grows by one, the row is due again in `delayMs` of the database's clock. */
  | { readonly kind: "retry"; readonly delayMs: number; readonly reason: string }
  /** Failed for good, and counted: the row stays first of its key until an operator retries or discards it. */
  | { readonly kind: "park"; readonly reason: string }
  /** Failed for good. `attempted`: a delivery was tried, and so counted. */
  | { readonly kind: "dead"; readonly attempted: boolean; readonly reason: string }
  /** Not attempted, not counted: pending again. */
  | { readonly kind: "release" }
);

export interface AttemptRecord {
  /** 1 for the first attempt; null if none was made. */
  readonly attempt: number | null;
  /** Null if no route matches. */
  readonly destination: string | null;
  readonly replica: string;
  /** `PublishError.code`. */
  readonly code: string | null;
  /** The receiver's own code, see `PublishError.status`. */
  readonly status: string | null;
  readonly durationMs: number;
}

/** Default of the column `max_attempts`. */
export const COLUMN_MAX_ATTEMPTS = 5;

/**
 * The attempts of a row: the destination's number wins if the row has the default of the column; any other value was
 * chosen for the row.
 *
 * @param ofRow the row's `max_attempts`
 * @param ofDestination `maxAttempts` of its destination, if it has one
 */
export function maxAttemptsInEffect(ofRow: number, ofDestination: number | undefined): number {
  return ofRow === COLUMN_MAX_ATTEMPTS ? (ofDestination ?? ofRow) : ofRow;
}
