/**
 * Change capture: sees in the database's own log that rows came into the outbox, and wakes the poller (spec, "outbox.capture"). It carries no
 * data: whatever it misses, the poller finds by itself.
 */

/** A place in a database's log, as text of that database: an LSN. */
export type LogPosition = string;

/** What the follower of a log tells. None of these throws. */
export interface LogEvents {
  /** The connection stands: what is committed from now on is told. Rows that came before it may have been missed. */
  following(): void;
  /**
   * Rows that were inserted into the outbox are committed. They may come into sight of other transactions a moment later.
   *
   * @param committedAt the database's wall clock at the commit, ms since the epoch
   */
  inserted(committedAt: number): void;
  /** Everything before this position was told: the next follower may begin here. Called often, saved seldom. */
  reached(position: LogPosition): void;
}

/** The log of one database, for one outbox table. */
export interface ChangeLog {
  /**
   * What a saved position depends on, such as server, database, table and slot; never a secret. A position that was saved under other
   * settings is not used.
   */
  readonly settings: Readonly<Record<string, string | number | null>>;

  /**
   * Follows the log over one connection. Resolves when `signal` aborts, with the connection closed. Called again after a failure.
   *
   * @param from the position saved last; null when there is none. One that the log no longer has, or does not have yet, is a warning in the log
   *   of the process and not a failure
   * @throws Error that says what is wrong and what to do, with the statement that mends it where there is one, and without any credential
   */
  follow(from: LogPosition | null, events: LogEvents, signal: AbortSignal): Promise<void>;
}

/** Where a capture keeps its position between two runs (`outbox.capture.stateDirectory`). */
export interface CaptureState {
  /**
   * Takes the state of an identity for this process alone, until `close`.
   *
   * @param settings as in {@link ChangeLog}
   * @param onLost called once when the ownership is lost while it is held: another process may have taken it
   * @throws Error that names the owner when there is one, or says why the directory cannot be used, and what to do
   */
  open(settings: ChangeLog["settings"], onLost: (error: Error) => void): Promise<OwnedState>;
}

export interface OwnedState {
  /** Saved by the last owner under the same settings; null when there is none. */
  readonly position: LogPosition | null;
  /**
   * Replaces the saved position: after a crash at any moment the old one is there, or the new one, whole.
   *
   * @throws Error that names the file
   */
  save(position: LogPosition): Promise<void>;
  /** Gives the ownership up. Does not throw. */
  close(): Promise<void>;
}

/** Whether a server still has the log that a replication slot needs (PostgreSQL documentation, "pg_replication_slots": `wal_status`). */
export const SLOT_STATUSES = ["reserved", "extended", "unreserved", "lost"] as const;
export type SlotStatus = (typeof SLOT_STATUSES)[number];
