import type {
  ClaimedRow,
  ClaimToken,
  InsertResult,
  MessageId,
  NewInboxRow,
  OrderedRow,
  Outcome,
} from "../model/rows.ts";
import type { BucketStore } from "./bucketStore.ts";
import type { DestinationStore } from "./destinationStore.ts";
import type { OnLeft, ReplayStore, RetentionStore } from "./finishedRows.ts";
import type { HistoryStore } from "./historyStore.ts";
import type { JobStore } from "./jobStore.ts";
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
   * Stores the rows in one transaction; resolves after the commit, with an outcome per row in the order given. Of two
   * rows with the same `(source, idempotencyKey)` the first is stored. A refused row keeps no other from being stored.
   *
   * Rows with a bucket are stored only while all of these are open here: else it rejects with the code `elsewhere`. Some
   * rows may be stored even then, where it took several transactions: a repetition finds them here, or their copies.
   *
   * @param claim of the poller of this process, where the store relays rows as it stores them: it may claim their outbox
   *   rows too, as {@link OutboxStore.claim} would
   */
  insert(rows: readonly NewInboxRow[], claim?: ReceiptClaim): Promise<readonly InsertResult[]>;

  /**
   * As {@link insert}, but stores all rows or none: where an outcome is `refused`, nothing is stored, and the others
   * are what they would be without the refused rows.
   */
  insertAllOrNone(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]>;

  /** @throws StoreError while the table refuses every received row, in so far as a row that it took before shows that */
  check(): Promise<void>;

  /** Whether inserts run one after the other now, as they relay what they store: one that begins earlier only waits. */
  readonly insertsInTurn: boolean;

  /**
   * Copies up to `limit` pending push rows, oldest first, into the outbox and marks them `processed`, atomically. A row
   * whose topic renders empty, or that the outbox table refuses, becomes `dead`. The rows of one outbox key are copied
   * in the order `(created_at, id)` across all replicas. Rows of other sources stay pending and block nothing.
   */
  relay(request: RelayRequest): Promise<RelayResult>;

  /**
   * Age of the oldest due push row of these sources in ms by the database's clock, since it was due; null when there is
   * none.
   */
  oldestPendingAgeMs(sources: readonly string[]): Promise<number | null>;

  /**
   * Pending push rows of other sources, counted by source, among the oldest `limit` pending push rows: a long backlog
   * hides them until it is relayed.
   */
  unrelayed(sources: readonly string[], limit: number): Promise<readonly UnrelayedRows[]>;
}

export interface UnrelayedRows {
  readonly source: string;
  readonly count: number;
}

export interface RelayRequest {
  readonly limit: number;
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
}

export interface RelayResult {
  readonly relayed: number;
  readonly dead: readonly { readonly id: MessageId; readonly source: string; readonly reason: string }[];
  /** Rows that the database refuses to change; they stay pending, and later passes leave them out for a while. */
  readonly refused?: readonly { readonly id: MessageId; readonly source: string; readonly reason: string }[];
  /** The batch was full: more rows probably wait. */
  readonly more: boolean;
}

export interface OutboxStore {
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
   * Closes claims in one transaction, each only while the row is `processing` under its token (the fence). A refused
   * row keeps no other from being settled: where the database refuses its outcome (a trigger or constraint) it becomes
   * `dead`, and where it refuses that too it keeps its claim.
   *
   * @param mayWait whether it may wait, for a moment, for rows that other transactions hold; default true
   * @returns what became of the rows; any other was taken over and is unchanged
   */
  settle(outcomes: readonly Outcome[], mayWait?: boolean): Promise<SettledRows>;

  /**
   * Returns up to `limit` rows to `pending` whose lease ended, or whose claim without a lease is older than
   * `claimTimeoutMs`; attempts are not counted.
   *
   * @returns their number
   */
  reclaim(limit: number, claimTimeoutMs: number): Promise<number>;

  /** @throws StoreError while the table refuses every outcome, in so far as a row that was sent before shows that */
  check(): Promise<void>;

  /** The clock by which leases end, in ms since the epoch. */
  clock(): Promise<number>;

  /**
   * Figures for the gauges. It may count every pending row: call it seldom, and by destination, which takes some twenty
   * times as long, even less often.
   *
   * @param request `totalsOnly` leaves `byDestination` empty
   */
  backlog(request?: { readonly totalsOnly: boolean }): Promise<OutboxBacklog>;
}

