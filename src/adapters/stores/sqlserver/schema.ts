import { join } from "node:path";
import Postgrator from "postgrator";
import { ConfigError, type ConfigProblem, StoreError } from "../../../model/errors.ts";
import type { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../../model/rows.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { SchemaStore } from "../../../ports/store.ts";
import { type CheckedTable, missingColumns, missingTable } from "../sql/columnCheck.ts";
import { migrationsDirectory } from "../sql/migrations.ts";
import type { TableNames } from "../sql/names.ts";
import type { Executor, SqlServerPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** Type and constraint of each column, for the `ALTER TABLE` statements that the column check proposes. */
const INBOX_DEFINITIONS = {
  id: "uniqueidentifier NOT NULL DEFAULT NEWID() UNIQUE NONCLUSTERED",
  source: "nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N''",
  idempotencyKey: "nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT CONVERT(nvarchar(36), NEWID())",
  aggregateId: "nvarchar(800) COLLATE Latin1_General_100_BIN2 NULL",
  eventType: "nvarchar(400) COLLATE Latin1_General_100_BIN2 NULL",
  payload: "nvarchar(max) NOT NULL DEFAULT N''",
  state: "nvarchar(20) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'pending'",
  createdAt: "datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()",
  processedAt: "datetimeoffset(7) NULL",
  claimedAt: "datetimeoffset(7) NULL",
  claimToken: "uniqueidentifier NULL",
  leaseExpiresAt: "datetimeoffset(7) NULL",
  correlationId: "nvarchar(400) NULL",
  consumption: "nvarchar(20) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'push'",
  scheduledAt: "datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()",
  attempt: "int NOT NULL DEFAULT 0",
  lastError: "nvarchar(max) NULL",
  headers: "nvarchar(max) NOT NULL DEFAULT N'{}'",
} as const satisfies Record<keyof typeof INBOX_COLUMNS, string>;

const OUTBOX_DEFINITIONS = {
  id: "uniqueidentifier NOT NULL DEFAULT NEWID() UNIQUE NONCLUSTERED",
  topic: "nvarchar(1000) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N''",
  key: "nvarchar(800) COLLATE Latin1_General_100_BIN2 NULL",
  aggregateType: "nvarchar(400) NULL",
  payload: "nvarchar(max) NOT NULL DEFAULT N''",
  headers: "nvarchar(max) NOT NULL DEFAULT N'{}'",
  state: "nvarchar(20) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'pending'",
  attempt: "int NOT NULL DEFAULT 0",
  maxAttempts: "int NOT NULL DEFAULT 5",
  scheduledAt: "datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()",
  createdAt: "datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()",
  updatedAt: "datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()",
  claimedAt: "datetimeoffset(7) NULL",
  claimToken: "uniqueidentifier NULL",
  leaseExpiresAt: "datetimeoffset(7) NULL",
  lastError: "nvarchar(max) NULL",
  sequence: "bigint NOT NULL IDENTITY (1, 1)",
} as const satisfies Record<keyof typeof OUTBOX_COLUMNS, string>;

/** An index on a large table takes its time, and so does the wait for the replica that makes it. */
const MIGRATION_TIMEOUT_MS = 3_600_000;

/** Migrations and the start-up check of the tables. */
export class SqlServerSchema implements SchemaStore {
  readonly #pool: SqlServerPool;
  readonly #names: TableNames;
  readonly #log: Log;

  /** @param names the plain (not yet quoted) names */
  constructor(pool: SqlServerPool, names: TableNames, log: Log) {
    this.#pool = pool;
    this.#names = names;
    this.#log = log;
  }

  async migrate(): Promise<readonly string[]> {
    // One transaction holds the lock and all files: replicas that start together wait here and then find nothing to do.
    return await this.#pool.longTransaction("migrate", async (transaction) => {
      await lock(transaction);
      const { database, schema } = await whereTablesGo(transaction);
      const migrations = new Postgrator({
        driver: "mssql",
        migrationPattern: join(migrationsDirectory("sqlserver"), "*.sql"),
        // Both are looked up in text literals: a history in another schema is never taken for ours. The table itself stands unqualified,
        // as those of the migrations do, and so lies where they lie.
        database: database.replaceAll("'", "''"),
        currentSchema: schema.replaceAll("'", "''"),
        schemaTable: "svc_migrations",
        newline: "LF",
        execQuery: async (text) => ({ rows: await transaction.run(migration(withCapitals(text))) }),
      });
      const applied = await migrations.migrate();
      return applied.map(({ version, name }) => `${version} ${name}`);
    });
  }

  async checkColumns(): Promise<void> {
    const { inbox, inboxTable, outbox, outboxTable } = this.#names;
    const problems = [
      ...(await this.#missing({ which: "inbox", name: this.#quoted(inboxTable) }, inbox, INBOX_DEFINITIONS)),
      ...(await this.#missing({ which: "outbox", name: this.#quoted(outboxTable) }, outbox, OUTBOX_DEFINITIONS)),
    ];
    if (problems.length > 0) throw new ConfigError(problems);
    await this.#checkUniqueKey();
  }

  async #missing<K extends string>(
    table: CheckedTable,
    names: Readonly<Record<K, string>>,
    definitions: Readonly<Record<K, string>>,
  ): Promise<readonly ConfigProblem[]> {
    const columns = Object.entries(names) as [K, string][];
    const rows = await this.#pool.run(MISSING_COLUMNS, {
      table: table.name,
      columns: JSON.stringify(columns.map(([, column]) => ({ name: column }))),
    });
    if (rows.some((row) => row.table_id === null)) return [missingTable(table)];
    const missing = new Set(rows.map((row) => row.name));
    return missingColumns(
      table,
      columns.filter(([, column]) => missing.has(column)),
      (key, column) => `ALTER TABLE ${table.name} ADD [${column}] ${definitions[key]};`,
    );
  }

  /** Without this key nothing fails, but a message that is received twice at the same moment is stored twice. */
  async #checkUniqueKey(): Promise<void> {
    const table = this.#quoted(this.#names.inboxTable);
    const { source, idempotencyKey } = this.#names.inbox;
    const keys = await this.#pool.run(UNIQUE_KEY, { table, source, idempotencyKey });
    if (keys.length > 0) return;
    this.#log.warn(
      { remedy: `ALTER TABLE ${table} ADD UNIQUE NONCLUSTERED ([${source}], [${idempotencyKey}]);` },
      "the inbox table has no unique key on source and idempotency key: a message that is received twice may be stored twice",
    );
  }

  #quoted(table: string): string {
    return this.#names.schema === undefined ? `[${table}]` : `[${this.#names.schema}].[${table}]`;
  }
}

