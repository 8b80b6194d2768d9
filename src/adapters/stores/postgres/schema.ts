import { join } from "node:path";
import type pg from "pg";
import Postgrator from "postgrator";
import { ConfigError, type ConfigProblem } from "../../../model/errors.ts";
import type { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../../model/rows.ts";
import type { SchemaStore } from "../../../ports/store.ts";
import { type CheckedTable, missingColumns, missingTable } from "../sql/columnCheck.ts";
import { migrationsDirectory } from "../sql/migrations.ts";
import type { TableNames } from "../sql/names.ts";
import { toStoreError } from "./errors.ts";
import { runOnline, takeOnlineLock } from "./onlineMigration.ts";
import type { PostgresPool } from "./pool.ts";

/** Type and constraint of each column, for the `ALTER TABLE` statements that the column check proposes. */
const INBOX_DEFINITIONS = {
  id: "uuid PRIMARY KEY DEFAULT gen_random_uuid()",
  source: "text NOT NULL DEFAULT ''",
  idempotencyKey: "text NOT NULL DEFAULT gen_random_uuid()::text",
  aggregateId: "text",
  eventType: "text",
  payload: "text NOT NULL DEFAULT ''",
  state: "text NOT NULL DEFAULT 'pending'",
  createdAt: "timestamptz NOT NULL DEFAULT now()",
  processedAt: "timestamptz",
  claimedAt: "timestamptz",
  claimToken: "uuid",
  leaseExpiresAt: "timestamptz",
  correlationId: "text",
  consumption: "text NOT NULL DEFAULT 'push'",
  scheduledAt: "timestamptz NOT NULL DEFAULT now()",
  attempt: "integer NOT NULL DEFAULT 0",
  lastError: "text",
  headers: "jsonb NOT NULL DEFAULT '{}'",
} as const satisfies Record<keyof typeof INBOX_COLUMNS, string>;

const OUTBOX_DEFINITIONS = {
  id: "uuid PRIMARY KEY DEFAULT gen_random_uuid()",
  topic: "text NOT NULL DEFAULT ''",
  key: "text",
  aggregateType: "text",
  payload: "text NOT NULL DEFAULT ''",
  headers: "jsonb NOT NULL DEFAULT '{}'",
  state: "text NOT NULL DEFAULT 'pending'",
  attempt: "integer NOT NULL DEFAULT 0",
  maxAttempts: "integer NOT NULL DEFAULT 5",
  scheduledAt: "timestamptz NOT NULL DEFAULT now()",
  createdAt: "timestamptz NOT NULL DEFAULT now()",
  updatedAt: "timestamptz NOT NULL DEFAULT now()",
  claimedAt: "timestamptz",
  claimToken: "uuid",
  leaseExpiresAt: "timestamptz",
  lastError: "text",
  sequence: "bigint GENERATED ALWAYS AS IDENTITY",
} as const satisfies Record<keyof typeof OUTBOX_COLUMNS, string>;

/** Types of the columns whose type an owner may have chosen (`text`, `json` or `jsonb`). */
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
    // The schema is there. Even so the statement would take the right to create one in the database, which its owner may not want to give.
    execQuery: async (query) => (/^\s*CREATE SCHEMA IF NOT EXISTS/.test(query) ? { rows: [] } : client.query(query)),
    ...(run === undefined ? {} : { execSqlScript: run }),
  });
}

const nameOf = ({ version, name }: Postgrator.Migration): string => `${version} ${name}`;

/** Migrations and the start-up check of the tables. */
export class PostgresSchema implements SchemaStore {
  readonly #pool: PostgresPool;
  readonly #names: TableNames;

  /** @param names the plain (not yet quoted) names */
  constructor(pool: PostgresPool, names: TableNames) {
    this.#pool = pool;
    this.#names = names;
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
      return (await migrationsOf(schema, client, (script) => runOnline(client, script, schema)).migrate()).map(nameOf);
    } catch (error) {
      throw toStoreError("migrate", error);
    } finally {
      await Promise.all(clients.map((client) => client.end().catch(() => {})));
    }
  }

  async checkColumns(): Promise<void> {
    const problems = [
      ...(await this.#missing("inbox", this.#names.inboxTable, this.#names.inbox, INBOX_DEFINITIONS)),
      ...(await this.#missing("outbox", this.#names.outboxTable, this.#names.outbox, OUTBOX_DEFINITIONS)),
    ];
    if (problems.length > 0) throw new ConfigError(problems);
  }

  async columnTypes(): Promise<ColumnTypes> {
    const inbox = await this.#columns(this.#names.inboxTable);
    const outbox = await this.#columns(this.#names.outboxTable);
    return {
      inboxPayload: inbox.get(this.#names.inbox.payload) ?? "text",
      inboxHeaders: inbox.get(this.#names.inbox.headers) ?? "jsonb",
      outboxTopic: outbox.get(this.#names.outbox.topic) ?? "text",
      outboxKey: outbox.get(this.#names.outbox.key) ?? "text",
      outboxPayload: outbox.get(this.#names.outbox.payload) ?? "text",
      outboxHeaders: outbox.get(this.#names.outbox.headers) ?? "jsonb",
    };
  }

  async #missing<K extends string>(
    which: "inbox" | "outbox",
    table: string,
    names: Readonly<Record<K, string>>,
    definitions: Readonly<Record<K, string>>,
  ): Promise<readonly ConfigProblem[]> {
    const columns = await this.#columns(table);
    const checked: CheckedTable = { which, name: this.#qualified(table) };
    if (columns.size === 0) return [missingTable(checked)];
    const missing = (Object.entries(names) as [K, string][]).filter(([, column]) => !columns.has(column));
    return missingColumns(
      checked,
      missing,
      (key, column) => `ALTER TABLE ${checked.name} ADD COLUMN "${column}" ${definitions[key]};`,
    );
  }

  /** Column name to type name of the table that an unqualified (or schema-qualified) name means on this connection. */
  async #columns(table: string): Promise<ReadonlyMap<string, string>> {
    const rows = await this.#pool.run(
      {
        name: "schema.columns",
        text: `
SELECT a.attname::text AS name, t.typname::text AS type
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped`,
      },
      [this.#qualified(table)],
    );
    return new Map(rows.map((row) => [row.name as string, row.type as string]));
  }

  #qualified(table: string): string {
    return this.#names.schema === undefined ? `"${table}"` : `"${this.#names.schema}"."${table}"`;
  }
}