export interface SettledRows {
  /** Rows whose claims were closed. */
  readonly closed: ReadonlySet<MessageId>;
  /** Rows for which the database refuses every outcome; with the reason. */
  readonly refused: ReadonlyMap<MessageId, string>;
  /**
   * Rows that another transaction holds, or that code of the owner cannot change now: worth another try; with the
   * reason.
   */
  readonly busy?: ReadonlyMap<MessageId, string>;
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
   * Running claims of this process. Rows under them hold back no later row of their key: the caller delivers in order,
   * and releases what it claimed behind an undelivered row.
   */
  readonly heldTokens: readonly ClaimToken[];
  /** Which rows to choose from; all by default. Other rows still hold back the later rows of their keys. */
  readonly scope?: ClaimScope | undefined;
}

/** A claim that comes with a receipt. */
export interface ReceiptClaim {
  readonly request: ClaimRequest;
  /** Called at most once, after the commit, even where the outcome of other rows is not known. Must not throw. */
  readonly onClaimed: (rows: ClaimResult["rows"]) => void;
}

/** A part of the outbox with claims of its own. */
export interface ClaimScope {
  /** The store remembers the progress of a scope's claims by this name. */
  readonly name: string;
  /**
   * Rows `only` of these destinations, or those of all others. The store derives a row's destination from its override,
   * or from its topic by its routes. Rows without a route, or whose destination the database cannot derive, are among
   * the others.
   */
  readonly which: "only" | "except";
  /** Names. They may change between two claims. */
  readonly destinations: readonly string[];
  /** Rows of these keys are not claimed. */
  readonly exceptKeys: readonly string[];
  /** Nor are these rows, and the others of their keys. */
  readonly exceptIds?: readonly MessageId[] | undefined;
}

/** The destination of rows that match no route, or whose destination is unknown. No destination is called so. */
export const NO_DESTINATION = "";

export interface ClaimResult {
  readonly rows: readonly ClaimedRow[];
  /** The claim was full: more rows are probably due. */
  readonly more: boolean;
  /** Rows read that wait behind an earlier row of their key. */
  readonly heldBack: number;
  /** A sweep in front of the scope's rows continues with its next claim, due in this many ms; undefined for none. */
  readonly goesOnInMs?: number | undefined;
  /** Rows that the database refuses to let be claimed, with its error; later claims leave them out for a while. */
  readonly refused?: readonly { readonly id: MessageId; readonly reason: string }[];
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
  /** Age of the oldest due pending row in ms; null when there is none. */
  readonly oldestPendingAgeMs: number | null;
  readonly processing: number;
  /** Keys with a row there that waits for its retry or is parked. */
  readonly blockedKeys: number;
}

export type CheckedTables = readonly ("inbox" | "outbox" | "destinations" | "history")[];

export interface SchemaStore {
  /**
   * Applies the bundled migrations under a database lock. With `isAtStart`, a user that may not read which are applied
   * applies none, with a warning. @returns the files applied
   */
  migrate(isAtStart?: boolean): Promise<readonly string[]>;

  /**
   * Checks that the tables have the columns, types and keys that the statements need; logs what only makes them slow.
   *
   * The destinations' table may be missing, or closed to this user: a warning contains the statement that fixes it, and
   * `DestinationStore.isAvailable` is false.
   *
   * The history's table may be missing or closed too: then `HistoryStore.isAvailable` is false. Its check needs a
   * database that takes writes.
   *
   * An owner's outbox may have no column for overrides, see `ReplayStore.overrideRemedy`, and neither table one for the
   * expiry.
   *
   * @param tables those that this process uses; all by default
   * @param needs what is required of the tables that are checked; nothing optional by default
   * @throws ConfigError with every problem and the `ALTER TABLE` statement that fixes it
   */
  checkColumns(tables?: CheckedTables, needs?: SchemaNeeds): Promise<void>;

  /** Checks the destinations' table again. @returns what keeps it from being used, and the statements that fix it */
  destinationFault(): Promise<{ readonly what: string; readonly remedy: string } | undefined>;
}

/** What is optional in an owner's tables, and the configuration needs. */
export interface SchemaNeeds {
  /** The destinations' table: there are pauses, limits or breakers. */
  readonly destinations?: boolean;
  /** Columns for the expiry: a source sets it. */
  readonly expiry?: boolean;
}

