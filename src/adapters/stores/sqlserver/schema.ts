import { join } from "node:path";
import Postgrator from "postgrator";
import { ConfigError, StoreError } from "../../../model/errors.ts";
import { type INBOX_COLUMNS, type OUTBOX_COLUMNS, ROUTES_HASH_LENGTH } from "../../../model/rows.ts";
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
import { COLLATED } from "./fragments.ts";
import type { Executor, SqlServerPool } from "./pool.ts";
import { type Statement, statement } from "./statement.ts";

/** An index on a large table, or the replica that makes it, takes time. A dead connection ends by its keep-alive. */
const MIGRATION_TIMEOUT_MS = 3_600_000;

export async function migrate(pool: SqlServerPool): Promise<readonly string[]> {
  // One transaction holds the lock and all files: replicas that start together wait here and then find nothing to do.
  return await pool.transaction("migrate", async (transaction) => {
    await lock(transaction);
    const { database, schema } = await whereTablesGo(transaction);
    const migrations = new Postgrator({
      driver: "mssql",
      migrationPattern: join(migrationsDirectory("sqlserver"), "*.sql"),
      // Both are looked up as text: a history in another schema is never taken for ours. The table itself is
      // unqualified, like those of the migrations, so it is in the same schema.
      database: database.replaceAll("'", "''"),
      currentSchema: schema.replaceAll("'", "''"),
      schemaTable: "svc_migrations",
      newline: "LF",
      execQuery: async (text) => ({ rows: [...(await transaction.run(migration(withCapitals(text))))] }),
    });
    const applied = await migrations.migrate();
    return applied.map(({ version, name }) => `${version} ${name}`);
  });
}

export function schemaDialect(pool: SqlServerPool): SchemaDialect {
  const named = (names: readonly string[]) => names.map((name) => ({ name }));
  return {
    rules: { inbox: INBOX_RULES, outbox: OUTBOX_RULES },
    quote: (identifier) => `[${identifier}]`,
    async columns({ name }, names) {
      const rows = await pool.run(COLUMNS, { table: name, columns: named(names) });
      if (rows.some((row) => row.table_id === null)) return undefined;
      const there = rows.filter((row) => typeof row.type === "string");
      return new Map(
        there.map((row): [string, FoundColumn] => {
          const type = row.type as string;
          const bytes = Number(row.bytes);
          const length = bytes > 0 && TEXTS.test(type) ? bytes / (type.startsWith("n") ? 2 : 1) : null;
          return [row.name as string, { type, nullable: row.nullable === true, length }];
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
    // A hint of the statements takes that index.
    withoutIdIndex: "its rows cannot be looked up, and statements fail with error 8622",
    relayIndexes: ["scheduledAt"],
  };
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

/** Names in INFORMATION_SCHEMA, in upper case for a case-sensitive collation. */
function withCapitals(text: string): string {
  return text.replace(/\b(?:table_catalog|table_schema|table_name|column_name)\b/g, (name) => name.toUpperCase());
}

function migration(text: string): Statement {
  return statement("migrate", { timeoutMs: MIGRATION_TIMEOUT_MS })(text);
}

const LOCK: Statement = statement("migrate.lock", { timeoutMs: MIGRATION_TIMEOUT_MS })`
DECLARE @result int;
EXEC @result = sp_getapplock @Resource = N'svc migrations', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = -1;
SELECT @result AS result;`;

const DEFAULT_SCHEMA: Statement = statement("migrate.default schema")(
  "SELECT DB_NAME() AS [database], SCHEMA_NAME() AS [schema];",
);

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
    allowNull(column, { type = "nvarchar", length = null } = { type: "nvarchar", nullable: false, length: null }) {
      return `ALTER TABLE ${name} ALTER COLUMN [${column}] ${type}${TEXTS.test(type) ? `(${length ?? "max"})` : ""} NULL;`;
    },
  };
}

const TEXTS = /^n?(var)?char$/;

/** The server compares the names by the database's rules, mostly without letter case. */
const COLUMNS: Statement = statement("schema.columns(table text, columns list)")`
SELECT OBJECT_ID(@table) AS table_id, c.name, TYPE_NAME(k.system_type_id) AS type, k.is_nullable AS nullable, k.max_length AS bytes
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
const count = (fallback: string): ColumnRule => ({
  accepted: COUNTS,
  definition: `int NOT NULL DEFAULT ${fallback}`,
});
/** @param history what rows that are there already count as, when the column is added */
const state = (history: string, leastLength: number): ColumnRule => ({
  ...text("nvarchar(20)", `${COLLATED} NOT NULL DEFAULT N'${history}'`),
  fallback: "N'pending'",
  leastLength,
});

const INBOX_RULES = {
  id,
  source: text("nvarchar(200)", `${COLLATED} NOT NULL DEFAULT N''`),
  idempotencyKey: text("nvarchar(255)", `${COLLATED} NOT NULL DEFAULT CONVERT(nvarchar(36), NEWID())`),
  aggregateId: text("nvarchar(800)", `${COLLATED} NULL`),
  eventType: text("nvarchar(400)", `${COLLATED} NULL`),
  payload: long("NULL"),
  state: state("processed", "processed".length),
  createdAt: now,
  processedAt: time,
  claimedAt: time,
  claimToken: uuid,
  leaseExpiresAt: time,
  correlationId: text("nvarchar(400)", "NULL"),
  consumption: { ...text("nvarchar(20)", `${COLLATED} NOT NULL DEFAULT N'push'`), leastLength: "push".length },
  scheduledAt: now,
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
  destination: { ...text("nvarchar(400)", `${COLLATED} NULL`), isOptional: true },
  routes: { ...text("nvarchar(16)", `${COLLATED} NULL`), isOptional: true, leastLength: ROUTES_HASH_LENGTH },
  expiresAt: { ...time, isOptional: true },
  messageSequence: { accepted: ["bigint"], definition: "bigint NULL", isOptional: true },
  expandedTo: { ...text("nvarchar(max)", "NULL"), isOptional: true },
} as const satisfies Record<keyof typeof OUTBOX_COLUMNS, ColumnRule>;
