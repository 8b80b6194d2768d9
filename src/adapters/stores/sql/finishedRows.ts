import type { StoreError } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type {
  FinishedRow,
  ReplayFilter,
  ReplayPage,
  ReplayScope,
  ReplayStore,
  RetentionPolicy,
  RetentionRange,
  RetentionStore,
} from "../../../ports/finishedRows.ts";
import type { TableNames } from "./names.ts";
import { countChanged, isRefused } from "./refusals.ts";
import { finishedRow, type Row, type StatementRunner, type Values } from "./rows.ts";

/** The statements of a replay. */
export interface ReplayStatements<S> {
  readonly begin: S;
  readonly page: S;
  readonly find: S;
  readonly move: S;
  readonly untried: S;
  readonly dialect: {
    /** Reads the answer of `page`. */
    pageOf(results: readonly (readonly Row[])[]): {
      readonly rows: readonly Row[];
      readonly lookedAt: unknown;
      readonly last: unknown;
    };
  };
}

/** Replay in a SQL database: short statements that find their rows by index, so that a replay of any size disturbs nobody. */
export class SqlReplay<S> implements ReplayStore {
  readonly #runner: StatementRunner<S>;
  readonly #sql: ReplayStatements<S>;

  constructor(runner: StatementRunner<S>, sql: ReplayStatements<S>) {
    this.#runner = runner;
    this.#sql = sql;
  }

  async begin(): Promise<ReplayScope> {
    const [row] = await this.#runner.run(this.#sql.begin);
    return { finishedUntil: row?.finished_until as string, lastSequence: row?.last_sequence as string };
  }

  async page(scope: ReplayScope, filter: ReplayFilter, after: string | null, limit: number): Promise<ReplayPage> {
    const values = { ...filterValues(scope, filter), from: after ?? "0", last: scope.lastSequence, limit };
    const { rows, lookedAt, last } = this.#sql.dialect.pageOf(await this.#runner.runAll(this.#sql.page, values));
    return { rows: rows.map(finishedRow), next: lookedAt === limit ? (last as string) : null };
  }

  async find(scope: ReplayScope, filter: ReplayFilter, ids: readonly MessageId[]): Promise<readonly FinishedRow[]> {
    const rows = await this.#runner.run(this.#sql.find, { ...filterValues(scope, filter), ids });
    return rows.map(finishedRow);
  }

  async move({ finishedUntil }: ReplayScope, ids: readonly MessageId[]): Promise<number> {
    return await countChanged(ids, async (part) => {
      const [row] = await this.#runner.run(this.#sql.move, { finishedUntil, ids: part });
      return Number(row?.moved ?? 0);
    });
  }

  async untried(ids: readonly MessageId[]): Promise<number> {
    const [row] = await this.#runner.run(this.#sql.untried, { ids });
    return Number(row?.untried ?? 0);
  }
}

function filterValues({ finishedUntil }: ReplayScope, filter: ReplayFilter): Values {
  const { state = null, topics = null, createdAfter = null, createdBefore = null } = filter;
  return { finishedUntil, topics, createdAfter, createdBefore, state };
}

/** The statements of retention. Positions are a time and a tie, as texts. */
export interface RetentionStatements<S> {
  /** The newest row of each state that is older than `bound` ms: its `state`, `time` and `tie`. */
  readonly outboxByAge: S;
  readonly inboxByAge: S;
  /** The newest row of each state with `bound` newer ones. */
  readonly outboxByCount: S;
  /** Deletes up to `limit` rows after a position, up to another. Answers how many it `found` and `deleted`, and the last position. */
  readonly deleteSent: S;
  readonly deleteDead: S;
  readonly deleteInbox: S;
  /** The position of the first row after a position, up to another. */
  readonly nextSent: S;
  readonly nextDead: S;
  readonly nextInbox: S;
  readonly dialect: {
    /** A time before every row. */
    readonly firstTime: string;
    /** Most rows of one batch. */
    readonly maxRows: number;
  };
}

/** Deletes finished rows batch by batch, along the index that holds them in order. */
export class SqlRetention<S> implements RetentionStore {
  readonly #runner: StatementRunner<S>;
  readonly #sql: RetentionStatements<S>;
  /** Most rows of the next batch: one behind a refused row, and with each batch that is deleted twice as many. */
  #size = Number.POSITIVE_INFINITY;