/** What a process sees that leaves the outbox to another one. */
export interface OutboxGlance {
  /** Some row has been due for long. It may be locked, or wait behind another of its key. */
  readonly isOverdue: boolean;
  /** A process calls for help. */
  readonly isCalled: boolean;
  /** Some process has the watch; see `Store.onOutboxWake`. */
  readonly isWatched: boolean;
}

export interface Store {
  readonly inbox: InboxStore;
  readonly outbox: OutboxStore;
  readonly history: HistoryStore;
  readonly journal: JournalStore;
  readonly messages: MessageStore;
  readonly operations: OperationsStore;
  readonly jobs: JobStore;
  readonly parked: ParkedStore;
  readonly replay: ReplayStore;
  readonly retention: RetentionStore;
  readonly pull: PullStore;
  readonly destinations: DestinationStore;
  /** The buckets of this cell, of several ones. */
  readonly buckets: BucketStore;
  readonly schema: SchemaStore;
  /** Waits until the database answers; rejects with the last error, or when `signal` aborts. */
  waitUntilReady(timeoutMs: number, signal: AbortSignal): Promise<void>;
  ping(): Promise<void>;
  poolUsage(): { readonly used: number; readonly idle: number; readonly waiting: number };
  /**
   * Calls `listener` when another process relayed rows into the outbox: a hint that may come late or never. Returns
   * when subscribed; `close` ends it.
   *
   * @param sharesWatch whether this process takes part in the watch over the outbox. One process at a time has it, as
   *   long as it is connected, and is called alone; another one follows. False where each process is called
   */
  onOutboxWake(listener: () => void, sharesWatch?: boolean): Promise<void>;
  /** Notifies other processes of new outbox rows, at most once per 50 ms. */
  announceOutbox(): void;
  /** Whether another process had the watch some seconds ago at most. It may hang: glance now and then all the same. */
  isOutboxWatched(): boolean;
  /** As `OutboxStore.glance`; takes the watch where nobody has it. */
  glanceAtOutbox(overdueMs: number): Promise<OutboxGlance>;
  /** Begins or ends a call for help that glances see. It may fail, or another process call already: repeat it. */
  callForHelp(isNeeded: boolean): void;
  /** Lets another process have the watch, for good. Never rejects. */
  leaveOutboxWatch(): Promise<void>;
  close(): Promise<void>;
}

/** Rows that failed for good and wait for an operator, first of their keys; see `PARKED_UNTIL`. */
export interface ParkedStore {
  /** Parked rows in the order of `sequence`: the first `limit` that match after `after` (null: all). */
  list(filter: ParkedFilter, after: string | null, limit: number): Promise<readonly ParkedRow[]>;

  /**
   * Makes those of the rows that are still parked due now, with attempt 0.
   *
   * @param by who does it, for the history
   * @param onLeft told of the rows that the database leaves as they are: once, with cells once for each
   * @returns how many were changed
   */
  retry(ids: readonly MessageId[], by: string, onLeft?: OnLeft): Promise<number>;

  /**
   * Makes those of the rows that are still parked `dead`, in one transaction: the next rows of their keys are free.
   *
   * @param by, reason go before the row's `last_error`, and into the history
   * @param onLeft as of {@link retry}
   * @returns how many were changed
   */
  discard(ids: readonly MessageId[], by: string, reason: string, onLeft?: OnLeft): Promise<number>;

  /** As {@link discard}, of rows that are pending, parked or not. */
  discardPending(ids: readonly MessageId[], by: string, reason: string, onLeft?: OnLeft): Promise<number>;

  /**
   * Makes those of the rows that wait for their retry due now, their attempts as they are.
   *
   * @param onLeft as of {@link retry}
   * @returns how many were changed
   */
  hasten(ids: readonly MessageId[], by: string, onLeft?: OnLeft): Promise<number>;
}

/** All conditions given must hold. An empty list of ids matches no row. */
export interface ParkedFilter {
  readonly ids?: readonly MessageId[] | undefined;
  /** Compared letter for letter. */
  readonly key?: string | undefined;
}

export interface ParkedRow extends OrderedRow {
  /** The cell that has it; undefined without cells. */
  readonly cell?: string | undefined;
  /** Null where an owner's table has no time that a `Date` can hold. */
  readonly parkedAt: Date | null;
  /** At most 200 characters of the reason. */
  readonly lastError: string | null;
}
