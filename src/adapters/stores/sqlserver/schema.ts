import { join } from "node:path";
import Postgrator from "postgrator";
import { ConfigError, StoreError } from "../../../model/errors.ts";
import { type INBOX_COLUMNS, type OUTBOX_COLUMNS, ROUTES_HASH_LENGTH } from "../../../model/rows.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Row } from "../sql/rows.ts";
import {
  type CheckedTable,
  type ColumnRule,
  type FoundColumn,
  LONGEST_ERROR,
  migrationsDirectory,
  type Obstacle,
  type Remedies,
  type SchemaDialect,
} from "../sql/schema.ts";
import { BINARY, COLLATED } from "./fragments.ts";
import type { SqlServerPool } from "./pool.ts";
import { type Statement, statement } from "./statement.ts";

/** An index on a large table, or the replica that makes it, takes time. A dead connection ends by its keep-alive. */
const MIGRATION_TIMEOUT_MS = 3_600_000;

/**
 * Each statement commits by itself: an index of a large table holds no lock for the next one. A migration that ended
 * half-way is repeated, see {@link repeatable}.
 *
 * @param session a pool of one connection, whose session holds the lock: replicas that start together wait here and
 *   then find nothing to do
 */
export async function migrate(session: Pick<SqlServerPool, "run">): Promise<readonly string[]> {
  await lock(session);
  const { database, schema, isOnline } = await whereTablesGo(session);
  const execute = async (text: string) => ({ rows: [...(await session.run(migration(text)))] });
  const migrations = new Postgrator({
    driver: "mssql",
    migrationPattern: join(migrationsDirectory("sqlserver"), "*.sql"),
    // Both are looked up as text: a history in another schema is never taken for ours. The table itself is
    // unqualified, like those of the migrations, so it is in the same schema.
    database: database.replaceAll("'", "''"),
    currentSchema: schema.replaceAll("'", "''"),
    schemaTable: "svc_migrations",
    newline: "LF",
    execQuery: (text) => execute(withCapitals(text)),
    async execSqlScript(text) {
      for (const part of repeatable(text, schema, isOnline)) await execute(part);
    },
  });
  const applied = await migrations.migrate();
  return applied.map(({ version, name }) => `${version} ${name}`);
}

/**
 * The statements of a migration, each with a condition that makes it do nothing the second time.
 *
 * @param schema the schema of its tables: without it a name would also be found in dbo
 * @param isOnline whether the edition makes an index without locking the table
 */
export function repeatable(script: string, schema: string, isOnline: boolean): readonly string[] {
  const statements = script.replace(/--.*$/gm, "").split(/;\s*$/m);
  return statements.flatMap((each) => (each.trim() === "" ? [] : [`${once(each.trim(), schema, isOnline)};`]));
}

function once(text: string, schema: string, isOnline: boolean): string {
  const idOf = (name: string) => `OBJECT_ID(N'[${schema.replaceAll("]", "]]").replaceAll("'", "''")}].[${name}]')`;
  const [, index, table] = /^CREATE INDEX (\w+) ON (\w+)/.exec(text) ?? [];
  if (index !== undefined && table !== undefined) {
    const replaces = text.endsWith("WITH (DROP_EXISTING = ON)");
    const online = replaces ? text.replace(/\)$/, ", ONLINE = ON)") : `${text}\n  WITH (ONLINE = ON)`;
    const made = isOnline ? online : text;
    if (replaces) return made;
    return `IF NOT EXISTS (SELECT 1 FROM sys.indexes i WHERE i.object_id = ${idOf(table)} AND i.name = N'${index}')\n${made}`;
  }
  // A table of another owner has its name, but not its constraints: then the statement fails.
  const [, made] =
    /^(?:CREATE|ALTER) TABLE [\s\S]*?\bCONSTRAINT (\w+)/.exec(text) ?? /^CREATE TABLE (\w+)/.exec(text) ?? [];
  if (made !== undefined) return `IF ${idOf(made)} IS NULL\n${text}`;
  return text.replace(/^DROP INDEX /, "DROP INDEX IF EXISTS ");
}

