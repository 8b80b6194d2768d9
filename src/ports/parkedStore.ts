import type { MessageId } from "../model/rows.ts";

/**
 * Rows that failed for good and wait for an operator, first of their keys. A row is parked iff it is `pending`, `attempt` is above 0, and
 * `scheduled_at` is exactly `PARKED_UNTIL`.
 */
export interface ParkedStore {
  /** Parked rows that match, in the order of `sequence`: the first `limit` behind `after`, a sequence (null: from the beginning). */
  list(filter: ParkedFilter, after: string | null, limit: number): Promise<readonly ParkedRow[]>;

  /**
   * Those of the rows that are still parked become due now in one transaction, with attempt 0, so that they are tried at once and are first of their
   * keys. Returns their number. A row that the database refuses to change stays parked.
   *
   * @throws StoreError when the database refuses all of them
   */
  retry(ids: readonly MessageId[]): Promise<number>;

  /**
   * Those of the rows that are still parked become `dead` in one transaction, and the next rows of their keys are free. Returns their number.
   *
   * @param note why; it is put in `last_error` in front of the reason why the row was parked
   * @throws StoreError when the database refuses all of them
   */
  discard(ids: readonly MessageId[], note: string): Promise<number>;
}

/** All that is given must hold; nothing given matches every parked row. An empty list of ids matches none. */
export interface ParkedFilter {
  readonly ids?: readonly MessageId[] | undefined;
  /** Compared letter for letter. */
  readonly key?: string | undefined;
}

export interface ParkedRow {
  readonly id: MessageId;
  /** Decimal text: a 64-bit identity does not fit a JavaScript number. */
  readonly sequence: string;
  readonly topic: string | null;
  readonly key: string | null;
  /** Deliveries that were tried. */
  readonly attempt: number;
  /** Null where an owner's table has no time that a `Date` can hold. */
  readonly parkedAt: Date | null;
  /** The beginning of the reason, 200 characters at most. */
  readonly lastError: string | null;
}
