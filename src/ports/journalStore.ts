import type { MessageId } from "../model/rows.ts";

/**
 * Received messages that left no row: a source's filter dropped them, or they are duplicates. Kept for 24 hours. Every
 * call takes two seconds at most, and rejects with the code `schema` if the table is missing or closed to this user.
 */
export interface JournalStore {
  /** Adds entries in one statement; finds the first message of each duplicate. @param entries one at least */
  add(entries: readonly NewJournalEntry[]): Promise<void>;

  /** Deletes, of the oldest `limit` entries, those older than 24 hours. @returns how many */
  deleteOld(limit: number): Promise<number>;

  /** The newest `limit` duplicates of a message, newest first, and their number, up to {@link MOST_COUNTED}. */
  duplicatesOf(id: MessageId, limit: number): Promise<JournalPage>;

  find(search: JournalSearch, limit: number): Promise<readonly JournalEntry[]>;
}

export const MOST_COUNTED = 1000;

/** `duplicate`: a message of the same source and key had been received before. */
export type JournalOutcome = "filtered" | "duplicate";

interface JournalParts {
  readonly source: string;
  readonly outcome: JournalOutcome;
  /** As an inbox row would have it; null if it is not known: the filter does not always read the body. */
  readonly idempotencyKey: string | null;
  /** Null if the sender of a filtered message gave none. */
  readonly correlationId: string | null;
  readonly replica: string;
}

export interface NewJournalEntry extends JournalParts {
  /** How long ago the message was received, in ms: the database's clock gives the time. */
  readonly ageMs: number;
}

export interface JournalEntry extends JournalParts {
  readonly cell?: string | undefined;
  readonly at: Date;
  /** Of a duplicate: the first message, unless retention had deleted it. */
  readonly messageId: MessageId | null;
}

export interface JournalPage {
  readonly entries: readonly JournalEntry[];
  readonly count: number;
}

/** By key or by correlation id. */
type JournalSearch = { readonly outcome: JournalOutcome } & (
  | { readonly idempotencyKey: string }
  | { readonly correlationId: string }
);