/** @param log tells what the database's settings cost */
export function schemaDialect(pool: SqlServerPool, log: Log): SchemaDialect {
  const named = (names: readonly string[]) => names.map((name) => ({ name }));
  return {
    rules: { inbox: INBOX_RULES, outbox: OUTBOX_RULES },
    quote: (identifier) => `[${identifier}]`,
    async settingProblems() {
      const [row] = await pool.run(SETTINGS);
      if (row?.has_versions === false) log.warn({ remedy: String(row.remedy) }, WITHOUT_VERSIONS);
      return [];
    },
    async columns({ name }, names) {
      const rows = await pool.run(COLUMNS, { table: name, columns: named(names) });
      if (rows.some((row) => row.table_id === null)) return undefined;
      const there = rows.filter((row) => typeof row.type === "string");
      return new Map(
        there.map((row): [string, FoundColumn] => {
          const type = row.type as string;
          const bytes = Number(row.bytes);
          const length = bytes > 0 && TEXTS.test(type) ? bytes / (type.startsWith("n") ? 2 : 1) : null;
          const scale = TIMES.has(type) ? Number(row.scale) : null;
          const collation = row.collation as string | null;
          return [row.name as string, { type, nullable: row.nullable === true, length, scale, collation }];
        }),
      );
    },
    // In the letter case in which the columns are configured.
    async indexes({ name: table }, names) {
      const rows = await pool.run(INDEXES, { table, columns: named(names) });
      const indexes = new Map<unknown, { columns: (string | null)[]; unique: boolean; whole: boolean }>();
      for (const { index_id, name, is_unique, has_filter } of rows) {
        const index = indexes.get(index_id) ?? { columns: [], unique: is_unique === true, whole: has_filter !== true };
        index.columns.push(name as string | null);
        indexes.set(index_id, index);
      }
      return [...indexes.values()];
    },
    obstacles: async ({ name }, columns) =>
      (await pool.run(OBSTACLES, { table: name, columns: named(columns) })) as readonly (Obstacle & Row)[],
    remedies,
    unique: "UNIQUE NONCLUSTERED",
    // A hint of the statements takes that index: they fail with error 8622.
    withoutIdIndex: undefined,
    relayIndexes: ["scheduledAt"],
  };
}

async function lock(session: Pick<SqlServerPool, "run">): Promise<void> {
  const [answer] = await session.run(LOCK);
  const result = answer?.result as number;
  if (result < 0) throw new StoreError("other", `migrate: sp_getapplock answered ${result}`);
}

/** @throws ConfigError when the user's default schema does not exist */
async function whereTablesGo(session: Pick<SqlServerPool, "run">) {
  const [row] = await session.run(DEFAULT_SCHEMA);
  const { database, schema, edition } = row as { database: string; schema: string | null; edition: number };
  if (schema !== null) return { database, schema, isOnline: ONLINE_EDITIONS.has(edition) };
  const message = "the user has no default schema: set one with ALTER USER ... WITH DEFAULT_SCHEMA = dbo";
  throw new ConfigError([{ path: "database.username", message }]);
}

/** Names in INFORMATION_SCHEMA, in upper case for a case-sensitive collation. */
function withCapitals(text: string): string {
  return text.replace(/\b(?:table_catalog|table_schema|table_name|column_name)\b/g, (name) => name.toUpperCase());
}

function migration(text: string): Statement {
  // An error names the step, such as "migrate CREATE INDEX outbox_claim_idx".
  const step = /^(?:IF .*\n)?(\w+ \w+ \w+)/.exec(text)?.[1] ?? "the history";
  return { name: `migrate ${step}`, text, parameters: {}, timeoutMs: MIGRATION_TIMEOUT_MS, lockTimeoutMs: -1 };
}

const LOCK: Statement = statement("migrate.lock", { timeoutMs: MIGRATION_TIMEOUT_MS })`
DECLARE @result int;
EXEC @result = sp_getapplock @Resource = N'svc migrations', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = -1;
SELECT @result AS result;`;

const DEFAULT_SCHEMA: Statement = statement("migrate.default schema")(
  "SELECT DB_NAME() AS [database], SCHEMA_NAME() AS [schema], CONVERT(int, SERVERPROPERTY('EngineEdition')) AS edition;",
);

/** Enterprise (Developer, Evaluation), Azure SQL Database and Managed Instance (Microsoft Learn, "SERVERPROPERTY"). */
const ONLINE_EDITIONS = new Set([3, 5, 8]);

const SETTINGS: Statement = statement("schema.settings")`
SELECT d.is_read_committed_snapshot_on AS has_versions,
  N'ALTER DATABASE ' + QUOTENAME(d.name) + N' SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE;' AS remedy
FROM sys.databases d WHERE d.name = DB_NAME();`;

const WITHOUT_VERSIONS =
  "the database has READ_COMMITTED_SNAPSHOT off: while a transaction of an application has written a row of a key and has not ended, claims of all keys wait for it up to 2 s and then fail";

