import type { ClaimedRow, ClaimToken, InsertResult, MessageId, NewInboxRow, Outcome } from "../model/rows.ts";
import type { DestinationStore } from "./destinationStore.ts";
import type { ReplayStore, RetentionStore } from "./finishedRows.ts";
import type { ParkedStore } from "./parkedStore.ts";
import type { PullStore } from "./pullStore.ts";

/**
 * What the roles ask of a database. Every method is safe to call from any number of replicas at once. Methods reject with
 * `StoreError`; its code tells whether trying again can help. The database's clock decides leases and due times.
 */

export interface InboxStore {
  /**
   * Stores the rows in one transaction; resolves after the commit, with an outcome per row in the order given.
   * Two rows with the same `(source, idempotencyKey)` in one call: the first is stored, the second a duplicate.
   * When the data of some rows is refused, the others are stored all the same.
   */
  insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]>;

  /**
   * Copies up to `limit` pending push rows, oldest first, into the outbox and marks them `processed`, atomically. A row
   * whose topic renders empty, or that the outbox table refuses, becomes `dead`. The rows of one outbox key are copied
   * in the order `(created_at, id)` across all replicas. Rows of other sources stay pending and hold nobody back.
   */
  relay(request: RelayRequest): Promise<RelayResult>;

  /** Age of the oldest pending push row of these sources in ms by the database's clock; null when there is none. */
  oldestPendingAgeMs(sources: readonly string[]): Promise<number | null>;

  /**
   * Pending push rows of any other source, counted by source, among the oldest `limit` pending push rows: the limit
   * bounds what the count costs, so a long backlog in front hides them until it is relayed.
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
   * Per source name the pieces of its topic template around each `{{ eventType }}`; rows of other sources stay pending.
   * `["orders.", ""]` renders `orders.<event type>`; the result is trimmed.
   */
  readonly topics: Readonly<Record<string, readonly string[]>>;
  /**
   * Sources whose outbox key is `source:aggregate`, so that their order is their own; the key of any other source is
   * the aggregate id.
   */
  readonly ownKeySources?: readonly string[] | undefined;
  /** `max_attempts` of the outbox rows made. */
  readonly maxAttempts: number;
  /** Received headers that do not travel on, in lower case: whole names, and prefixes of names. */
  readonly droppedHeaders: { readonly names: readonly string[]; readonly prefixes: readonly string[] };
}

export interface RelayResult {
  readonly relayed: number;
  readonly dead: readonly { readonly id: MessageId; readonly source: string; readonly reason: string }[];
  /** Rows that the database refuses to change at all; they stay pending, and further passes of this store leave them out for a while. */
  readonly refused?: readonly { readonly id: MessageId; readonly source: string; readonly reason: string }[];
  /** True when the batch was full, so that more rows probably wait. */
  readonly more: boolean;
}

export interface OutboxStore {
  /**
   * Claims due rows in the order of `sequence`, each with the request's token and lease. The claimed rows of one key are a run
   * with no unfinished row of that key before or between them (but those under `heldTokens`), and are to be published in the order given.
   */
  claim(request: ClaimRequest): Promise<ClaimResult>;

  /**
   * Extends the leases of all rows under the given tokens by `leaseMs` from now, but never past `claimTimeoutMs` after the
   * claim. Returns the ids that are still held: an id not among them was taken over or settled.
   */
  renew(tokens: readonly ClaimToken[], lease: Lease): Promise<ReadonlySet<MessageId>>;

  /**
   * Closes claims in one transaction, each only while the row is `processing` under its token (the fence). Returns the ids
   * that were closed; any other was taken over by then and is left as it is. One row that the database refuses keeps no other from being settled: where
   * the outcome itself is refused (by a trigger or a constraint of the owner) the row becomes `dead`, and where that is refused too it keeps its claim.
   *
   * @param onRefused receives each row that refuses every outcome, with the error of the database; it is not among the ids returned
   */
  settle(
    outcomes: readonly Outcome[],
    onRefused?: (outcome: Outcome, reason: string) => void,
  ): Promise<ReadonlySet<MessageId>>;

  /**
   * Returns up to `limit` rows to `pending` whose lease has run out, or whose claim without a lease is older than
   * `claimTimeoutMs`; gives their number. Attempts are not counted.
   */
  reclaim(limit: number, claimTimeoutMs: number): Promise<number>;

  /**
   * Figures for the gauges. May count every pending row: call it seldom. By destination it reads each of them for its topic, which takes some twenty times as
   * long: call it for that alone, and more seldom.
   *
   * @param request `totalsOnly` leaves `byDestination` empty
   */
  backlog(request?: { readonly totalsOnly: boolean }): Promise<OutboxBacklog>;
}

export interface Lease {
  readonly leaseMs: number;
  /** Longest time a claim may live, however often renewed (`outbox.claimTimeoutMs`). */
  readonly claimTimeoutMs: number;
}

