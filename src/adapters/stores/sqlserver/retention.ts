import type { RetentionStore } from "../../../ports/finishedRows.ts";
import { RangeRetention } from "../sql/rangeRetention.ts";
import type { SqlServerPool } from "./pool.ts";
import type { RetentionStatements } from "./retentionSql.ts";
import type { Statement } from "./statement.ts";

/** Deletes finished rows on SQL Server: one transaction a batch. */
export function sqlServerRetention(pool: SqlServerPool, statements: RetentionStatements): RetentionStore {
  return new RangeRetention<Statement>({
    statements,
    start: START,
    mostRows: MOST_ROWS,
    newest: (statement, bound) => pool.run(statement, { bound }),
    deleteOldest: async (statement, limit, [fromTime, fromTie], [untilTime, untilTie]) => {
      const [row] = await pool.run(statement, { limit, fromTime, fromTie, untilTime, untilTie });
      return row;
    },
    next: async (statement, [fromTime, fromTie], [untilTime, untilTie]) =>
      (await pool.run(statement, { fromTime, fromTie, untilTime, untilTie }))[0],
  });
}

/** A statement that locks 5,000 rows of an index may lock the whole table instead, and everybody out of it. */
const MOST_ROWS = 4000;

const START = {
  outbox: ["0001-01-01T00:00:00Z", "0"],
  inbox: ["0001-01-01T00:00:00Z", "00000000-0000-0000-0000-000000000000"],
} as const;
