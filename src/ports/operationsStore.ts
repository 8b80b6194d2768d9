import type { MessageId, RoutedRow } from "../model/rows.ts";

/**
 * What operators see of the whole installation: the processes alive, their figures by the minute, the audit log, and
 * bounded reads of the backlog. The database's clock decides all times. Methods reject with `StoreError`; with the code
 * `schema` if a table is missing or closed to this user.
 */
export interface OperationsStore {
  /**
   * Records that a process is alive and what it counted, in one statement, and deletes what is too old.
   *
   * @returns the other processes seen within the last minute
   */
  beat(process: ProcessName, counted: readonly Figures[]): Promise<OtherProcesses>;

  /** The process has ended in order. */
  leave(name: string): Promise<void>;

  processes(): Promise<readonly ProcessAlive[]>;

  /** The figures of the last `minutes` whole minutes and of the present one, oldest first. */
  figures(minutes: number): Promise<readonly MinuteFigures[]>;

  addAudit(entry: NewAuditEntry): Promise<void>;

  /**
   * Entries of the audit log, newest first.
   *
   * @param before `id` of the last entry of the page before; null for the first
   */
  audit(before: string | null, limit: number): Promise<readonly AuditEntry[]>;

  /** The dead rows that died last, up to `limit`, newest first. */
  deadRows(limit: number): Promise<readonly DeadRow[]>;

  /** Messages of lists with a dead and a sent delivery, among the `limit` rows that died last. */
  partlyDead(limit: number): Promise<number>;

  /** Keyed rows that wait for a retry or are parked, next due first, each with up to `behindLimit` rows behind it. */
  blockedKeys(limit: number, behindLimit: number): Promise<readonly BlockedKey[]>;

  /** Pending inbox rows by source: of the oldest `limit` push rows, and up to `limit` pull rows of each pull source. */
  inboxBacklog(pullSources: readonly string[], limit: number): Promise<readonly SourceBacklog[]>;
}

export interface ProcessName {
  /** Unique among the processes alive. */
  readonly name: string;
  readonly version: string;
  readonly roles: readonly string[];
  /** How far its clock is ahead of the database's, in ms; 0 if that is not known. */
  readonly clockAheadMs?: number | undefined;
  /** The hash of its routes, if it labels rows. */
  readonly routes?: string | undefined;
  readonly upMs: number;
}

export interface OtherProcesses {
  readonly pollers: number;
  readonly relays: number;
  /** Their routes; undefined before the first beat. */
  readonly routes?: readonly string[] | undefined;
  /** Processes of versions that do not know messages with several destinations. */
  readonly withoutLists?: number | undefined;
  /** The database's time. */
  readonly at?: Date | null;
}

export interface ProcessAlive {
  readonly name: string;
  readonly version: string;
  readonly roles: readonly string[];
  /** Negative behind it. */
  readonly clockAheadMs: number;
  readonly startedAt: Date | null;
  readonly seenAt: Date | null;
}

export const COUNTERS = ["received", "duplicate", "filtered", "sent", "failed", "dead"] as const;
export type Counter = (typeof COUNTERS)[number];

export interface Figures extends Readonly<Record<Counter, number>> {
  /** `remark`: what was wrong with messages, counted as received. */
  readonly kind: "source" | "destination" | "remark";
  /** Of a remark: the word for it, a blank, and the source. */
  readonly name: string;
  /** How long ago the counting began, in whole minutes: 0 for the present minute. */
  readonly minutesAgo: number;
}

export interface MinuteFigures extends Readonly<Record<Counter, number>> {
  readonly minute: Date;
  readonly kind: Figures["kind"];
  readonly name: string;
}

export interface NewAuditEntry {
  readonly actor: string;
  readonly action: string;
  /** What was changed, such as the name of a destination. */
  readonly target: string | null;
  readonly detail: string | null;
}

export interface AuditEntry extends NewAuditEntry {
  /** Decimal text. */
  readonly id: string;
  readonly at: Date | null;
}

interface DeadRow extends RoutedRow {
  readonly id: MessageId;
  readonly diedAt: Date | null;
  /** At most 300 characters. */
  readonly lastError: string | null;
}

export interface BlockedKey extends RoutedRow {
  readonly key: string;
  readonly cell?: string | undefined;
  /** Of the row that blocks it. */
  readonly id: MessageId;
  readonly isParked: boolean;
  readonly attempt: number;
  /** Null for a parked row, and if a `Date` cannot hold it. */
  readonly dueAt: Date | null;
  readonly lastError: string | null;
  readonly rowsBehind: number;
}

export interface SourceBacklog {
  readonly source: string;
  readonly pending: number;
  readonly oldestAgeMs: number | null;
}
