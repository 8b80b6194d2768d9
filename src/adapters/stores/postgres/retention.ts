import type { RetentionPolicy, RetentionRange, RetentionStore } from "../../../ports/finishedRows.ts";
import type { PostgresPool, Row, Statement } from "./pool.ts";
import type { RetentionStatements } from "./retentionSql.ts";

/** Deletes finished rows on PostgreSQL: one statement a batch, along the index that holds them in order. */
export class PostgresRetention implements RetentionStore {
  readonly #pool: PostgresPool;
  readonly #sql: RetentionStatements;

  constructor(pool: PostgresPool, statements: RetentionStatements) {
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
    const from = range.from ?? START[range.table];
    const [row] = await this.#pool.run(this.#statement(range), [limit, ...from, ...range.until]);
    // A batch that was not filled has come to the end; what others held locked is left to the next sweep.
    if (row === undefined || Number(row.found) < limit) return { deleted: Number(row?.deleted ?? 0), rest: null };
    return { deleted: Number(row.deleted), rest: { ...range, from: [row.time as string, row.tie as string] } };
  }

  async #newest(policy: RetentionPolicy): Promise<readonly Row[]> {
    if (policy.kind === "COUNT") return await this.#pool.run(this.#sql.outboxByCount, [policy.maxCount]);
    if (policy.maxAgeMs > OLDEST_MS) return [];
    const statement = policy.table === "outbox" ? this.#sql.outboxByAge : this.#sql.inboxByAge;
    return await this.#pool.run(statement, [policy.maxAgeMs]);
  }

  #statement({ table, state }: RetentionRange): Statement {
    if (table === "inbox") return this.#sql.deleteInbox;
    return state === "sent" ? this.#sql.deleteSent : this.#sql.deleteDead;
  }
}

/** A thousand years: nothing is that old. Times of PostgreSQL end at 4713 BC, and an age that reaches past that is an error. */
const OLDEST_MS = 1000 * 365.25 * 86_400_000;

/** Positions before every row. */
const START = {
  outbox: ["-infinity", "0"],
  inbox: ["-infinity", "00000000-0000-0000-0000-000000000000"],
} as const satisfies Record<RetentionRange["table"], RetentionRange["from"]>;
