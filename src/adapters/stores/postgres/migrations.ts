import { join } from "node:path";
import type pg from "pg";
import Postgrator from "postgrator";
import { ConfigError, errorText } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import { sleep } from "../../../time/wait.ts";
import type { Row } from "../sql/rows.ts";
import { migrationsDirectory } from "../sql/schema.ts";
import { hasSqlState, toStoreError } from "./errors.ts";
import type { PostgresPool } from "./pool.ts";
import { settingProblems } from "./schema.ts";

/** The last migration that makes a table: later ones run on tables in use. */
const TABLES_VERSION = 2;
const MISSING_RIGHT = "42501";

/** @param run how a file is run */
function migrationsOf(schema: string, client: pg.ClientBase, run: (script: string) => Promise<void>): Postgrator {
  return new Postgrator({
    driver: "pg",
    migrationPattern: join(migrationsDirectory("postgresql"), "*.sql"),
    // Qualified, so that a history in another schema of the database is never taken for ours.
    schemaTable: `${schema}.svc_migrations`,
    newline: "LF",
    // The schema exists. The statement would still require the right to create one in the database.
    execQuery: async (query) => (/^\s*CREATE SCHEMA IF NOT EXISTS/.test(query) ? { rows: [] } : client.query(query)),
    execSqlScript: run,
  });
}

const nameOf = ({ version, name }: Postgrator.Migration): string => `${version} ${name}`;

export async function migrate(pool: PostgresPool, schema: string | undefined, log: Log) {
  const problems = await settingProblems(pool);
  if (problems.length > 0) throw new ConfigError(problems);
  try {
    const { applied, isComplete, ...found } = await migrateAtOnce(pool, schema);
    return isComplete ? applied : await migrateOnline(pool, found.schema, log);
  } catch (error) {
    if (!hasSqlState(error, MISSING_RIGHT)) throw error;
    const message = `${errorText(error)}: run \`svc migrate\` as the owner of the tables, with CREATE on their schema, and set database.migrate: false for this user`;
    throw new ConfigError([{ path: "database.username", message }]);
  }
}

/** Without tables: all files in one transaction. Else reads only the history. */
async function migrateAtOnce(pool: PostgresPool, named: string | undefined) {
  // Replicas that start together wait for the lock, and then find nothing to do. It belongs to the transaction, so it
  // also works behind a transaction pooler.
  return await pool.transaction({ name: "migrate" }, async (client) => {
    await liftTimeLimits(client, true);
    await client.query("SELECT pg_advisory_xact_lock(hashtextextended('svc migrations', 0))");
    if (named !== undefined) await makeSchema(client, named);
    const searched = named ?? ((await client.query(PLACE)).rows[0] as Row | undefined)?.schema;
    if (searched !== undefined) {
      await client.query("SELECT set_config('search_path', $1, true)", [`"${searched}"`]);
    }
    const { schema, is_closed } = (await client.query(HISTORY)).rows[0] as Row & { readonly schema: string | null };
    if (schema === null) {
      throw new ConfigError([
        {
          path: "database.url",
          message: `${searched === undefined ? "a schema of the search_path" : `the schema "${searched}"`} does not exist for this user: create it or grant USAGE on it, or name another in currentSchema`,
        },
      ]);
    }
    // It fails in the server's words; what follows would take the history for missing.
    if (is_closed === true) await client.query(`TABLE "${schema}".svc_migrations`);
    // One by one: Citus sends the text of a query to its nodes, which take one statement at a time.
    const run = async (script: string) => {
      for (const statement of statementsOf(script)) await client.query(statement);
    };
    const migrations = migrationsOf(schema, client, run);
    const version = await migrations.getDatabaseVersion();
    const areTablesThere = version >= TABLES_VERSION;
    const applied = await migrations.migrate(areTablesThere ? String(version) : "max");
    const isComplete = !areTablesThere || version >= (await migrations.getMaxVersion());
    return { schema, applied: applied.map(nameOf), isComplete };
  });
}

/** @throws ConfigError when the schema is missing and the user may not create it */
async function makeSchema(client: pg.ClientBase, schema: string): Promise<void> {
  const [missing] = (await client.query<Row>(MISSING_SCHEMA, [schema])).rows;
  if (missing === undefined) return;
  if (missing.may_create === true) await client.query(missing.statement as string);
  else {
    const message = `the schema "${schema}" does not exist, and this user may not create it: let the owner of the database run one of\n      ${missing.statement}\n      ${missing.grant}`;
    throw new ConfigError([{ path: "database.username", message }]);
  }
}

/** The tables are in use: file by file, each statement in a transaction of its own. */
async function migrateOnline(pool: PostgresPool, schema: string, log: Log): Promise<readonly string[]> {
  const clients: pg.Client[] = [];
  const connect = async () => {
    const client = await pool.connections.dedicated();
    clients.push(client);
    return client;
  };
  try {
    await takeOnlineLock(await connect(), log);
    const client = await connect();
    await liftTimeLimits(client, false);
    const run = async (script: string) => {
      for (const statement of await runOnline(client, script, schema)) {
        log.warn(
          { statement },
          "a statement of a migration was skipped: an open transaction locks its table, or an earlier statement that makes its column was skipped. When that transaction has ended, run the skipped statements yourself, in the order of the log",
        );
      }
    };
    return (await migrationsOf(schema, client, run).migrate()).map(nameOf);
  } catch (error) {
    throw error instanceof ConfigError ? error : toStoreError("migrate", error);
  } finally {
    await Promise.all(clients.map((client) => client.end().catch(() => {})));
  }
}

