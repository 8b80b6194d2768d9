import { join } from "node:path";
import Postgrator from "postgrator";
import { ConfigError, type ConfigProblem, StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { CheckedTables } from "../../../ports/store.ts";
import {
  type CheckedTable,
  type ColumnRule,
  columnProblems,
  type FoundColumn,
  type FoundIndex,
  hasIndexOn,
  hasUniqueKey,
  missingTable,
  type Remedies,
} from "../sql/columnCheck.ts";
import {
  DESTINATION_RIGHTS,
  destinationsAvailable,
  destinationTableFault,
  type FoundDestinationTable,
} from "../sql/destinationCheck.ts";
import { destinationTableStatement, migrationsDirectory } from "../sql/migrations.ts";
import type { TableNames } from "../sql/names.ts";
import { DESTINATION_RULES, INBOX_RULES, OUTBOX_RULES } from "./columns.ts";
import type { Executor, SqlServerPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** An index on a large table takes its time, and so does the wait for the replica that makes it. */
const MIGRATION_TIMEOUT_MS = 3_600_000;

/** Migrations and the start-up check of the tables. */
export class SqlServerSchema {
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

  /**
   * The check of `SchemaStore.checkColumns`.
   *
   * @returns whether the table of the destinations can be used; false too when it is not among `tables`
   */
  async checkTables(tables: CheckedTables | undefined, requireDestinations: boolean | undefined): Promise<boolean> {
    const { inbox, inboxTable, outbox, outboxTable } = this.#names;
    const received: CheckedTable = { which: "inbox", name: this.#quoted(inboxTable) };
    const sending: CheckedTable = { which: "outbox", name: this.#quoted(outboxTable) };
    const checked = tables ?? ["inbox", "outbox", "destinations"];
    const problems = [
      ...(checked.includes("inbox") ? await this.#problems(received, inbox, INBOX_RULES) : []),
      ...(checked.includes("outbox") ? await this.#problems(sending, outbox, OUTBOX_RULES) : []),
    ];
    if (problems.length > 0) throw new ConfigError(problems);
    if (checked.includes("inbox")) await this.#checkInboxKeys(received);
    if (checked.includes("outbox")) await this.#checkOutboxKeys(sending);
    if (!checked.includes("destinations")) return false;
    return destinationsAvailable(await this.#destinationTable(), requireDestinations ?? false, this.#log);
  }

  /** As `SchemaStore.destinationFault`. */
  async destinationFault() {
    return destinationTableFault(await this.#destinationTable());
  }

  async #destinationTable(): Promise<FoundDestinationTable> {
    const { destinationTable, destination } = this.#names;
    const table: CheckedTable = { which: "destination", name: this.#quoted(destinationTable) };
    const create = destinationTableStatement("sqlserver", table.name);
    const found = await this.#columns(table, destination);
    if (found === undefined) return { name: table.name, isThere: false, missingRights: [], problems: [], create };
    const [rights] = await this.#pool.run(RIGHTS, { table: table.name });
    return {
      name: table.name,
      isThere: true,
      missingRights: DESTINATION_RIGHTS.filter((right) => Number(rights?.[right.toLowerCase()]) !== 1),
      problems: columnProblems(table, destination, found, DESTINATION_RULES, remedies(table, DESTINATION_RULES)),
      create,
    };
  }

  async #problems<K extends string>(
    table: CheckedTable,
    names: Readonly<Record<K, string>>,
    rules: Readonly<Record<K, ColumnRule>>,
  ): Promise<readonly ConfigProblem[]> {
    const found = await this.#columns(table, names);
    return found === undefined
      ? [missingTable(table)]
      : columnProblems(table, names, found, rules, remedies(table, rules));
  }

  /** The columns that are there, by name; undefined where there is no table. */
  async #columns(
    table: CheckedTable,
    names: Readonly<Record<string, string>>,
  ): Promise<ReadonlyMap<string, FoundColumn> | undefined> {
    const columns = Object.values<string>(names).map((name) => ({ name }));
    const rows = await this.#pool.run(COLUMNS, { table: table.name, columns: JSON.stringify(columns) });
    if (rows.some((row) => row.table_id === null)) return undefined;
    const there = rows.filter((row) => typeof row.type === "string");
    return new Map(
      there.map((row) => {
        const type = row.type as string;
        const bytes = Number(row.bytes);
        const length = bytes > 0 && TEXTS.test(type) ? bytes / (type.startsWith("n") ? 2 : 1) : null;
        return [row.name as string, { type, nullable: row.nullable === true, length }] as const;
      }),
    );
  }

  /** Without these keys nothing fails, but a message that is received twice at the same moment is stored twice, and the relay reads the whole table. */
  async #checkInboxKeys(table: CheckedTable): Promise<void> {
    const { id, source, idempotencyKey, createdAt, state, consumption } = this.#names.inbox;
    const indexes = await this.#indexes(table);
    if (!hasUniqueKey(indexes, source, idempotencyKey)) {
      this.#log.warn(
        { remedy: `ALTER TABLE ${table.name} ADD UNIQUE NONCLUSTERED ([${source}], [${idempotencyKey}]);` },
        "the inbox table has no unique key on source and idempotency key: a message that is received twice may be stored twice",
      );
    }
    this.#checkId(table, id, indexes);
    this.#checkIndex(table, indexes, createdAt, state, [
      `([${createdAt}], [${id}]) WHERE [${state}] = N'pending' AND [${consumption}] = N'push'`,
    ]);
  }

  async #checkOutboxKeys(table: CheckedTable): Promise<void> {
    const { id, sequence, state, key } = this.#names.outbox;
    const indexes = await this.#indexes(table);
    this.#checkId(table, id, indexes);
    this.#checkIndex(table, indexes, sequence, state, [`([${sequence}]) WHERE [${state}] = N'pending'`]);
    this.#checkIndex(table, indexes, key, state, [
      `([${key}], [${sequence}]) WHERE [${key}] IS NOT NULL AND [${state}] IN (N'pending', N'processing')`,
    ]);
  }

  /** Rows are looked up by their ids with a hint that takes an index. */
  #checkId(table: CheckedTable, id: string, indexes: readonly FoundIndex[]): void {
    if (indexes.some(({ columns: [first] }) => first === id)) return;
    this.#log.warn(
      { remedy: `ALTER TABLE ${table.name} ADD UNIQUE NONCLUSTERED ([${id}]);` },
      `the ${table.which} table has no key on its id: its rows cannot be looked up, and statements fail with error 8622`,
    );
  }

  /** Without an index everything works, but each look reads the whole table. @param proposals what to write behind the table's name */
  #checkIndex(
    table: CheckedTable,
    indexes: readonly FoundIndex[],
    column: string,
    state: string,
    proposals: readonly string[],
  ): void {
    if (hasIndexOn(indexes, column, state)) return;
    const remedy = proposals.map(
      (proposal) => `CREATE INDEX [${table.which}_${column}_idx] ON ${table.name} ${proposal};`,
    );
    this.#log.warn(
      { column, remedy: remedy.join(" ") },
      `the ${table.which} table has no index that begins with this column: whoever looks for work reads the whole table`,
    );
  }

  /** The keys of the table's indexes, in the letter case in which the columns are configured. */
  async #indexes(table: CheckedTable): Promise<readonly FoundIndex[]> {
    const rows = await this.#pool.run(INDEXES, {
      table: table.name,
      columns: JSON.stringify(Object.values(this.#names[table.which]).map((name) => ({ name }))),
    });
    const indexes = new Map<unknown, { columns: (string | null)[]; unique: boolean; whole: boolean }>();
    for (const { index_id, name, is_unique, has_filter } of rows) {
      const index = indexes.get(index_id) ?? { columns: [], unique: is_unique === true, whole: has_filter !== true };
      index.columns.push(name as string | null);
      indexes.set(index_id, index);
    }
    return [...indexes.values()];
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

