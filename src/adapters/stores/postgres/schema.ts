import { join } from "node:path";
import type pg from "pg";
import Postgrator from "postgrator";
import { ConfigError, type ConfigProblem } from "../../../model/errors.ts";
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
import { toStoreError } from "./errors.ts";
import { runOnline, takeOnlineLock } from "./onlineMigration.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** Types, as a cast names them, of the columns that are written with one: an owner may have chosen them. */
export interface ColumnTypes {
  readonly inboxPayload: string;
  readonly inboxHeaders: string;
  readonly outboxTopic: string;
  readonly outboxKey: string;
  readonly outboxPayload: string;
  readonly outboxHeaders: string;
}

/** The last migration that makes a table: behind it they are in use. */
const TABLES_VERSION = 2;

/**
 * The bundled migrations with their history.
 *
 * @param run how a file is run; as one query by default
 */
function migrationsOf(schema: string, client: pg.ClientBase, run?: (script: string) => Promise<void>): Postgrator {
  return new Postgrator({
    driver: "pg",
    migrationPattern: join(migrationsDirectory("postgresql"), "*.sql"),
    // Qualified, so that a history in another schema of the database is never taken for ours.
    schemaTable: `${schema}.svc_migrations`,
    newline: "LF",
    // The schema is there. Even so the statement would take the right to create one in the database, which its owner
    // may not want to give.
    execQuery: async (query) => (/^\s*CREATE SCHEMA IF NOT EXISTS/.test(query) ? { rows: [] } : client.query(query)),
    ...(run === undefined ? {} : { execSqlScript: run }),
  });
}

const nameOf = ({ version, name }: Postgrator.Migration): string => `${version} ${name}`;

/** Migrations and the start-up check of the tables. */
export class PostgresSchema {
  readonly #pool: PostgresPool;
  readonly #names: TableNames;
  readonly #log: Log;

  /** @param names the plain (not yet quoted) names */
  constructor(pool: PostgresPool, names: TableNames, log: Log) {
    this.#pool = pool;
    this.#names = names;
    this.#log = log;
  }

  async migrate(): Promise<readonly string[]> {
    const { schema, applied, isComplete } = await this.#migrateAtOnce();
    return isComplete ? applied : await this.#migrateOnline(schema);
  }

