import type { MessageId, NewInboxRow, OrderedRow } from "../model/rows.ts";

/** Moves finished outbox rows, and dead inbox rows, back to `pending` (spec, "POST /admin/replay"). */
export interface ReplayStore {
  /** Marks this moment by the database's clock: what finishes later is not part of the replay. */
  begin(): Promise<ReplayScope>;

  /**
   * Finished rows (`sent` or `dead`) that match, in the order of `sequence`; no message rows. A call reads at most
   * `limit` rows, so that none runs long.
   *
   * @param after `next` of the page before; null for the first page
   */
  page(scope: ReplayScope, filter: ReplayFilter, after: string | null, limit: number): Promise<ReplayPage>;

  /**
   * The named finished rows that match, by `sequence`; for a message row, its deliveries. The caller bounds the ids.
   */
  find(scope: ReplayScope, filter: ReplayFilter, ids: readonly MessageId[]): Promise<readonly FinishedRow[]>;

  /**
   * Moves the rows that have been `sent` or `dead` since before the scope to `pending`, in one transaction: attempt 0,
   * due now, error and claim cleared, and the label, unless the row is pinned; the rest unchanged. Move rows in the
   * order of their sequence over all calls: a claim then never takes a row before an earlier one of its key.
   *
   * @param by who replays them, for the history
   * @param to the destination that they are pinned to; undefined leaves pins unchanged, and is required if
   *   {@link destinationRemedy} is set
   * @throws StoreError, `contention` when another transaction locks one of the rows for long: none is moved
   */
  move(scope: ReplayScope, ids: readonly MessageId[], by: string, to?: string): Promise<Changed>;

  /** The statements that add the columns for pins; undefined if `SchemaStore.checkColumns` found them. */
  readonly destinationRemedy: string | undefined;

  /**
   * Makes the delivery rows of messages at one more destination, in one transaction: pending, due now, at the place of
   * their message, which names the destination from now on. Messages that name it already are left. Add in the order
   * of sequence, as in {@link move}.
   *
   * @param ids of message rows, see `ReplayFilter.add`
   * @returns as `changed` the deliveries that came into being
   * @throws StoreError, `contention` when another transaction locks one of the rows for long: none is added
   */
  add(ids: readonly MessageId[], to: string): Promise<Changed>;

  /** How many of the named rows are `pending` and untried. */
  untried(ids: readonly MessageId[]): Promise<number>;

  /**
   * Resets the dead inbox row of this id: attempt 0, due now, without expiry. Source, key and time of receipt stay.
   *
   * @param row `cell`: that has it; undefined without cells
   * @returns false if it is no longer dead: nothing was written
   * @throws StoreError, also of a row that the database does not let be changed
   */
  receiveAgain(row: NewInboxRow & { readonly cell?: string | undefined }): Promise<boolean>;
}

export interface Changed {
  readonly changed: number;
  /** Why the database refused a row, which it left unchanged; undefined if it refused none. */
  readonly refusal?: string | undefined;
}

/** What was finished at one moment. */
export interface ReplayScope {
  /** That moment, as an instant of {@link ReplayFilter}. With cells the latest of theirs. */
  readonly finishedUntil: string;
  /** Opaque to the caller. */
  readonly lastSequence: string;
}

export type FinishedState = "sent" | "dead";

/** All given conditions must hold; without one, every row matches. Instants are ISO-8601 in UTC, both exclusive. */
export interface ReplayFilter {
  readonly state?: FinishedState | undefined;
  readonly topics?: readonly string[] | undefined;
  readonly createdAfter?: string | undefined;
  readonly createdBefore?: string | undefined;
  readonly finishedBefore?: string | undefined;
  /** Message rows that have not been expanded to this destination, instead of rows to move; whenever they finished. */
  readonly add?: string | undefined;
}

export interface ReplayPage {
  readonly rows: readonly FinishedRow[];
  readonly next: string | null;
}

/** A null topic, which an owner's table may allow, means that the row is dead. */
export interface FinishedRow extends OrderedRow {
  /** The cell that has it; undefined without cells. */
  readonly cell?: string | undefined;
  readonly state: FinishedState;
  /** Null if the time in an owner's table is missing or beyond what a `Date` holds. */
  readonly createdAt: Date | null;
  /** At most 200 characters of the reason. */
  readonly lastError: string | null;
}

/**
 * Deletes finished rows (spec, "retention"); a row that waits or runs is never touched, nor is a message row that has a
 * delivery row.
 */
export interface RetentionStore {
  /** The rows that the policy deletes now, by the database's clock. Of several replicas one deletes each row. */
  plan(policy: RetentionPolicy): Promise<readonly RetentionRange[]>;

  /**
   * Deletes up to `limit` rows of a range, the oldest first. `rest` is what may be left of it, null for nothing. It
   * skips rows that the database refuses to delete (a trigger or foreign key), with the error of the first in
   * `refusal`.
   */
  deleteBatch(range: RetentionRange, limit: number): Promise<DeletedBatch>;
}

interface DeletedBatch {
  readonly deleted: number;
  readonly rest: RetentionRange | null;
  readonly refused: number;
  readonly refusal?: string | undefined;
}

export type RetentionPolicy =
  /** Outbox `sent` and `dead` by `updated_at`, inbox `processed` and `dead` by `created_at`. */
  | { readonly table: "outbox" | "inbox"; readonly kind: "AGE"; readonly maxAgeMs: number }
  /** Keeps the newest `maxCount` rows in `sent` and as many in `dead`, by `updated_at`. */
  | { readonly table: "outbox"; readonly kind: "COUNT"; readonly maxCount: number };

/** Finished rows of one table up to a bound; the positions are opaque to the caller. */
export interface RetentionRange {
  readonly table: "outbox" | "inbox";
  /** Null in the inbox: one bound holds for both of its finished states. */
  readonly state: "sent" | "dead" | null;
  readonly from: readonly string[] | null;
  readonly until: readonly string[];
}
