import type {
  ClaimedRow,
  ClaimToken,
  InsertResult,
  MessageId,
  NewInboxRow,
  OrderedRow,
  Outcome,
} from "../model/rows.ts";
import type { DestinationStore } from "./destinationStore.ts";
import type { Changed, ReplayStore, RetentionStore } from "./finishedRows.ts";
import type { HistoryStore } from "./historyStore.ts";
import type { JournalStore } from "./journalStore.ts";
import type { MessageStore } from "./messageStore.ts";
import type { OperationsStore } from "./operationsStore.ts";
import type { PullStore } from "./pullStore.ts";

/**
 * What the roles need from a database. Any number of replicas may call every method at once. Methods reject with
 * `StoreError`, whose code shows whether a retry can help. The database's clock decides leases and due times.
 */

export interface InboxStore {
  /**
   * Stores the rows in one transaction; resolves after the commit, with an outcome per row in the order given. Of two rows with the same `(source,
   * idempotencyKey)` the first is stored. The others are stored even if one is refused.
   */
  insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]>;

  /**
   * As {@link insert}, and relays the rows that wait for nothing in the same statement, with what {@link relay} makes
   * of them. It leaves the other rows to the relay. Undefined if the store only relays in passes.
   *
   * @param claim of the poller of this process, which claims relayed rows as {@link OutboxStore.claim} would
   */
  readonly insertRelayed?:
    | ((rows: readonly NewInboxRow[], relay: RelayRules, claim?: ClaimRequest) => Promise<RelayedReceipt>)
    | undefined;

  /**
   * As {@link insert}, but stores all rows or none: if an outcome is `refused`, nothing is stored, and the others are
   * what they would be without the refused rows.
   */
  insertAllOrNone(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]>;

  /** @throws StoreError while the table refuses every received row, in so far as a row that it took before shows that */
  check(): Promise<void>;

  /**
   * Copies up to `limit` pending push rows, oldest first, into the outbox and marks them `processed`, atomically. A row
   * whose topic renders empty, or that the outbox table refuses, becomes `dead`. The rows of one outbox key are copied
   * in the order `(created_at, id)` across all replicas. Rows of other sources stay pending and block nothing.
   */
  relay(request: RelayRequest): Promise<RelayResult>;

  /** Age of the oldest due push row of these sources in ms since it was due; null if there is none. */
  oldestPendingAgeMs(sources: readonly string[]): Promise<number | null>;

  /**
   * Pending push rows of other sources, by source, among the oldest `limit`: a long backlog hides them until relayed.
   */
  unrelayed(sources: readonly string[], limit: number): Promise<readonly UnrelayedRows[]>;
}

export interface UnrelayedRows {
  readonly source: string;
  readonly count: number;
}

export interface RelayedReceipt {
  /** For each row, in the order given. */
  readonly outcomes: readonly InsertResult[];
  /** In the order of `sequence`; the caller delivers them as those of a claim. */
  readonly claimed: readonly ClaimedRow[];
}

export interface RelayRules {
  /**
   * Per source the pieces of its topic template around each `{{ eventType }}`: `["orders.", ""]` renders `orders.<event
   * type>`, trimmed. Rows of other sources stay pending.
   */
  readonly topics: Readonly<Record<string, readonly string[]>>;
  /** Sources with an order of their own: outbox key `source:aggregate`, instead of the aggregate id. */
  readonly ownKeySources?: readonly string[] | undefined;
  readonly maxAttempts: number;
  /** Received headers to drop, in lower case: whole names, and prefixes of names. */
  readonly droppedHeaders: { readonly names: readonly string[]; readonly prefixes: readonly string[] };
  /** For rows that are relayed at their receipt; undefined leaves their destination to the claim of the row. */
  readonly routing?: TopicRouting | undefined;
  /** Whether a receipt may expand messages of this topic; if not, the poller does. */
  readonly mayExpand?: ((topic: string) => boolean) | undefined;
}

export interface RelayRequest extends RelayRules {
  /** Most rows of the pass. */
  readonly limit: number;
}

export interface RelayResult {
  readonly relayed: number;
  /** `traceparent` of the relayed rows that have one. */
  readonly traces?: readonly string[] | undefined;
  readonly dead: readonly { readonly id: MessageId; readonly source: string; readonly reason: string }[];
  /** Rows that the database refuses to change; they stay pending, and later passes leave them out for a while. */
  readonly refused?: readonly { readonly id: MessageId; readonly source: string; readonly reason: string }[];
  /** The batch was full: more rows probably wait. */
  readonly more: boolean;
}

export interface OutboxStore {
  /** Whether each destination has a queue of its own: an owner's table without the columns is one queue. */
  readonly hasQueues: boolean;