  /** Where there are no tables yet: all files in one transaction. Else looks at the history alone. */
  async #migrateAtOnce() {
    // One transaction holds the lock and all files: replicas that start together wait here and then find nothing to do. The lock
    // belongs to the transaction, so it also works behind a pooler that hands out connections by transaction.
    return await this.#pool.transaction("migrate", async (client) => {
      await client.query("SELECT pg_advisory_xact_lock(hashtextextended('svc migrations', 0))");
      if (this.#names.schema !== undefined) {
        await client.query("SELECT set_config('search_path', $1, true)", [`"${this.#names.schema}"`]);
      }
      const { rows } = await client.query("SELECT current_schema() AS schema");
      const schema = (rows[0] as { schema: string | null } | undefined)?.schema;
      if (schema === null || schema === undefined) {
        throw new ConfigError([
          {
            path: "database.url",
            message: `the schema "${this.#names.schema ?? "of the search_path"}" does not exist: create it, or name another in currentSchema`,
          },
        ]);
      }
      const migrations = migrationsOf(schema, client);
      const version = await migrations.getDatabaseVersion();
      const areTablesThere = version >= TABLES_VERSION;
      const applied = await migrations.migrate(areTablesThere ? String(version) : "max");
      const isComplete = !areTablesThere || version >= (await migrations.getMaxVersion());
      return { schema, applied: applied.map(nameOf), isComplete };
    });
  }

  /** The tables are in use: file by file, each statement in a transaction of its own. */
  async #migrateOnline(schema: string): Promise<readonly string[]> {
    const clients: pg.Client[] = [];
    const connect = async () => {
      const client = await this.#pool.dedicated();
      clients.push(client);
      return client;
    };
    try {
      await takeOnlineLock(await connect());
      const client = await connect();
      const run = async (script: string) => {
        for (const statement of await runOnline(client, script, schema)) {
          this.#log.warn(
            { statement },
            "a migration could not lock the table, which a transaction has open: run its statement yourself when that has ended",
          );
        }
      };
      return (await migrationsOf(schema, client, run).migrate()).map(nameOf);
    } catch (error) {
      throw toStoreError("migrate", error);
    } finally {
      await Promise.all(clients.map((client) => client.end().catch(() => {})));
    }
  }

  /**
   * The check of `SchemaStore.checkColumns`.
   *
   * @returns whether the table of the destinations can be used; false too when it is not among `tables`
   */
  async checkTables(tables: CheckedTables | undefined, requireDestinations: boolean | undefined): Promise<boolean> {
    const checked = tables ?? ["inbox", "outbox", "destinations"];
    const problems = await Promise.all([
      checked.includes("inbox") ? this.#inboxProblems() : [],
      checked.includes("outbox") ? this.#outboxProblems() : [],
    ]);
    if (problems.flat().length > 0) throw new ConfigError(problems.flat());
    if (!checked.includes("destinations")) return false;
    return destinationsAvailable(await this.#destinationTable(), requireDestinations ?? false, this.#log);
  }

  /** As `SchemaStore.destinationFault`. */
  async destinationFault() {
    return destinationTableFault(await this.#destinationTable());
  }

  async columnTypes(): Promise<ColumnTypes> {
    const { inbox, outbox } = this.#names;
    const [received, sending] = await Promise.all([
      this.#columns(this.#names.inboxTable),
      this.#columns(this.#names.outboxTable),
    ]);
    return {
      inboxPayload: received.get(inbox.payload)?.castName ?? "text",
      inboxHeaders: received.get(inbox.headers)?.castName ?? "jsonb",
      outboxTopic: sending.get(outbox.topic)?.castName ?? "text",
      outboxKey: sending.get(outbox.key)?.castName ?? "text",
      outboxPayload: sending.get(outbox.payload)?.castName ?? "text",
      outboxHeaders: sending.get(outbox.headers)?.castName ?? "jsonb",
    };
  }

  async #inboxProblems(): Promise<readonly ConfigProblem[]> {
    const { inboxTable, inbox } = this.#names;
    const table: CheckedTable = { which: "inbox", name: this.#qualified(inboxTable) };
    const problems = await this.#columnProblems(table, inboxTable, inbox, INBOX_RULES);
    if (problems.length > 0) return problems;
    const indexes = await this.#indexes(inboxTable);
    if (indexes === undefined) return [];
    this.#checkId(table, inbox.id, indexes);
    this.#checkIndex(table, indexes, inbox.createdAt, inbox.state, [
      `("${inbox.createdAt}", "${inbox.id}") WHERE "${inbox.state}" = 'pending' AND "${inbox.consumption}" = 'push'`,
    ]);
    if (hasUniqueKey(indexes, inbox.source, inbox.idempotencyKey)) return [];
    return [
      {
        path: "database.inboxTableName",
        message:
          `the table ${table.name} has no unique key on exactly the source and the idempotency key, without which nothing can be received: add it with\n` +
          `      ALTER TABLE ${table.name} ADD UNIQUE ("${inbox.source}", "${inbox.idempotencyKey}");`,
      },
    ];
  }

  async #outboxProblems(): Promise<readonly ConfigProblem[]> {
    const { outboxTable, outbox } = this.#names;
    const table: CheckedTable = { which: "outbox", name: this.#qualified(outboxTable) };
    const problems = await this.#columnProblems(table, outboxTable, outbox, OUTBOX_RULES);
    const indexes = await this.#indexes(outboxTable);
    if (problems.length > 0 || indexes === undefined) return problems;
    const unfinished = `WHERE "${outbox.state}" IN ('pending', 'processing') AND "${outbox.key}" IS NOT NULL`;
    this.#checkId(table, outbox.id, indexes);
    this.#checkIndex(table, indexes, outbox.sequence, outbox.state, [
      `("${outbox.sequence}") WHERE "${outbox.state}" = 'pending'`,
      `("${outbox.sequence}") WHERE "${outbox.state}" = 'processing'`,
    ]);
    this.#checkIndex(table, indexes, outbox.key, outbox.state, [
      `("${outbox.key}", "${outbox.sequence}") ${unfinished}`,
    ]);
    return [];
  }

  async #destinationTable(): Promise<FoundDestinationTable> {
    const { destinationTable, destination } = this.#names;
    const table: CheckedTable = { which: "destination", name: this.#qualified(destinationTable) };
    const create = destinationTableStatement("postgresql", table.name);
    const found = await this.#columns(destinationTable);
    if (found.size === 0) return { name: table.name, isThere: false, missingRights: [], problems: [], create };
    const problems = columnProblems(table, destination, found, DESTINATION_RULES, remedies(table, DESTINATION_RULES));
    const indexes = await this.#indexes(destinationTable);
    const [rights] = await this.#pool.run(RIGHTS, [table.name]);
    return {
      name: table.name,
      isThere: true,
      missingRights: DESTINATION_RIGHTS.filter((right) => rights?.[right.toLowerCase()] !== true),
      problems:
        problems.length > 0 || indexes === undefined || hasUniqueKey(indexes, destination.name)
          ? problems
          : [
              {
                path: "database.destinationTableName",
                message:
                  `the table ${table.name} has no unique key on the name of the destination, without which nothing can be noted there: add it with\n` +
                  `      ALTER TABLE ${table.name} ADD UNIQUE ("${destination.name}");`,
              },
            ],
      create,
    };
  }

  async #columnProblems<K extends string>(
    table: CheckedTable,
    name: string,
    names: Readonly<Record<K, string>>,
    rules: Readonly<Record<K, ColumnRule>>,
  ): Promise<readonly ConfigProblem[]> {
    const found = await this.#columns(name);
    return found.size === 0
      ? [missingTable(table)]
      : columnProblems(table, names, found, rules, remedies(table, rules));
  }

  /** A partitioned table can have no unique key on the id alone; an index that begins with it finds the rows as well. */
  #checkId(table: CheckedTable, id: string, indexes: readonly FoundIndex[]): void {
    if (indexes.some(({ columns: [first] }) => first === id)) return;
    this.#log.warn(
      { remedy: `ALTER TABLE ${table.name} ADD UNIQUE ("${id}");` },
      `the ${table.which} table has no key on its id: each outcome reads the whole table, and two rows with one id would count as one`,
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
    const remedy = proposals.map((proposal) => `CREATE INDEX CONCURRENTLY ON ${table.name} ${proposal};`).join(" ");
    this.#log.warn(
      { column, remedy },
      `the ${table.which} table has no index that begins with this column: whoever looks for work reads the whole table`,
    );
  }

  /** The columns, by name, of the table that an unqualified (or schema-qualified) name means on this connection. */
  async #columns(table: string): Promise<ReadonlyMap<string, FoundColumn & { readonly castName: string }>> {
    const rows = await this.#pool.run(COLUMNS, [this.#qualified(table)]);
    return new Map(
      rows.map((row) => [
        row.name as string,
        {
          type: row.type as string,
          castName: row.cast_name as string,
          nullable: row.nullable === true,
          length: row.length as number | null,
        },
      ]),
    );
  }

  /** Undefined for a view, whose indexes are those of the tables behind it. */
  async #indexes(table: string): Promise<readonly FoundIndex[] | undefined> {
    const rows = await this.#pool.run(INDEXES, [this.#qualified(table)]);
    if (rows[0]?.is_table !== true) return undefined;
    return rows.flatMap(({ columns, unique, whole }) =>
      columns === null
        ? []
        : [{ columns: columns as (string | null)[], unique: unique === true, whole: whole === true }],
    );
  }

  #qualified(table: string): string {
    return this.#names.schema === undefined ? `"${table}"` : `"${this.#names.schema}"."${table}"`;
  }
}

