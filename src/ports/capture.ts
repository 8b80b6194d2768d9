/**
 * Change capture: sees in the database's own log that rows came into the outbox, and wakes the poller (spec,
 * "outbox.capture"). It carries no data: whatever it misses, the poller finds by itself.
 */

/** A position in a database's log, as text of that database: an LSN. */
export type LogPosition = string;

/** The events of a log. No listener throws. */
export interface LogEvents {
  /** The connection is up: later commits are reported. Rows committed before it may have been missed. */
  following(): void;
  /**
   * Rows that were inserted into the outbox are committed. They may come into sight of other transactions a moment
   * later.
   *
   * @param committedAt the database's wall clock at the commit, ms since the epoch
   */
  inserted(committedAt: number): void;
  /** Everything before this position was reported: the next follower may begin here. Called often, saved seldom. */
  reached(position: LogPosition): void;
}

/** The log of one database, for one outbox table. */
export interface ChangeLog {
  /**
   * Follows the log over one connection. Resolves when `signal` aborts, with the connection closed. Called again after
   * a failure. No event comes after its end.
   *
   * @param from the position saved last; null for none. One that the log does not have is logged as a warning and does
   *   not fail
   * @throws Error with the problem, what to do and the statement that fixes it, without credentials
   */
  follow(from: LogPosition | null, events: LogEvents, signal: AbortSignal): Promise<void>;
}

/** Stores the position of a capture between two runs (`outbox.capture.stateDirectory`). */
export interface CaptureState {
  /**
   * Takes the state of an identity for this process alone, until `close`.
   *
   * @param onLost called once if the ownership is lost: another process may have taken it
   * @throws Error that says that another process owns it, or why the directory cannot be used, and what to do
   */
  open(onLost: (error: Error) => void): Promise<OwnedState>;
}

export interface OwnedState {
  /** Saved by the last owner; null when there is none. */
  readonly position: LogPosition | null;
  /** Replaces the saved position. @throws Error that names the file */
  save(position: LogPosition): Promise<void>;
  /** Releases the ownership. Does not throw. */
  close(): Promise<void>;
}

/** Whether a server still has the log of a replication slot (`wal_status` of "pg_replication_slots"). */
export const SLOT_STATUSES = ["reserved", "extended", "unreserved", "lost"] as const;
export type SlotStatus = (typeof SLOT_STATUSES)[number];