  /**
   * Claims due rows in the order of `sequence`, each with the request's token and lease. The claimed rows of one key
   * are a run: no unfinished row of that key comes before or between them (except under `heldTokens`). Deliver them in
   * the order given.
   */
  claim(request: ClaimRequest): Promise<ClaimResult>;

  /**
   * Looks at the outbox at a fraction of a claim's cost. Blind for some seconds to rows that were committed late.
   *
   * @param overdueMs since when a row must have been due to be overdue
   */
  glance(overdueMs: number): Promise<OutboxGlance>;

  /**
   * Extends the leases of all rows under the tokens by `leaseMs`, at most to `claimTimeoutMs` after the claim.
   *
   * @returns the ids still held; any other was taken over or settled
   */
  renew(tokens: readonly ClaimToken[], lease: Lease): Promise<ReadonlySet<MessageId>>;

  /**
   * Closes claims in one transaction, each only while the row is `processing` under its token (the fence). The others are settled even if a row is refused: if
   * the database refuses its outcome (a trigger or constraint), the row becomes `dead`; if it refuses that too, the row keeps its claim. So does a row that
   * another transaction locks for seconds.
   *
   * @returns what became of the rows; any other was taken over and is unchanged
   */
  settle(outcomes: readonly Outcome[]): Promise<SettledRows>;

  /**
   * Returns up to `limit` rows to `pending` whose lease ended, or whose claim without a lease is older than
   * `claimTimeoutMs`; attempts are not counted.
   *
   * @returns their number
   */
  reclaim(limit: number, claimTimeoutMs: number): Promise<number>;

  /** @throws StoreError while the table refuses every outcome, as far as a row sent before shows that */
  check(): Promise<void>;

  /** The clock by which leases end, in ms since the epoch. */
  clock(): Promise<number>;

  /**
   * Figures for the gauges. It may count every pending row: call it seldom, and by destination, some twenty times as
   * slow, even less often.
   *
   * @param request `totalsOnly` leaves `byDestination` empty
   */
  backlog(request?: { readonly totalsOnly: boolean }): Promise<OutboxBacklog>;

  /**
   * One step of a walk over unfinished rows that clears the labels of other routes: the routes of their claim then
   * decide. Leaves locked rows.
   *
   * @param keep hashes of routes whose labels stay
   * @param after `next` of the step before; null for the first
   * @param limit of rows that are read
   */
  relabel(keep: readonly string[], after: string | null, limit: number): Promise<RelabelResult>;

  /** The destinations that pending rows name: labels and pins, in order; the first ten thousand. */
  destinationsWaiting(): Promise<readonly string[]>;
}

export interface ListStore {
  /**
   * Makes the deliveries of messages that wait for it, in one transaction: each message becomes `sent`, and its
   * deliveries wait at its place. A message that another process has expanded, or holds, is left. If the database
   * refuses to expand a message, that message rests.
   *
   * @returns how many were expanded, and what the database refuses, with its reasons
   */
  expand(expansions: readonly Expansion[]): Promise<ExpandResult>;

  /** Messages with payload and headers, in the order of `sequence`; the first ones up to a bound of bytes. */
  messagesToExpand(ids: readonly MessageId[]): Promise<readonly UnexpandedMessage[]>;
}

export interface RelabelResult {
  /** Null at the end of the walk. */
  readonly next: string | null;
  /** Rows with other labels, those included that were left. */
  readonly found: number;
}

export interface SettledRows {
  readonly closed: ReadonlySet<MessageId>;
  /** Rows whose outcomes the database does not take, with the reason; they keep their claims. */
  readonly refused: ReadonlyMap<MessageId, string>;
}

export interface Lease {
  readonly leaseMs: number;
  /** Longest life of a claim, however often renewed (`outbox.claimTimeoutMs`). */
  readonly claimTimeoutMs: number;
}

export interface ClaimRequest extends Lease {
  readonly limit: number;
  /** Payload bytes at which a claim stops early; the first row is always claimed. */
  readonly maxBytes: number;
  readonly token: ClaimToken;
  /**
   * Running claims of this process. Rows under them hold back no later row of their key that goes to the same
   * destination: the caller delivers in order, and releases what it claimed behind an undelivered row.
   */
  readonly heldTokens: readonly ClaimToken[];
  /** Which rows to choose from; by default all, as one queue. Other rows still hold back later rows of their keys. */
  readonly queues?: ClaimQueues | undefined;
}