function remedies<K extends string>(table: CheckedTable, rules: Readonly<Record<K, ColumnRule>>): Remedies<K> {
  return {
    add(key, column) {
      const { definition, fallback } = rules[key];
      // In one statement: rows that are there count as finished, and no row comes in between with that default.
      const after =
        fallback === undefined || definition.endsWith(`DEFAULT ${fallback}`)
          ? ""
          : `, ALTER COLUMN "${column}" SET DEFAULT ${fallback}`;
      return `ALTER TABLE ${table.name} ADD COLUMN "${column}" ${definition}${after};`;
    },
    retype(key, column, found) {
      const { type, fallback } = rules[key];
      const value = found.type === "bytea" ? `convert_from("${column}", 'UTF8')` : `"${column}"`;
      const changes = [
        ...(fallback === undefined ? [] : ["DROP DEFAULT"]),
        `TYPE ${type} USING ${value}::${type}`,
        ...(fallback === undefined ? [] : [`SET DEFAULT ${fallback}`]),
      ];
      return `ALTER TABLE ${table.name} ${changes.map((change) => `ALTER COLUMN "${column}" ${change}`).join(", ")};`;
    },
    forbidNull: (_, column) => `ALTER TABLE ${table.name} ALTER COLUMN "${column}" SET NOT NULL;`,
  };
}

/** Only a table can forbid NULL itself; a view shows none of that. */
const COLUMNS: Statement = {
  name: "schema.columns",
  text: `
WITH RECURSIVE types AS (
  SELECT a.attname, a.atttypid AS declared, a.atttypid AS type, a.atttypmod AS modifier, a.attnotnull AS forbidden, c.relkind
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT d.attname, d.declared, t.typbasetype, t.typtypmod, d.forbidden OR t.typnotnull, d.relkind
  FROM types d JOIN pg_type t ON t.oid = d.type AND t.typtype = 'd'
)
SELECT d.attname::text AS name, CASE t.typtype WHEN 'e' THEN 'enum' ELSE t.typname::text END AS type, format_type(d.declared, -1) AS cast_name,
  NOT d.forbidden AND d.relkind IN ('r', 'p') AS nullable,
  CASE WHEN t.typname IN ('varchar', 'bpchar') AND d.modifier > 4 THEN d.modifier - 4 END AS length
FROM types d JOIN pg_type t ON t.oid = d.type
WHERE t.typtype <> 'd'`,
};

const RIGHTS: Statement = {
  name: "schema.rights",
  text: `
SELECT has_table_privilege(to_regclass($1), 'SELECT') AS select, has_table_privilege(to_regclass($1), 'INSERT') AS insert,
  has_table_privilege(to_regclass($1), 'UPDATE') AS update`,
};

/** At least one row for a relation that is there. */
const INDEXES: Statement = {
  name: "schema.indexes",
  text: `
SELECT c.relkind IN ('r', 'p') AS is_table, i.indisunique AND i.indimmediate AS unique, i.indpred IS NULL AS whole,
  CASE WHEN i.indexrelid IS NOT NULL THEN ARRAY(
    SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
    LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE k.place <= i.indnkeyatts ORDER BY k.place) END AS columns
FROM pg_class c LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid
WHERE c.oid = to_regclass($1)`,
};