export interface ClaimRequest extends Lease {
  readonly limit: number;
  /** Payload bytes at which a claim stops early; the first row is always claimed. */
  readonly maxBytes: number;
  readonly token: ClaimToken;
  /**
   * Claims of this process that still run. Rows in processing under them hold back no later row of their key: the caller itself delivers
   * in order, and gives back what it claimed of a key whose earlier row it did not get through.
   */
  readonly heldTokens: readonly ClaimToken[];
  /** Which rows to choose from; all of them by default. Rows outside of it still hold back the later rows of their keys. */
  readonly scope?: ClaimScope | undefined;
}

/** A part of the outbox that is claimed from by itself. */
export interface ClaimScope {
  /** The store remembers by this name how far the claims of a scope have come. */
  readonly name: string;
  /**
   * Rows `only` of these destinations, or those of all others. The store tells a row's destination from its topic, by the routes it was made with. A row
   * that no route matches is among the others, and so is one of which the database cannot tell.
   */
  readonly which: "only" | "except";
  /** Names. They may change between two claims of one name. */
  readonly destinations: readonly string[];
  /** Rows of these keys are not claimed either. */
  readonly exceptKeys: readonly string[];
  /** Nor are these rows, and the others of their keys. */
  readonly exceptIds?: readonly MessageId[] | undefined;
}

/** The destination of rows that no route matches, and of those of which the database cannot tell. No destination has this name. */
export const NO_DESTINATION = "";

export interface ClaimResult {
  readonly rows: readonly ClaimedRow[];
  /** True when the claim was full, so that more rows are probably due now. */
  readonly more: boolean;
  /** Rows that the claim read but that stay behind an earlier row of their key. */
  readonly heldBack: number;
  /** A sweep of what is in front of the scope's rows goes on with its next claim, which is due in so many ms; undefined where none is under way. */
  readonly goesOnInMs?: number | undefined;
  /** Rows that the database refuses to let be claimed, with its error. Further claims of this store leave them out for a while. */
  readonly refused?: readonly { readonly id: MessageId; readonly reason: string }[];
}

export interface OutboxBacklog {
  readonly pending: number;
  /** Age of the oldest due pending row in ms; null when there is none. */
  readonly oldestPendingAgeMs: number | null;
  /** Keys whose first unfinished row waits for its retry, or is parked. */
  readonly blockedKeys: number;
  /**
   * Of those that have pending rows, or rows in processing. Rows without a destination, or of which the database cannot tell, are under {@link
   * NO_DESTINATION}.
   */
  readonly byDestination: ReadonlyMap<string, DestinationBacklog>;
  /** Rows that are parked. */
  readonly parked: number;
}

export interface DestinationBacklog {
  /** Also those that wait for a retry, are scheduled ahead or parked. */
  readonly pending: number;
  /** Age of the oldest due pending row in ms; null when there is none. */
  readonly oldestPendingAgeMs: number | null;
  readonly processing: number;
}

export type CheckedTables = readonly ("inbox" | "outbox" | "destinations")[];

export interface SchemaStore {
  /** Applies the bundled migrations under a database lock; any number of replicas may call it at once. Returns the files applied. */
  migrate(): Promise<readonly string[]>;

  /**
   * Checks that the tables have the columns the service needs, of types that its statements work with, and the keys. Logs what makes it only slow.
   *
   * The table of the destinations may be missing, or closed to this user: a warning has the statement that mends it, and `DestinationStore.isAvailable` is
   * false.
   *
   * @param tables those that this process uses; all by default
   * @param requireDestinations true where that table must be there and open to this user, if it is among `tables`
   * @throws ConfigError with everything that is wrong, and the `ALTER TABLE` statement that mends each of it
   */
  checkColumns(tables?: CheckedTables, requireDestinations?: boolean): Promise<void>;

  /**
   * Checks the table of the destinations again, while the process runs.
   *
   * @returns what keeps it from being used, and the statements that mend it; undefined for nothing
   * @throws StoreError
   */
  destinationFault(): Promise<{ readonly what: string; readonly remedy: string } | undefined>;
}

export interface Store {
  readonly inbox: InboxStore;
  readonly outbox: OutboxStore;
  readonly parked: ParkedStore;
  readonly replay: ReplayStore;
  readonly retention: RetentionStore;
  readonly pull: PullStore;
  readonly destinations: DestinationStore;
  readonly schema: SchemaStore;
  /** Waits until the database answers. Rejects with the last error after `timeoutMs`, or at once when `signal` aborts. */
  waitUntilReady(timeoutMs: number, signal: AbortSignal): Promise<void>;
  /** One round trip through the pool. */
  ping(): Promise<void>;
  /** Pool figures now. */
  poolUsage(): { readonly used: number; readonly idle: number; readonly waiting: number };
  /**
   * Calls `listener` when another process relayed rows into the outbox: a hint, it may come late or never. Returns when the
   * subscription is set up; a database that cannot notify never calls. `close` ends it.
   */
  onOutboxWake(listener: () => void): Promise<void>;
  /** Tells other processes that outbox rows were added; at most one notification per 50 ms. */
  announceOutbox(): void;
  close(): Promise<void>;
}
