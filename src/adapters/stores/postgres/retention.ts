import type { RetentionStore } from "../../../ports/finishedRows.ts";
import { RangeRetention } from "../sql/rangeRetention.ts";
import type { PostgresPool } from "./pool.ts";
import type { RetentionStatements } from "./retentionSql.ts";
import type { Statement } from "./statement.ts";

/** Deletes finished rows on PostgreSQL: one statement a batch. */
export function postgresRetention(pool: PostgresPool, statements: RetentionStatements): RetentionStore {
  return new RangeRetention<Statement>({
    statements,
    start: START,
    mostRows: Number.POSITIVE_INFINITY,
    newest: (statement, bound) => pool.run(statement, [bound]),
    deleteOldest: async (statement, limit, from, until) => {
      const [row] = await pool.run(statement, [limit, ...from, ...until]);
      return row;
    },
    next: async (statement, from, until) => (await pool.run(statement, [...from, ...until]))[0],
  });
}

const START = {
  outbox: ["-infinity", "0"],
  inbox: ["-infinity", "00000000-0000-0000-0000-000000000000"],
} as const;