  constructor(runner: StatementRunner<S>, sql: RetentionStatements<S>) {
    this.#runner = runner;
    this.#sql = sql;
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
    const most = Math.min(limit, this.#sql.dialect.maxRows);
    const rows = Math.min(most, this.#size);
    const bounds = this.#boundsOf(range);
    let row: Row | undefined;
    try {
      [row] = await this.#runner.run(this.#statements(range).remove, { ...bounds, limit: rows });
    } catch (error) {
      if (!isRefused(error)) throw error;
      // Half as many, until the refused one is alone: rows in front of it are deleted on the way.
      this.#size = Math.ceil(rows / 2);
      return rows > 1 ? await this.deleteBatch(range, limit) : await this.#passOver(range, bounds, error);
    }
    this.#size = rows < most ? rows * 2 : Number.POSITIVE_INFINITY;
    // A batch that was not filled has come to the end; what others held locked is left to the next sweep.
    if (row === undefined || Number(row.found) < rows) return { deleted: Number(row?.deleted ?? 0), rest: null };
    return { deleted: Number(row.deleted), rest: { ...range, from: [row.time as string, row.tie as string] } };
  }

  async #passOver(range: RetentionRange, bounds: Values, refusal: StoreError) {
    const [next] = await this.#runner.run(this.#statements(range).next, bounds);
    const rest = next === undefined ? null : { ...range, from: [next.time as string, next.tie as string] };
    return { deleted: 0, rest, refusal: refusal.message };
  }

  async #newest(policy: RetentionPolicy): Promise<readonly Row[]> {
    const { outboxByCount, outboxByAge, inboxByAge } = this.#sql;
    if (policy.kind === "COUNT") return await this.#runner.run(outboxByCount, { bound: policy.maxCount });
    if (policy.maxAgeMs > OLDEST_MS) return [];
    const statement = policy.table === "outbox" ? outboxByAge : inboxByAge;
    return await this.#runner.run(statement, { bound: policy.maxAgeMs });
  }

  #boundsOf({ table, from, until }: RetentionRange): Values {
    const [fromTime, fromTie] = from ?? [this.#sql.dialect.firstTime, FIRST_TIE[table]];
    const [untilTime, untilTie] = until;
    return { fromTime, fromTie, untilTime, untilTie };
  }

  #statements({ table, state }: RetentionRange): { readonly remove: S; readonly next: S } {
    const { deleteInbox, deleteSent, deleteDead, nextInbox, nextSent, nextDead } = this.#sql;
    if (table === "inbox") return { remove: deleteInbox, next: nextInbox };
    return state === "sent" ? { remove: deleteSent, next: nextSent } : { remove: deleteDead, next: nextDead };
  }
}

/**
 * A thousand years: nothing is that old. Times of SQL Server begin with the year 1, those of PostgreSQL with 4713 BC, and an age that reaches
 * past that is an error.
 */
const OLDEST_MS = 1000 * 365.25 * 86_400_000;

/** Before every row. */
const FIRST_TIE = { outbox: "0", inbox: "00000000-0000-0000-0000-000000000000" } as const;

/** Finished rows that one index holds in the order in which retention deletes them. */
export interface FinishedRows {
  readonly table: string;
  readonly id: string;
  readonly state: string;
  /** Finished states as SQL literals: a parameter in their place would keep the database from the partial (filtered) index. */
  readonly states: string;
  /** The time that counts, and what orders rows of the same time: together the position of a row. */
  readonly time: string;
  readonly tie: string;
  readonly tieType: string;
}

/** How a database writes them. */
interface Dialect {
  readonly text: (literal: string) => string;
  readonly uuidType: string;
}

/** A full scan of an index of many million entries, which a large `maxCount` takes once a sweep. */
export const COUNT_TIMEOUT_MS = 300_000;

/** @param names already quoted */
export function finishedRows(names: TableNames, { text, uuidType }: Dialect) {
  const outbox = (state: "sent" | "dead"): FinishedRows => ({
    table: names.outboxTable,
    id: names.outbox.id,
    state: names.outbox.state,
    states: `(${text(state)})`,
    time: names.outbox.updatedAt,
    tie: names.outbox.sequence,
    tieType: "bigint",
  });
  const inbox: FinishedRows = {
    table: names.inboxTable,
    id: names.inbox.id,
    state: names.inbox.state,
    states: `(${text("processed")}, ${text("dead")})`,
    time: names.inbox.createdAt,
    tie: names.inbox.id,
    tieType: uuidType,
  };
  return { sent: outbox("sent"), dead: outbox("dead"), inbox };
}