/** The destinations to claim for, each with a queue of its own. */
export interface ClaimQueues {
  /** The rows that each destination has room for, one at least; those without room are not among them. */
  readonly room: ReadonlyMap<string, number>;
  /** Those without room only because enough of their rows wait in this process: their rows stay unlabelled. */
  readonly busy?: ReadonlySet<string> | undefined;
  /** These rows are not claimed. */
  readonly exceptIds?: readonly MessageId[] | undefined;
  /** How this process labels a row without a destination. */
  readonly routing: TopicRouting;
  /** Hides messages that are being expanded, or whose topic is full, from claims; these look behind stuck ones. */
  readonly expansion?: { readonly running: readonly MessageId[]; stateOf(topic: string): ExpansionState } | undefined;
}

export type ExpansionState = "open" | "full" | "stuck";

export interface TopicRouting {
  /** The destination of a topic: that of the first route that matches; undefined without one, or if that has a list. */
  destinationOf(topic: string): string | undefined;
  /** The names in the list of that route, in order; undefined if it has none. Absent without lists. */
  readonly listOf?: ((topic: string) => readonly string[] | undefined) | undefined;
  /** Names these routes: another process with the same hash labels rows as this one does. */
  readonly hash: string;
}

/** A claim that a receipt makes for the poller of its process. */
export interface ReceiptClaim {
  readonly request: ClaimRequest;
  /** Must be called once, when the receipt has ended, with the rows that it has claimed. Never throws. */
  readonly end: (claimed: readonly ClaimedRow[]) => void;
}

/** The destination of rows that match no route, or whose destination is unknown. No destination is called so. */
export const NO_DESTINATION = "";

export interface ClaimResult {
  readonly rows: readonly ClaimedRow[];
  /** The claim was full: more rows are probably due. */
  readonly more: boolean;
  /** Rows read that wait behind an earlier row of their key. */
  readonly heldBack: number;
  /** Messages of list routes that were found: {@link ListStore.expand} them. */
  readonly lists?: readonly ListMessage[] | undefined;
  /** Destinations that filled their room, or whose queue was not read to its end: more is probably due. */
  readonly unread?: ReadonlySet<string> | undefined;
  /** Rows that the database refuses to let be claimed, with its error; later claims leave them out for a while. */
  readonly refused?: readonly { readonly id: MessageId; readonly reason: string }[];
}

export interface ListMessage {
  readonly id: MessageId;
  readonly topic: string;
}

export type UnexpandedMessage = Pick<
  ClaimedRow,
  "id" | "topic" | "key" | "payload" | "headers" | "attempt" | "createdAt"
>;

export interface ExpandResult {
  readonly expanded: number;
  readonly refused: readonly { readonly id: MessageId; readonly reason: string }[];
}

export interface Expansion {
  readonly id: MessageId;
  readonly deliveries: readonly NewDelivery[];
  /** Destinations whose condition is false, with the reason for the history of the message. */
  readonly skipped: readonly { readonly destination: string; readonly reason: string }[];
}

export interface NewDelivery {
  readonly destination: string;
  readonly isDead: boolean;
  /** `last_error` from the beginning. */
  readonly reason: string | null;
}

export interface OutboxBacklog {
  readonly pending: number;
  /** Age of the oldest due pending row in ms; null when there is none. */
  readonly oldestPendingAgeMs: number | null;
  /** Keys whose first unfinished row waits for its retry, or is parked. */
  readonly blockedKeys: number;
  /** Destinations with pending or processing rows. {@link NO_DESTINATION} has the rows without one. */
  readonly byDestination: ReadonlyMap<string, DestinationBacklog>;
  readonly parked: number;
}

export interface DestinationBacklog {
  /** Including rows that wait for a retry, are scheduled ahead or parked. */
  readonly pending: number;
  /** Those of the pending rows whose time has come. */
  readonly due: number;
  readonly oldestPendingAgeMs: number | null;
  readonly processing: number;
  /** Keys with a row there that waits for its retry or is parked. */
  readonly blockedKeys: number;
  readonly parked: number;
}

export type CheckedTables = readonly ("inbox" | "outbox" | "destinations" | "history")[];

export interface SchemaStore {
  /** Applies the bundled migrations under a database lock. @returns the files applied */
  migrate(): Promise<readonly string[]>;

  /**
   * Checks that the tables have the columns, types and keys that the statements need; logs what only makes them slow.
   *
   * The tables of the destinations and of the history may be missing, or closed to this user: then
   * `DestinationStore.isAvailable`, with a warning, or `HistoryStore.isAvailable` is false. Their check needs a
   * database that takes writes. An owner's outbox may lack the columns for destinations
   * (`ReplayStore.destinationRemedy`), and either table one for the expiry.
   *
   * @param tables the tables that this process uses; all by default
   * @param needs what else the checked tables must have; nothing optional by default
   * @throws ConfigError with every problem and the `ALTER TABLE` statement that fixes it
   */
  checkColumns(tables?: CheckedTables, needs?: SchemaNeeds): Promise<void>;

