import type { MessageId, Outcome } from "../model/rows.ts";

/**
 * The history of outbox rows: `OutboxStore.settle` adds an entry for each outcome with a record, retries and discards
 * of parked rows and replays one for each row. Retention deletes the entries of a row with it. A failure to write the
 * history never prevents a row from being settled, moved or deleted: its entries are missing then, and a warning is
 * logged. Reads reject with the code `schema` if the table is missing or closed to this user.
 */
export interface HistoryStore {
  /** False if `SchemaStore.checkColumns` found that this user cannot write the table: nothing is kept. */
  readonly isAvailable: boolean;

  /** The entries of a row, oldest first: the newest `limit` of them. */
  of(id: MessageId, limit: number): Promise<readonly HistoryEntry[]>;

  /**
   * Entries of all rows, in the order of `sequence`. Transactions commit in another order: an entry may appear later
   * than one with a higher sequence.
   *
   * @param after a sequence; null for the newest `limit` entries
   */
  since(after: string | null, limit: number): Promise<readonly HistoryEntry[]>;
}

/** How an attempt ended; what an operator did with the row; `skipped`: a destination of the list got no delivery. */
export type HistoryEvent = Exclude<Outcome["kind"], "release"> | OperatorEvent | "skipped";
export type OperatorEvent = "replayed" | "retried" | "discarded";

export interface HistoryEntry {
  /** Decimal text. */
  readonly sequence: string;
  /** Of the outbox row. */
  readonly id: MessageId;
  readonly cell?: string | undefined;
  readonly at: Date;
  readonly event: HistoryEvent;
  /** 1 for the first attempt; null for an action, and if no attempt was made. */
  readonly attempt: number | null;
  /** The replica of an attempt, the operator of an action. */
  readonly actor: string | null;
  readonly destination: string | null;
  /** `PublishError.code`. */
  readonly code: string | null;
  /** The receiver's own code, such as an HTTP status. */
  readonly status: string | null;
  readonly durationMs: number | null;
  /** Redacted. */
  readonly reason: string | null;
}
