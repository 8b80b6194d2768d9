import type { StoreError } from "../../../model/errors.ts";
import type { RetentionPolicy, RetentionRange, RetentionStore } from "../../../ports/finishedRows.ts";
import { isRefused } from "./refused.ts";
import type { Row } from "./rows.ts";

type StatementName =
  | "outboxByAge"
  | "outboxByCount"
  | "inboxByAge"
  | "deleteSent"
  | "deleteDead"
  | "deleteInbox"
  | "nextSent"
  | "nextDead"
  | "nextInbox";

type Position = readonly string[];

/** What retention asks of a database, with its statements of the type `S`. */
export interface RetentionQueries<S> {
  readonly statements: Readonly<Record<StatementName, S>>;
  /** Positions before every row. */
  readonly start: Readonly<Record<RetentionRange["table"], Position>>;
  /** Most rows of one batch. */
  readonly mostRows: number;
  /** @param bound age in ms, or the number of rows to keep */
  newest(statement: S, bound: number): Promise<readonly Row[]>;
  /** Deletes up to `limit` rows after `from` and up to `until`. @returns counts and the last position; undefined when it found none */
  deleteOldest(statement: S, limit: number, from: Position, until: Position): Promise<Row | undefined>;
  /** The position of the first row after `from` and up to `until`; undefined when there is none. */
  next(statement: S, from: Position, until: Position): Promise<Row | undefined>;
}

/** Deletes finished rows batch by batch, along the index that holds them in order. */
export class RangeRetention<S> implements RetentionStore {
  readonly #queries: RetentionQueries<S>;
  /** Most rows of the next batch: one behind a refused row, and with each batch that is deleted twice as many. */
  #size = Number.POSITIVE_INFINITY;

  constructor(queries: RetentionQueries<S>) {
    this.#queries = queries;
  }

  async plan(policy: RetentionPolicy): Promise<readonly RetentionRange[]> {
    const newest = await this.#newest(policy);
    return newest.map((row) => ({
      table: policy.table,
      state: row.state as RetentionRange["state"],
      from: null,
      until: [row.time as string, row.tie as string],
    }));
  }

  async deleteBatch(
    range: RetentionRange,
    limit: number,
  ): Promise<{ readonly deleted: number; readonly rest: RetentionRange | null; readonly refusal?: string }> {
    const { start, mostRows } = this.#queries;
    const most = Math.min(limit, mostRows);
    const rows = Math.min(most, this.#size);
    const from = range.from ?? start[range.table];
    let row: Row | undefined;
    try {
      row = await this.#queries.deleteOldest(this.#statements(range).remove, rows, from, range.until);
    } catch (error) {
      if (!isRefused(error)) throw error;
      // Half as many, until the refused one is alone: rows in front of it are deleted on the way.
      this.#size = Math.ceil(rows / 2);
      return rows > 1 ? await this.deleteBatch(range, limit) : await this.#passOver(range, from, error);
    }
    this.#size = rows < most ? rows * 2 : Number.POSITIVE_INFINITY;
    // A batch that was not filled has come to the end; what others held locked is left to the next sweep.
    if (row === undefined || Number(row.found) < rows) return { deleted: Number(row?.deleted ?? 0), rest: null };
    return { deleted: Number(row.deleted), rest: { ...range, from: [row.time as string, row.tie as string] } };
  }

  async #passOver(range: RetentionRange, from: Position, refusal: StoreError) {
    const next = await this.#queries.next(this.#statements(range).look, from, range.until);
    const rest = next === undefined ? null : { ...range, from: [next.time as string, next.tie as string] };
    return { deleted: 0, rest, refusal: refusal.message };
  }

  async #newest(policy: RetentionPolicy): Promise<readonly Row[]> {
    const { statements } = this.#queries;
    if (policy.kind === "COUNT") return await this.#queries.newest(statements.outboxByCount, policy.maxCount);
    if (policy.maxAgeMs > OLDEST_MS) return [];
    const statement = policy.table === "outbox" ? statements.outboxByAge : statements.inboxByAge;
    return await this.#queries.newest(statement, policy.maxAgeMs);
  }

  #statements({ table, state }: RetentionRange): { readonly remove: S; readonly look: S } {
    const { deleteInbox, deleteSent, deleteDead, nextInbox, nextSent, nextDead } = this.#queries.statements;
    if (table === "inbox") return { remove: deleteInbox, look: nextInbox };
    return state === "sent" ? { remove: deleteSent, look: nextSent } : { remove: deleteDead, look: nextDead };
  }
}

/**
 * A thousand years: nothing is that old. Times of SQL Server begin with the year 1, those of PostgreSQL with 4713 BC, and an age that reaches
 * past that is an error.
 */
const OLDEST_MS = 1000 * 365.25 * 86_400_000;