  /**
   * The cell that this database is, as noted by the first process that prepared it.
   *
   * @param own to note if none is noted yet; without it, a missing or closed table notes nothing
   * @throws StoreError with the code `schema` when `own` is given and the table cannot be used
   */
  cell(own?: CellIdentity): Promise<CellIdentity | undefined>;

  /** Whether rows wait in these tables; none do in tables that are missing, or closed to the user. */
  hasUnfinished(): Promise<boolean>;
}

export interface CellIdentity {
  /** In `database.cells`, from 1; 0 for the schema that the cells share. */
  readonly position: number;
  readonly name: string;
  /** The number of cells: the cell of a key follows from it. */
  readonly cells: number;
}

export interface SchemaNeeds {
  /** The destinations' table: there are pauses, limits or breakers. */
  readonly destinations?: boolean;
  /** Columns for the expiry: a source sets it. */
  readonly expiry?: boolean;
  /** Columns for deliveries: a route has several destinations. */
  readonly lists?: boolean;
}

/** What a process sees that leaves the outbox to another one. */
export interface OutboxGlance {
  /** Some row has been due for long. It may be locked, or wait behind another of its key. */
  readonly isOverdue: boolean;
  /** Some process has the watch; see `Store.onOutboxWake`. */
  readonly isWatched: boolean;
}

export interface Store {
  readonly inbox: InboxStore;
  readonly outbox: OutboxStore & ListStore;
  readonly history: HistoryStore;
  /** The history of each database, to follow them: sequences of one mean nothing in another. */
  readonly histories: readonly Pick<HistoryStore, "since">[];
  readonly journal: JournalStore;
  readonly messages: MessageStore;
  readonly operations: OperationsStore;
  readonly parked: ParkedStore;
  readonly replay: ReplayStore;
  readonly retention: RetentionStore;
  readonly pull: PullStore;
  readonly destinations: DestinationStore;
  readonly schema: SchemaStore;
  /** Waits until the database answers; rejects with the last error, or when `signal` aborts. */
  waitUntilReady(timeoutMs: number, signal: AbortSignal): Promise<void>;
  ping(): Promise<void>;
  /** The same object for stores that share theirs. */
  readonly connections: { usage(): { readonly used: number; readonly idle: number; readonly waiting: number } };
  /**
   * Calls `listener` when another process relayed rows into the outbox: a hint that may come late or never. Returns
   * when subscribed; `close` ends it.
   *
   * @param sharesWatch whether this process takes part in the watch: one connected process at a time has it and is
   *   called alone. False: each process is called
   */
  onOutboxWake(listener: () => void, sharesWatch?: boolean): Promise<void>;
  /** Notifies other processes of new outbox rows, at most once per 50 ms. */
  announceOutbox(): void;
  /** Whether another process had the watch some seconds ago at most. It may hang: glance now and then all the same. */
  isOutboxWatched(): boolean;
  /** As `OutboxStore.glance`; takes the watch if nobody has it. */
  glanceAtOutbox(overdueMs: number): Promise<OutboxGlance>;
  /** Lets another process have the watch, for good. Never rejects. */
  leaveOutboxWatch(): Promise<void>;
  close(): Promise<void>;
}

/** Rows that failed for good and wait for an operator, first of their keys; see `PARKED_UNTIL`. */
export interface ParkedStore {
  /** Parked rows in the order of `sequence`: the first `limit` that match after `after` (null: all). */
  list(filter: ParkedFilter, after: string | null, limit: number): Promise<readonly ParkedRow[]>;

  /**
   * Makes those of the rows due now that wait for their retry, or are parked: parked ones with attempt 0.
   *
   * @param by who does it, for the history
   * @throws StoreError, `contention` when another transaction locks one of the rows for long: none is changed
   */
  retry(ids: readonly MessageId[], by: string): Promise<Changed>;

  /**
   * Makes those of the rows `dead` that are pending, in one transaction: the next rows of their keys are free.
   *
   * @param by, reason go before the row's `last_error`, and into the history
   */
  discard(ids: readonly MessageId[], by: string, reason: string): Promise<Changed>;
}

/** All conditions given must hold. An empty list of ids matches no row. */
export interface ParkedFilter {
  readonly ids?: readonly MessageId[] | undefined;
  /** Compared letter for letter. */
  readonly key?: string | undefined;
}

export interface ParkedRow extends OrderedRow {
  readonly cell?: string | undefined;
  /** Null if the time in an owner's table is missing or beyond what a `Date` holds. */
  readonly parkedAt: Date | null;
  /** At most 200 characters of the reason. */
  readonly lastError: string | null;
}