function remedies({ which, name }: CheckedTable): Remedies {
  return {
    add({ definition, fallback }, column) {
      if (fallback === undefined) return `ALTER TABLE ${name} ADD [${column}] ${definition};`;
      // In one transaction: rows that are there count as finished, and no row comes in between with that default.
      const history = `${which}_${column}_history`;
      return (
        `SET XACT_ABORT ON; BEGIN TRANSACTION; ALTER TABLE ${name} ADD [${column}] ${definition.replace("DEFAULT", `CONSTRAINT [${history}] DEFAULT`)}; ` +
        `ALTER TABLE ${name} DROP CONSTRAINT [${history}]; ALTER TABLE ${name} ADD DEFAULT ${fallback} FOR [${column}]; COMMIT TRANSACTION;`
      );
    },
    allowNull(column, { type = "nvarchar", length = null, collation = null } = NOTHING_FOUND) {
      const size = TEXTS.test(type) ? `(${length ?? "max"})` : "";
      // Without it the column would get the collation of the database.
      const collate = collation === null ? "" : ` COLLATE ${collation}`;
      return `ALTER TABLE ${name} ALTER COLUMN [${column}] ${type}${size}${collate} NULL;`;
    },
    change(column, { definition }, { type, length }) {
      const wide = definition
        .replace(/ DEFAULT .*/, "")
        .replace(/\((\d+)\)/, (size, least) =>
          TEXTS.test(type) ? `(${length === null ? "max" : Math.max(length, least)})` : size,
        );
      return `ALTER TABLE ${name} ALTER COLUMN [${column}] ${wide};`;
    },
  };
}

const NOTHING_FOUND: FoundColumn = { type: "nvarchar", nullable: false, length: null, scale: null, collation: null };
const TEXTS = /^n?(var)?char$/;
/** Types with a scale; that of `datetime` is 3. */
const TIMES = new Set(["datetimeoffset", "datetime2", "datetime"]);

/** The server compares the names by the database's rules, mostly without letter case. */
const COLUMNS: Statement = statement("schema.columns(table text, columns list)")`
SELECT OBJECT_ID(@table) AS table_id, c.name, TYPE_NAME(k.system_type_id) AS type, k.is_nullable AS nullable, k.max_length AS bytes, k.scale, k.collation_name AS collation
FROM OPENJSON(@columns) WITH (name nvarchar(128) ${COLLATED} '$.name') c
LEFT JOIN sys.columns k ON k.object_id = OBJECT_ID(@table) AND k.column_id = COLUMNPROPERTY(OBJECT_ID(@table), c.name, 'ColumnId');`;

const OBSTACLES: Statement = statement("schema.obstacles(table text, columns list)")`
SELECT N'view' AS kind, o.name
FROM sys.objects o WHERE o.object_id = OBJECT_ID(@table) AND o.type = N'V'
UNION ALL
SELECT N'trigger', t.name
FROM sys.triggers t WHERE t.parent_id = OBJECT_ID(@table) AND t.is_instead_of_trigger = 1 AND t.is_disabled = 0
UNION ALL
SELECT N'generated', k.name
FROM OPENJSON(@columns) WITH (name nvarchar(128) ${COLLATED} '$.name') c
JOIN sys.columns k ON k.object_id = OBJECT_ID(@table) AND k.column_id = COLUMNPROPERTY(OBJECT_ID(@table), c.name, 'ColumnId')
WHERE k.is_computed = 1 OR k.generated_always_type <> 0;`;

/** A row for each column of an index's key, in order; null for a name that is not among `@columns`. */
const INDEXES: Statement = statement("schema.indexes(table text, columns list)")`
SELECT i.index_id, c.name, i.is_unique, i.has_filter
FROM sys.indexes i
JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
LEFT JOIN OPENJSON(@columns) WITH (name nvarchar(128) ${COLLATED} '$.name') c
  ON COLUMNPROPERTY(i.object_id, c.name, 'ColumnId') = k.column_id
WHERE i.object_id = OBJECT_ID(@table) AND i.is_disabled = 0 AND k.is_included_column = 0
ORDER BY i.index_id, k.key_ordinal;`;

const TEXT_TYPES = ["nvarchar", "varchar", "nchar", "char"] as const;
/** Columns whose values the driver makes texts, and which the server converts to and from texts by itself. */
const LABELS = [...TEXT_TYPES, "uniqueidentifier", "tinyint", "smallint", "int", "bigint"] as const;
const COUNTS = ["tinyint", "smallint", "int", "bigint"] as const;