/** No row for a schema that is there. */
const MISSING_SCHEMA = `SELECT format('CREATE SCHEMA %I AUTHORIZATION %I;', $1::text, current_user) AS statement,
  format('GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user) AS grant,
  has_database_privilege(current_database(), 'CREATE') AS may_create
WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`;

/** The schema of the history of migrations on the search path; no row without one. */
const PLACE = `SELECT n.nspname::text AS schema FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass('svc_migrations')`;

/** The first schema of the search path, and whether it has a history of migrations that may not be read. */
const HISTORY = `SELECT current_schema()::text AS schema,
  NOT has_table_privilege(to_regclass(quote_ident(current_schema()) || '.svc_migrations'), 'SELECT') AS is_closed`;

interface OnlineStatement {
  readonly text: string;
  /** It builds or drops an index without blocking anybody; anything else takes no time, but an exclusive lock. */
  readonly isConcurrent: boolean;
  /** The index that it makes, with its schema. */
  readonly makes?: string | undefined;
}

/**
 * The statements of a migration, for tables in use: `CONCURRENTLY` blocks no writer. Plain `CREATE INDEX` blocks all of
 * them while it runs, and while it waits for the oldest.
 *
 * @param script a migration file after the first two, which make the tables
 * @param schema of the tables, plain
 */
export function onlineStatements(script: string, schema: string): readonly OnlineStatement[] {
  return statementsOf(script).map((statement) => {
    const text = statement
      .replace(/^CREATE INDEX (?:IF NOT EXISTS )?(\w+) ON /, "CREATE INDEX CONCURRENTLY IF NOT EXISTS $1 ON ")
      .replace(/^DROP INDEX (?:IF EXISTS )?/, "DROP INDEX CONCURRENTLY IF EXISTS ")
      .replace(
        /^(CREATE INDEX .*? ON|DROP INDEX .*EXISTS|(?:ALTER|CREATE) TABLE(?: IF NOT EXISTS)?) (\w+)/,
        `$1 "${schema}".$2`,
      );
    const [, made] = /^CREATE INDEX CONCURRENTLY IF NOT EXISTS (\w+)/.exec(text) ?? [];
    return {
      text,
      isConcurrent: text.includes(" INDEX CONCURRENTLY "),
      makes: made === undefined ? undefined : `"${schema}".${made}`,
    };
  });
}

/** The statements of a migration, without comments: its files hold no semicolon within a statement. */
function statementsOf(script: string): readonly string[] {
  const statements = script.replace(/--.*$/gm, "").split(";");
  return statements.map((statement) => statement.trim()).filter((statement) => statement !== "");
}

/**
 * Runs a migration on tables in use. Any point may end a run: the next one skips finished statements and remakes an
 * unfinished index.
 *
 * @param client outside any transaction
 * @returns the statements to run later: the first that did not get its lock since a transaction (a backup, a report)
 *   kept the table open, or that needs such a statement of an earlier migration; and all behind it
 */
async function runOnline(client: pg.ClientBase, script: string, schema: string): Promise<readonly string[]> {
  const statements = onlineStatements(script, schema);
  for (const [n, statement] of statements.entries()) {
    if (statement.makes !== undefined && (await isUnfinished(client, statement.makes))) {
      await client.query(`DROP INDEX CONCURRENTLY IF EXISTS ${statement.makes}`);
    }
    const hasRun = statement.isConcurrent ? runUnlessColumnMissing : runBriefly;
    if (!(await hasRun(client, statement.text))) return statements.slice(n).map(({ text }) => text);
  }
  return [];
}

/** Writers queue behind a waiting statement: it waits briefly, and retries. @returns whether it ran */
async function runBriefly(client: pg.ClientBase, text: string): Promise<boolean> {
  for (let tries = 1; ; tries += 1) {
    try {
      // As one query both are one transaction, which also works behind a pooler.
      await client.query(`SET LOCAL lock_timeout = '100ms'; ${text}`);
      return true;
    } catch (error) {
      const { code } = error as { code?: unknown };
      // An earlier run has renamed it.
      if ((code === UNDEFINED_COLUMN || code === DUPLICATE_COLUMN) && text.includes(" RENAME COLUMN ")) return true;
      if (code !== LOCK_NOT_AVAILABLE) throw error;
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
const DUPLICATE_COLUMN = "42701";
const LOCK_TRIES = 20;

/**
 * Waits for the lock of migrations on tables in use. It belongs to a transaction that stays open, so it works behind a
 * transaction pooler. No statement waits: its snapshot would block the index build of the lock's owner.
 *
 * @param client for nothing else until its transaction has ended
 */
async function takeOnlineLock(client: pg.ClientBase, log: Log): Promise<void> {
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
 * @param isLocal until the transaction ends, not the session
 * @throws ConfigError for a session behind a pooler, which would give it to others
 */
async function liftTimeLimits(client: pg.ClientBase, isLocal: boolean): Promise<void> {
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

async function isUnfinished(client: pg.ClientBase, index: string): Promise<boolean> {
  const { rows } = await client.query("SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid", [
    index,
  ]);
  return rows.length > 0;
}