async function lock(transaction: Executor): Promise<void> {
  const [answer] = await transaction.run(LOCK);
  const result = answer?.result as number;
  if (result >= 0) return;
  // -3 is a deadlock victim; the transaction is begun again for it.
  const code = result === -3 ? "contention" : "other";
  throw new StoreError(code, `migrate: sp_getapplock answered ${result}`);
}

/** @throws ConfigError when the user's default schema does not exist */
async function whereTablesGo(transaction: Executor): Promise<{ readonly database: string; readonly schema: string }> {
  const [row] = await transaction.run(DEFAULT_SCHEMA);
  const { database, schema } = row as { database: string; schema: string | null };
  if (schema !== null) return { database, schema };
  const message = "the user has no default schema: set one with ALTER USER ... WITH DEFAULT_SCHEMA = dbo";
  throw new ConfigError([{ path: "database.username", message }]);
}

/** The names in INFORMATION_SCHEMA, as they must be written where the database's collation minds the letter case. */
function withCapitals(text: string): string {
  return text.replace(/\b(?:table_catalog|table_schema|table_name|column_name)\b/g, (name) => name.toUpperCase());
}

function migration(text: string): Statement {
  return { name: "migrate", text, parameters: {}, timeoutMs: MIGRATION_TIMEOUT_MS };
}

const LOCK: Statement = {
  name: "migrate.lock",
  text: `
DECLARE @result int;
EXEC @result = sp_getapplock @Resource = N'svc migrations', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = -1;
SELECT @result AS result;`,
  parameters: {},
  timeoutMs: MIGRATION_TIMEOUT_MS,
};

const DEFAULT_SCHEMA: Statement = {
  name: "migrate.default schema",
  text: "SELECT DB_NAME() AS [database], SCHEMA_NAME() AS [schema];",
  parameters: {},
};

/** The server compares the names itself, by the rules of the database: in most of them the letter case does not count. */
const MISSING_COLUMNS: Statement = {
  name: "schema.columns",
  text: `
SELECT OBJECT_ID(@table) AS table_id, c.name
FROM OPENJSON(@columns) WITH (name nvarchar(128) '$.name') c
WHERE COL_LENGTH(@table, c.name) IS NULL;`,
  parameters: { table: "text", columns: "longText" },
};

/** Keys of exactly the two columns, in any order, that hold for every row. */
const UNIQUE_KEY: Statement = {
  name: "schema.unique key",
  text: `
SELECT i.name
FROM sys.indexes i
JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
WHERE i.object_id = OBJECT_ID(@table) AND i.is_unique = 1 AND i.is_disabled = 0 AND i.has_filter = 0 AND k.is_included_column = 0
GROUP BY i.name
HAVING COUNT(*) = 2
  AND SUM(CASE WHEN COL_NAME(OBJECT_ID(@table), k.column_id) IN (@source, @idempotencyKey) THEN 1 ELSE 0 END) = 2;`,
  parameters: { table: "text", source: "text", idempotencyKey: "text" },
};
