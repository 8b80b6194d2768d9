import type { ClaimToken, MessageId } from "../model/rows.ts";

/**
 * The buckets of one cell, see `bucketOf`, and what moves with them. A bucket takes received messages while it is `open`
 * here. `moving`: it takes none, under the token and the lease of a mover, and may be opened again. `left`: it is gone
 * for good to another cell, where it is open under the same epoch. `arriving`: all its rows have been copied here, for
 * the case that it leaves the other cell; until then this says nothing.
 *
 * A database may go back in time (a restored backup, a failover to a lagging standby), alone among the cells: the epochs
 * tell which of two cells has a bucket, and the token of a move whether what it copied is still there.
 *
 * Methods reject with `StoreError`, with the code `schema` and the remedy in its text where the table or a right is
 * missing.
 */
export interface BucketStore {
  /** Every bucket that is or was here. */
  all(): Promise<BucketTable>;

  /** Opens buckets here. One that is here under the same or a later epoch stays as it is. */
  open(buckets: readonly BucketAt[]): Promise<void>;

  /**
   * Closes those of the buckets that are open, after every receipt under way in this cell: none stores a row of them
   * afterwards. Receipts of the cell wait meanwhile.
   *
   * @param to the cell to which they are to move
   * @returns those closed
   * @throws StoreError `contention` when a receipt took longer than a second: nothing is closed
   */
  close(buckets: readonly number[], to: string, lease: MoveLease): Promise<readonly number[]>;

  /** Extends the lease of all closed buckets under its token. @returns those still under it */
  renew(lease: MoveLease): Promise<readonly number[]>;

  /**
   * Opens closed buckets again.
   *
   * @param token of their mover; null for whatever mover, where the lease has ended
   * @returns those opened
   */
  reopen(buckets: readonly number[], token: ClaimToken | null): Promise<readonly number[]>;

  /**
   * Notes that buckets arrive from another cell, all of whose rows have been copied here.
   *
   * @param buckets with the epochs under which they are to be open here
   * @param move its `server` took the copies
   * @returns those noted: none where the server is another one by now
   */
  expect(buckets: readonly BucketAt[], move: ExpectedMove): Promise<readonly number[]>;

  /** Gives closed buckets up for good, under the next epoch. @returns those that were closed under the token */
  leave(buckets: readonly number[], token: ClaimToken): Promise<readonly BucketAt[]>;

  /** Opens buckets that are expected under the token. @returns those that are open here under their epoch */
  arrive(buckets: readonly BucketAt[], token: ClaimToken): Promise<readonly number[]>;

  /** Opens buckets that have left under this epoch, under a later one. @returns those opened */
  takeBack(buckets: readonly (BucketAt & { readonly nextEpoch: number })[]): Promise<readonly number[]>;

  /**
   * Marks buckets as left, by {@link SUPERSEDED}, that are open, or moving, though another cell has had them since: this
   * table has gone back.
   *
   * @param buckets with the cell that had them last, and its epoch
   * @returns those marked
   */
  supersede(buckets: readonly (BucketAt & { readonly cell: string })[]): Promise<readonly number[]>;

  /**
   * The rows that wait or are in delivery, and have a key: in the inbox each, in the outbox those with a key of their
   * own. A row that is relayed between two pages is in the later one, as the outbox comes last.
   *
   * @param after where the last page ended; undefined for the first
   * @param limit most rows of a page
   */
  unfinished(after: string | undefined, limit: number): Promise<Page<UnfinishedRow>>;

  /**
   * The finished rows of the inbox by the time of their receipt.
   *
   * @param from where to begin: the `next` of a page, or {@link positionBefore}; undefined for the oldest row
   * @param limit most rows of a page
   */
  finished(from: string | undefined, limit: number): Promise<Page<FinishedRow>>;

  /**
   * Waits, a second at most, until the receipts of this cell that are under way have ended. Others wait meanwhile.
   *
   * @returns false when one takes longer
   */
  awaitReceipts(): Promise<boolean>;

  /** The position in `finished` of what was received `ms` before now, by the database's clock. */
  positionBefore(ms: number): Promise<{ readonly position: string; readonly nowMs: number }>;

  /** Those of the rows that are finished, as they are stored. */
  read(ids: readonly MessageId[]): Promise<readonly StoredRow[]>;

  /**
   * Stores rows of another cell as they are there, but for those whose key is here. A row here that has ended, and was
   * received or ended before, gives its place: it is left from an earlier stay of its bucket. Its age would delete the key.
   *
   * @param signal ends it between two statements: it looks for the rows that are refused part by part
   */
  copy(rows: readonly StoredRow[], signal?: AbortSignal): Promise<CopiedRows>;
}

/** In place of the token of a move that the table knows nothing of. */
export const SUPERSEDED = "00000000-0000-0000-0000-000000000000" as ClaimToken;

export interface BucketTable {
  readonly rows: readonly BucketRow[];
  /**
   * Identifies the running server: it is another one after a restart, a failover, or where a backup was restored.
   * Undefined where the database does not tell.
   */
  readonly server: string | undefined;
}

export type BucketState = "open" | "moving" | "left" | "arriving";

export interface BucketAt {
  readonly bucket: number;
  /** Rises by one with each move of the bucket. */
  readonly epoch: number;
}

export interface BucketRow extends BucketAt {
  readonly state: BucketState;
  /** To which it moves, or has left; from which it arrives. */
  readonly otherCell: string | null;
  /** Of its move, unless it is open; null for one that left by an earlier version of the service. */
  readonly token: ClaimToken | null;
  /** Of a bucket that moves: its mover has not extended the lease in time. */
  readonly hasLeaseEnded: boolean;
}

/** A mover's right to closed buckets. */
interface MoveLease {
  readonly token: ClaimToken;
  /** From now, in ms. */
  readonly leaseMs: number;
}

interface ExpectedMove {
  /** The cell that the buckets leave. */
  readonly from: string;
  readonly token: ClaimToken;
  /** As in {@link BucketTable}. */
  readonly server?: string | undefined;
}

export interface Page<T> {
  readonly rows: readonly T[];
  /** Where the next page begins; undefined behind the last one. */
  readonly next: string | undefined;
}

/** What decides the bucket of a stored row. */
interface KeyedRow {
  readonly source: string;
  readonly idempotencyKey: string;
  readonly aggregateId: string | null;
}

export interface FinishedRow extends KeyedRow {
  readonly id: MessageId;
  /** About the size of its payload. */
  readonly bytes: number;
}

export interface UnfinishedRow {
  readonly id: MessageId;
  /** The row of the inbox; of a row of the outbox the one that it was relayed from, if it was received. */
  readonly received: KeyedRow | null;
  /** Of a row of the outbox. */
  readonly key: string | null;
  readonly waitsFor: WaitReason;
  /** In ms from now; 0 for now. */
  readonly dueInMs: number;
}

/** `turn`: due, and not in delivery. `time`: scheduled ahead. */
export type WaitReason = "relay" | "pull" | "turn" | "delivery" | "retry" | "operator" | "time";

export interface CopiedRows {
  /** How many were stored. */
  readonly stored: number;
  /** Those that a trigger, a policy or a constraint keeps out or changes, with the reason: the table has no copy of them. */
  readonly refused: ReadonlyMap<StoredRow, string>;
}

/** A row of the inbox, by the keys of `INBOX_COLUMNS`, each value as the database writes it. */
export type StoredRow = Readonly<Record<string, string | null>>;
