import type pg from "pg";
import { ConfigError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import { sleep } from "../../../time/wait.ts";

interface OnlineStatement {
  readonly text: string;
  /** The index that it makes, with its schema. */
  readonly makes?: string;
  /** It takes no time, but an exclusive lock: it must not wait long for it. */
  readonly locksTable?: true;
  /** The column that it renames, the new name, and its table with the schema. It has nothing to do if that is done. */
  readonly renames?: { readonly table: string; readonly from: string; readonly to: string };
}

/**
 * The statements of a migration, for tables in use: indexes are made and dropped `CONCURRENTLY`, which blocks no
 * writer. Plain `CREATE INDEX` blocks all writers while it runs, and while it waits for the oldest of them.
 *
 * @param script a migration file after the first two, which make the tables
 * @param schema of the tables, plain
 * @throws Error for a statement that would block writers
 */
export function onlineStatements(script: string, schema: string): readonly OnlineStatement[] {
  return statementsOf(script).map((statement) => onlineStatement(statement, (name) => `"${schema}".${name}`));
}

/** The statements of a migration, without comments: its files hold no semicolon within a statement. */
export function statementsOf(script: string): readonly string[] {
  const statements = script.replace(/--.*$/gm, "").split(";");
  return statements.map((statement) => statement.trim()).filter((statement) => statement !== "");
}

function onlineStatement(statement: string, qualified: (name: string) => string): OnlineStatement {
  const [, made = "", indexed = "", columns = ""] =
    /^CREATE INDEX (?:IF NOT EXISTS )?(\w+) ON (\w+)(\s[\s\S]*)$/.exec(statement) ?? [];
  if (made !== "") {
    const text = `CREATE INDEX CONCURRENTLY IF NOT EXISTS ${made} ON ${qualified(indexed)}${columns}`;
    return { text, makes: qualified(made) };
  }
  const [, created = "", definition = ""] = /^CREATE TABLE IF NOT EXISTS (\w+)(\s[\s\S]*)$/.exec(statement) ?? [];
  // A new table is not used yet. One with a foreign key would lock the table that it references.
  if (created !== "" && !/\bREFERENCES\b/i.test(definition)) {
    return { text: `CREATE TABLE IF NOT EXISTS ${qualified(created)}${definition}` };
  }
  const [, dropped = ""] = /^DROP INDEX (?:IF EXISTS )?(\w+)$/.exec(statement) ?? [];
  if (dropped !== "") return { text: drop(qualified(dropped)) };
  // A column without a default is only noted in the catalogue, and so is a constraint for new rows.
  const [, table = "", change = ""] =
    /^ALTER TABLE (\w+) (ALTER COLUMN \w+ DROP NOT NULL|ADD COLUMN IF NOT EXISTS \w+ \w+|DROP CONSTRAINT IF EXISTS \w+, ADD CONSTRAINT \w+ CHECK \([^()]+\) NOT VALID)$/.exec(
      statement,
    ) ?? [];
  if (table !== "") return { text: `ALTER TABLE ${qualified(table)} ${change}`, locksTable: true };
  const [, of = "", from = "", to = ""] = /^ALTER TABLE (\w+) RENAME COLUMN (\w+) TO (\w+)$/.exec(statement) ?? [];
  if (of !== "") {
    const text = `ALTER TABLE ${qualified(of)} RENAME COLUMN ${from} TO ${to}`;
    return { text, locksTable: true, renames: { table: qualified(of), from, to } };
  }
  throw new Error(
    `a migration of tables in use may make tables, make and drop indexes, add columns without a default, rename columns, drop NOT NULL, and replace constraints by NOT VALID ones; anything else would hold up writers: ${statement}`,
  );
}

/**
 * Runs a migration on tables in use. It leaves what an earlier run has done, and makes an unfinished index anew, so
 * that a run may end at any point.
 *
 * @param client outside any transaction
 * @returns the statements to run later: the first that did not get its lock, since a transaction (a backup, a report)
 *   kept the table open, or that needs such a statement of an earlier migration; and those behind it, which may need it
 * @throws what the driver throws
 */
export async function runOnline(client: pg.ClientBase, script: string, schema: string): Promise<readonly string[]> {
  const postponed: string[] = [];
  for (const { text, makes, locksTable, renames } of onlineStatements(script, schema)) {
    if (renames !== undefined && (await isRenamed(client, renames))) continue;
    if (postponed.length > 0) {
      postponed.push(text);
      continue;
    }
    if (makes !== undefined && (await isUnfinished(client, makes))) await client.query(drop(makes));
    const hasRun = await (locksTable === true ? runBriefly(client, text) : runUnlessColumnMissing(client, text));
    if (!hasRun) postponed.push(text);
  }
  return postponed;
}

/** Writers queue behind a waiting statement: it waits briefly, and retries. @returns whether it ran */
async function runBriefly(client: pg.ClientBase, text: string): Promise<boolean> {
  for (let tries = 1; ; tries += 1) {
    try {
      // As one query both are one transaction, which also works behind a pooler.
      await client.query(`SET LOCAL lock_timeout = '100ms'; ${text}`);
      return true;
    } catch (error) {
      if ((error as { code?: unknown }).code !== LOCK_NOT_AVAILABLE) throw error;
      if (tries >= LOCK_TRIES) return false;
      await sleep(LOCK_INTERVAL_MS);
    }
  }
}

/** An earlier migration may have left the column to the operator. @returns whether it ran */
async function runUnlessColumnMissing(client: pg.ClientBase, text: string): Promise<boolean> {
  try {
    await client.query(text);
    return true;
  } catch (error) {
    if ((error as { code?: unknown }).code !== UNDEFINED_COLUMN) throw error;
    return false;
  }
}

const LOCK_NOT_AVAILABLE = "55P03";
const UNDEFINED_COLUMN = "42703";
const LOCK_TRIES = 20;

/**
 * Waits for the lock under which migrations run on tables in use. It belongs to a transaction that stays open, so it
 * also works behind a transaction pooler. No statement waits: its snapshot would block the index build of the lock's
 * owner.
 *
 * @param client for nothing else until its transaction has ended
 */
export async function takeOnlineLock(client: pg.ClientBase, log: Log): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    // Whatever the role's default is: a transaction that keeps its snapshot would be waited for too.
    await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
    await liftTimeLimits(client, true);
    const { rows } = await client.query(
      "SELECT pg_try_advisory_xact_lock(hashtextextended('svc online migrations', 0)) AS taken",
    );
    if ((rows[0] as { taken: boolean } | undefined)?.taken === true) return;
    await client.query("ROLLBACK");
    if (tries === 1) log.info({}, "waiting for another process that migrates the tables");
    await sleep(LOCK_INTERVAL_MS);
  }
}