function remedies<K extends string>(table: CheckedTable, rules: Readonly<Record<K, ColumnRule>>): Remedies<K> {
  const { name } = table;
  return {
    add(key, column) {
      const { definition, fallback } = rules[key];
      if (fallback === undefined) return `ALTER TABLE ${name} ADD [${column}] ${definition};`;
      // In one transaction: rows that are there count as finished, and no row comes in between with that default.
      const history = `${table.which}_${column}_history`;
      return (
        `SET XACT_ABORT ON; BEGIN TRANSACTION; ALTER TABLE ${name} ADD [${column}] ${definition.replace("DEFAULT", `CONSTRAINT [${history}] DEFAULT`)}; ` +
        `ALTER TABLE ${name} DROP CONSTRAINT [${history}]; ALTER TABLE ${name} ADD DEFAULT ${fallback} FOR [${column}]; COMMIT TRANSACTION;`
      );
    },
    retype(key, column, found) {
      return `ALTER TABLE ${name} ALTER COLUMN [${column}] ${rules[key].type} ${found.nullable ? "NULL" : "NOT NULL"};`;
    },
    forbidNull: (key, column) => `ALTER TABLE ${name} ALTER COLUMN [${column}] ${rules[key].type} NOT NULL;`,
  };
}

const TEXTS = /^n?(var)?char$/;

/** The server compares the names itself, by the rules of the database: in most of them the letter case does not count. */
const COLUMNS: Statement = {
  name: "schema.columns",
  text: `
SELECT OBJECT_ID(@table) AS table_id, c.name, TYPE_NAME(k.system_type_id) AS type, k.is_nullable AS nullable, k.max_length AS bytes
FROM OPENJSON(@columns) WITH (name nvarchar(128) '$.name') c
LEFT JOIN sys.columns k ON k.object_id = OBJECT_ID(@table) AND k.column_id = COLUMNPROPERTY(OBJECT_ID(@table), c.name, 'ColumnId');`,
  parameters: { table: "text", columns: "longText" },
};

const RIGHTS: Statement = {
  name: "schema.rights",
  text: `
SELECT HAS_PERMS_BY_NAME(@table, N'OBJECT', N'SELECT') AS [select], HAS_PERMS_BY_NAME(@table, N'OBJECT', N'INSERT') AS [insert],
  HAS_PERMS_BY_NAME(@table, N'OBJECT', N'UPDATE') AS [update];`,
  parameters: { table: "text" },
};

/** A row for each column of an index's key, in order; the name is null for a column that is not among `@columns`. */
const INDEXES: Statement = {
  name: "schema.indexes",
  text: `
SELECT i.index_id, c.name, i.is_unique, i.has_filter
FROM sys.indexes i
JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
LEFT JOIN OPENJSON(@columns) WITH (name nvarchar(128) '$.name') c
  ON COLUMNPROPERTY(i.object_id, c.name, 'ColumnId') = k.column_id
WHERE i.object_id = OBJECT_ID(@table) AND i.is_disabled = 0 AND k.is_included_column = 0
ORDER BY i.index_id, k.key_ordinal;`,
  parameters: { table: "text", columns: "longText" },
};
