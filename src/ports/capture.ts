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
   * Inserted rows are committed; other transactions may see them a moment later.
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
   * @param from the position reached last; null for none. A log without it begins at the present
   * @throws Error with the problem, what to do and the statement that fixes it, without credentials
   */
  follow(from: LogPosition | null, events: LogEvents, signal: AbortSignal): Promise<void>;
}

/** Stores the position of a capture between two runs (`outbox.capture.stateDirectory`). */
export interface PositionStore {
  /** @returns null when there is none, or none that can be read @throws Error when the directory cannot be used */
  read(): Promise<LogPosition | null>;
  save(position: LogPosition): Promise<void>;
}

/** Whether a server still has the log of a replication slot (`wal_status` of "pg_replication_slots"). */
export const SLOT_STATUSES = ["reserved", "extended", "unreserved", "lost"] as const;
export type SlotStatus = (typeof SLOT_STATUSES)[number];