const LOCK_INTERVAL_MS = 250;

/**
 * Lifts the time limits of the role, the database or the server.
 *
 * @param isLocal until the transaction ends, not the session
 * @throws ConfigError for a session behind a pooler, which would give it to others
 */
export async function liftTimeLimits(client: pg.ClientBase, isLocal: boolean): Promise<void> {
  const { rows } = await client.query(`SELECT name, setting, pg_backend_pid() AS pid FROM ${TIME_LIMITS}`);
  const [limit] = rows as { name: string; setting: string; pid: number }[];
  // A pooler has made up the number that the driver knows.
  if (!isLocal && limit !== undefined && limit.pid !== (client as unknown as { processID: number }).processID) {
    const message = `${limit.name} is ${limit.setting} ms for this user and may end a migration, and a pooler keeps it from being lifted: run \`svc migrate\` past the pooler, or ALTER ROLE <user> SET ${limit.name} = 0;`;
    throw new ConfigError([{ path: "database.url", message }]);
  }
  await client.query(`SELECT set_config(name, '0', ${isLocal}) FROM ${TIME_LIMITS}`);
}

const TIME_LIMITS =
  "pg_settings WHERE setting <> '0' AND name IN ('statement_timeout', 'transaction_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')";

const drop = (index: string): string => `DROP INDEX CONCURRENTLY IF EXISTS ${index}`;

async function isRenamed(
  client: pg.ClientBase,
  { table, from, to }: NonNullable<OnlineStatement["renames"]>,
): Promise<boolean> {
  const { rows } = await client.query(
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname IN ($2, $3) AND NOT attisdropped",
    [table, from, to],
  );
  return rows.length !== 1 || (rows[0] as { attname: string }).attname !== from;
}

async function isUnfinished(client: pg.ClientBase, index: string): Promise<boolean> {
  const { rows } = await client.query("SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid", [
    index,
  ]);
  return rows.length > 0;
}