const uuid: ColumnRule = {
  accepted: ["uniqueidentifier"],
  definition: "uniqueidentifier NULL",
};
const id: ColumnRule = {
  ...uuid,
  definition: "uniqueidentifier NOT NULL DEFAULT NEWID() UNIQUE NONCLUSTERED",
  notNull: true,
};
const text = (type: string, rest: string): ColumnRule => ({
  accepted: TEXT_TYPES,
  definition: `${type} ${rest}`,
});
const label = (type: string, rest: string): ColumnRule => ({ ...text(type, rest), accepted: LABELS });
const long = (rest: string): ColumnRule => ({
  ...text("nvarchar(max)", rest),
  accepted: [...TEXT_TYPES, "json"],
});
const time: ColumnRule = {
  accepted: ["datetimeoffset", "datetime2", "datetime"],
  definition: "datetimeoffset(7) NULL",
};
const now: ColumnRule = { ...time, definition: "datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()" };
/** A time that orders rows a microsecond apart. */
const orders: ColumnRule = { ...now, accepted: ["datetimeoffset"], leastScale: 6, notNull: true };
/**
 * A text that is compared with a value of ours. Of another type the server would convert each row, and of another
 * collation it would take different texts for the same.
 */
const compared = (type: string, rest: string): ColumnRule => ({
  ...text(type, `${COLLATED} ${rest}`),
  accepted: ["nvarchar"],
  collation: BINARY,
});
const word = (fallback: string): ColumnRule => ({
  ...text("nvarchar(20)", `${COLLATED} NOT NULL DEFAULT N'${fallback}'`),
  accepted: ["nvarchar"],
});
const count = (fallback: string): ColumnRule => ({
  accepted: COUNTS,
  definition: `int NOT NULL DEFAULT ${fallback}`,
});
/** @param history what rows that are there already count as, when the column is added */
const state = (history: string, leastLength: number): ColumnRule => ({
  ...word(history),
  fallback: "N'pending'",
  leastLength,
});

const INBOX_RULES = {
  id,
  source: compared("nvarchar(200)", "NOT NULL DEFAULT N''"),
  idempotencyKey: compared("nvarchar(255)", "NOT NULL DEFAULT CONVERT(nvarchar(36), NEWID())"),
  aggregateId: text("nvarchar(800)", `${COLLATED} NULL`),
  eventType: text("nvarchar(400)", `${COLLATED} NULL`),
  payload: long("NULL"),
  state: state("processed", "processed".length),
  createdAt: orders,
  processedAt: time,
  claimedAt: time,
  claimToken: uuid,
  leaseExpiresAt: time,
  correlationId: text("nvarchar(400)", "NULL"),
  consumption: { ...word("push"), leastLength: "push".length },
  scheduledAt: orders,
  attempt: count("0"),
  lastError: { ...text("nvarchar(max)", "NULL"), leastLength: LONGEST_ERROR },
  headers: long("NULL DEFAULT N'{}'"),
  expiresAt: { ...time, isOptional: true },
} as const satisfies Record<keyof typeof INBOX_COLUMNS, ColumnRule>;

const OUTBOX_RULES = {
  id,
  topic: label("nvarchar(1000)", `${COLLATED} NULL`),
  key: label("nvarchar(800)", `${COLLATED} NULL`),
  aggregateType: label("nvarchar(400)", "NULL"),
  payload: long("NULL"),
  headers: long("NULL DEFAULT N'{}'"),
  state: state("sent", "processing".length),
  attempt: count("0"),
  maxAttempts: count("5"),
  scheduledAt: now,
  createdAt: now,
  updatedAt: now,
  claimedAt: time,
  claimToken: uuid,
  leaseExpiresAt: time,
  lastError: { ...text("nvarchar(max)", "NULL"), leastLength: LONGEST_ERROR },
  sequence: {
    accepted: ["bigint", "int"],
    definition: "bigint NOT NULL IDENTITY (1, 1)",
    notNull: true,
  },
  destination: { ...compared("nvarchar(400)", "NULL"), isOptional: true },
  routes: { ...compared("nvarchar(16)", "NULL"), isOptional: true, leastLength: ROUTES_HASH_LENGTH },
  expiresAt: { ...time, isOptional: true },
  messageSequence: { accepted: ["bigint"], definition: "bigint NULL", isOptional: true },
  expandedTo: { ...text("nvarchar(max)", "NULL"), isOptional: true },
} as const satisfies Record<keyof typeof OUTBOX_COLUMNS, ColumnRule>;
