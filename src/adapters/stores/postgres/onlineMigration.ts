import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";

/** One statement of a migration as it runs on tables in use. */
export interface OnlineStatement {
  /** The index, with its schema. */
  readonly index: string;
  readonly isNew: boolean;
  readonly text: string;
}

/**
 * The statements of a migration, for tables that applications write to: indexes are made and dropped `CONCURRENTLY`,
 * which holds up nobody. As it stands `CREATE INDEX` stops all writers while it runs, and before that while it waits
 * for the oldest of them.
 *
 * @param script a migration file behind the first two, which make the tables
 * @param schema of the tables, plain
 * @throws Error for any other statement
 */
export function onlineStatements(script: string, schema: string): readonly OnlineStatement[] {
  const qualified = (name: string) => `"${schema}".${name}`;
  const statements = script.replace(/--.*$/gm, "").split(";");
  return statements
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "")
    .map((statement) => {
      const [, made = "", table = "", rest = ""] =
        /^CREATE INDEX (?:IF NOT EXISTS )?(\w+) ON (\w+)(\s[\s\S]*)$/.exec(statement) ?? [];
      const text = `CREATE INDEX CONCURRENTLY IF NOT EXISTS ${made} ON ${qualified(table)}${rest}`;
      if (made !== "") return { index: qualified(made), isNew: true, text };
      const [, dropped] = /^DROP INDEX (?:IF EXISTS )?(\w+)$/.exec(statement) ?? [];
      if (dropped !== undefined) return { index: qualified(dropped), isNew: false, text: drop(qualified(dropped)) };
      throw new Error(
        `a migration of tables in use may make and drop indexes and nothing else, which would hold up writers: ${statement}`,
      );
    });
}

/**
 * Runs a migration on tables in use. What an earlier run has done is left as it is, and an index that was not finished
 * is made anew, so that a run may end at any point.
 *
 * @param client outside any transaction
 * @throws what the driver throws
 */
export async function runOnline(client: pg.ClientBase, script: string, schema: string): Promise<void> {
  for (const { index, isNew, text } of onlineStatements(script, schema)) {
    if (isNew && (await isUnfinished(client, index))) await client.query(drop(index));
    await client.query(text);
  }
}

/**
 * Waits for the lock under which migrations run on tables in use. It belongs to a transaction that stays open, so it
 * also works behind a pooler that hands out connections by transaction. Nobody waits inside a statement: that would
 * hold a snapshot, for whose end the index of the one that has the lock would wait.
 *
 * @param client for nothing else until its transaction has ended
 */
export async function takeOnlineLock(client: pg.ClientBase): Promise<void> {
  for (;;) {
    // Whatever the role's default is: a transaction that keeps its snapshot would be waited for too.
    await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
    await client.query("SET LOCAL idle_in_transaction_session_timeout = 0");
    const { rows } = await client.query(
      "SELECT pg_try_advisory_xact_lock(hashtextextended('svc online migrations', 0)) AS taken",
    );
    if ((rows[0] as { taken: boolean } | undefined)?.taken === true) return;
    await client.query("ROLLBACK");
    await sleep(LOCK_INTERVAL_MS);
  }
}

const LOCK_INTERVAL_MS = 250;

const drop = (index: string): string => `DROP INDEX CONCURRENTLY IF EXISTS ${index}`;

async function isUnfinished(client: pg.ClientBase, index: string): Promise<boolean> {
  const { rows } = await client.query("SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid", [
    index,
  ]);
  return rows.length > 0;
}
