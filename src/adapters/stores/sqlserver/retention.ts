import type { RetentionPolicy, RetentionRange, RetentionStore } from "../../../ports/finishedRows.ts";
import type { Row, SqlServerPool, Statement } from "./pool.ts";
import type { RetentionStatements } from "./retentionSql.ts";

/** Deletes finished rows on SQL Server: one transaction a batch, along the index that holds them in order. */
export class SqlServerRetention implements RetentionStore {
  readonly #pool: SqlServerPool;
  readonly #sql: RetentionStatements;

  constructor(pool: SqlServerPool, statements: RetentionStatements) {
    this.#pool = pool;
    this.#sql = statements;
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
  ): Promise<{ readonly deleted: number; readonly rest: RetentionRange | null }> {
    const rows = Math.min(limit, MOST_ROWS);
    const [fromTime, fromTie] = range.from ?? START[range.table];
    const [untilTime, untilTie] = range.until;
    const values = { limit: rows, fromTime, fromTie, untilTime, untilTie };
    const [row] = await this.#pool.run(this.#statement(range), values);
    // A batch that was not filled has come to the end; what others held locked is left to the next sweep.
    if (row === undefined || Number(row.found) < rows) return { deleted: Number(row?.deleted ?? 0), rest: null };
    return { deleted: Number(row.deleted), rest: { ...range, from: [row.time as string, row.tie as string] } };
  }

  async #newest(policy: RetentionPolicy): Promise<readonly Row[]> {
    if (policy.kind === "COUNT") return await this.#pool.run(this.#sql.outboxByCount, { kept: policy.maxCount });
    if (policy.maxAgeMs > OLDEST_MS) return [];
    const statement = policy.table === "outbox" ? this.#sql.outboxByAge : this.#sql.inboxByAge;
    return await this.#pool.run(statement, { ageMs: policy.maxAgeMs });
  }

  #statement({ table, state }: RetentionRange): Statement {
    if (table === "inbox") return this.#sql.deleteInbox;
    return state === "sent" ? this.#sql.deleteSent : this.#sql.deleteDead;
  }
}

/** A thousand years: nothing is that old. Times of SQL Server begin with the year 1, and an age that reaches past that is an error. */
const OLDEST_MS = 1000 * 365.25 * 86_400_000;

/** A statement that locks 5,000 rows of an index may lock the whole table instead, and everybody out of it. */
const MOST_ROWS = 4000;

/** Positions before every row. */
const START = {
  outbox: ["0001-01-01T00:00:00Z", "0"],
  inbox: ["0001-01-01T00:00:00Z", "00000000-0000-0000-0000-000000000000"],
} as const satisfies Record<RetentionRange["table"], RetentionRange["from"]>;
