import { errorText, isRefused, mayPass, StoreError } from "../../../model/errors.ts";
import type { AttemptRecord, MessageId, Outcome } from "../../../model/rows.ts";
import type { HistoryEntry, HistoryEvent, HistoryStore } from "../../../ports/historyStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import type { TableNames } from "./names.ts";
import { dateOf, LONGEST_NAME, type Named, type Row, type StatementRunner, storable, type Values } from "./rows.ts";

export interface WithHistory<T> {
  readonly plain: T;
  readonly noting: T;
}

/** `trial` adds an entry that is rolled back, to find out whether this process can write. */
export type HistoryStatements<S> = Named<S, "trial" | "of" | "newest" | "since" | "forget">;

export class SqlHistory<S> implements HistoryStore {
  /** Set by the check of the tables. */
  isAvailable = false;
  readonly #runner: StatementRunner<S>;
  readonly #sql: HistoryStatements<S>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #isLockTimeout: (error: unknown) => boolean;
  /** Monotonic ms until which nothing is noted, since it failed. */
  #pausedUntil = Number.NEGATIVE_INFINITY;
  #hasFailed = false;

  constructor(
    runner: StatementRunner<S>,
    sql: HistoryStatements<S>,
    isLockTimeout: (error: unknown) => boolean,
    clock: Clock,
    log: Log,
  ) {
    this.#runner = runner;
    this.#sql = sql;
    this.#isLockTimeout = isLockTimeout;
    this.#clock = clock;
    this.#log = log;
  }

  /** Sets `isAvailable`. @throws StoreError if it stays unknown whether this process can write and read the table */
  async check(): Promise<boolean> {
    try {
      await this.#runner.runAndRollBack((run) => run(this.#sql.trial, { id: NO_ROW }));
      this.isAvailable = true;
    } catch (error) {
      if (!isFaultOfTable(error)) throw error;
      this.isAvailable = false;
    }
    return this.isAvailable;
  }

  /**
   * Runs statements that add to the history. If they fail because of it they run without it, and nothing is noted for a
   * while: the history never blocks a row.
   *
   * @param work may run twice
   * @param mayWaitForRow whether the lock that a timeout waited for may be that of a row: the timeout is thrown
   */
  async noting<T, R>(
    { plain, noting }: WithHistory<T>,
    work: (statements: T) => Promise<R>,
    mayWaitForRow = false,
  ): Promise<R> {
    if (!this.isAvailable || this.#clock.monotonic() < this.#pausedUntil) return await work(plain);
    try {
      const result = await work(noting);
      this.#hasFailed = false;
      return result;
    } catch (error) {
      if (!isFaultOfTable(error) && (mayWaitForRow || !this.#isLockTimeout(error))) throw error;
      const result = await work(plain);
      // A lock of another table may have ended in between.
      if (this.#hasFailed || !mayPass(error)) this.#pause(errorText(error));
      this.#hasFailed = true;
      return result;
    }
  }

  #pause(reason: string): void {
    this.#pausedUntil = this.#clock.monotonic() + PAUSE_MS;
    this.#log.warn(
      { reason, seconds: PAUSE_MS / 1000 },
      "the history of rows cannot be written: what happens in the next `seconds` is not kept",
    );
  }

  async of(id: MessageId, limit: number): Promise<readonly HistoryEntry[]> {
    return (await this.#runner.run(this.#sql.of, { id, limit })).map(historyEntry);
  }

  async since(after: string | null, limit: number): Promise<readonly HistoryEntry[]> {
    const { newest, since } = this.#sql;
    const rows = await this.#runner.run(after === null ? newest : since, { after: after ?? "0", limit });
    return rows.map(historyEntry);
  }

  /** Deletes the entries of deleted rows. If it fails they stay. */
  async forget(ids: readonly MessageId[]): Promise<void> {
    if (!this.isAvailable || ids.length === 0) return;
    await this.#runner.run(this.#sql.forget, { ids }).catch((error: unknown) => {
      if (!(error instanceof StoreError)) throw error;
    });
  }
}

const PAUSE_MS = 60_000;
const NO_ROW = "00000000-0000-0000-0000-000000000000";

function isFaultOfTable(error: unknown): error is StoreError {
  return isRefused(error) || (error instanceof StoreError && error.code === "schema");
}

export interface NewEntry {
  readonly id: MessageId;
  readonly event: HistoryEvent;
  readonly attempt: number | null;
  readonly actor: string | null;
  readonly destination: string | null;
  readonly code: string | null;
  readonly status: string | null;
  readonly durationMs: number | null;
  readonly reason: string | null;
}

export function entriesOf(outcomes: readonly Outcome[]): readonly NewEntry[] {
  const entries: NewEntry[] = [];
  for (const outcome of outcomes) {
    const { id, kind, record } = outcome;
    if (record === undefined || kind === "release") continue;
    const reason = "reason" in outcome ? storable(outcome.reason) : null;
    entries.push({ id, event: kind, ...partsOf(record), reason });
  }
  return entries;
}

function partsOf({ attempt, destination, replica, code, status, durationMs }: AttemptRecord) {
  return {
    attempt,
    actor: storable(replica, LONGEST_NAME),
    destination: destination && storable(destination, LONGEST_NAME),
    code: code && storable(code, LONGEST_CODE),
    status: status && storable(status, LONGEST_CODE),
    durationMs: Math.min(Math.round(durationMs), MAX_INTEGER),
  };
}

/** Of a column of 32 bits. */
const MAX_INTEGER = 2 ** 31 - 1;
const LONGEST_CODE = 100;

export function entryColumns({ history: c }: TableNames): string {
  return [c.outboxId, c.event, c.attempt, c.actor, c.destination, c.code, c.status, c.durationMs, c.reason].join(", ");
}

export function noteValues(by: string, reason: string | null): Values {
  return { by: storable(by, LONGEST_NAME), note: reason === null ? null : storable(reason) };
}

function historyEntry(row: Row): HistoryEntry {
  return {
    sequence: String(row.sequence),
    id: row.id as MessageId,
    at: dateOf(row.at) ?? new Date(0),
    event: row.event as HistoryEvent,
    attempt: row.attempt as number | null,
    actor: row.actor as string | null,
    destination: row.destination as string | null,
    code: row.code as string | null,
    status: row.status as string | null,
    durationMs: row.duration_ms as number | null,
    reason: row.reason as string | null,
  };
}
