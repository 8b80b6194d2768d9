import { ConfigError, type ConfigProblem } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { TableNames } from "../sql/names.ts";
import type { Row } from "../sql/rows.ts";
import type {
  CheckedTable,
  ColumnRule,
  FoundColumn,
  Obstacle,
  Remedies,
  SchemaDialect,
  TableCheck,
} from "../sql/schema.ts";
import { type ColumnTypes, INBOX_RULES, OUTBOX_RULES, WHOLE_NUMERIC } from "./columns.ts";
import { IS_CITUS } from "./fragments.ts";
import type { PostgresPool } from "./pool.ts";
import { type Statement, statement } from "./statement.ts";

/** @throws ConfigError if the database is another engine */
export async function settingProblems(pool: PostgresPool): Promise<readonly ConfigProblem[]> {
  const [{ version = "" } = {}] = (await pool.run(VERSION)) as { readonly version?: string }[];
  if (!POSTGRES_13.test(version)) {
    throw new ConfigError([{ path: "database.url", message: `the database is ${version}: ${NEEDED_ENGINE}` }]);
  }
  return (await pool.run(SETTINGS)).map(({ name, setting, needed, database }) => ({
    path: "database.username",
    message: `${name} is ${setting} for this user, and the statements of the service need ${needed}: run ALTER ROLE <user> IN DATABASE "${database}" SET ${name} = '${needed}';`,
  }));
}

const VERSION: Statement = statement("schema.version")("SELECT version() AS version");
/** PostgreSQL and what is made of it; Aurora DSQL gives no minor version, YugabyteDB its own mark. */
const POSTGRES_13 = /^PostgreSQL (?:1[3-9]|[2-9]\d)(?!\d*(?:$|\S*-YB-))/;
const NEEDED_ENGINE =
  "use PostgreSQL 13 or newer, which Citus distributes; engines that only speak its protocol keep neither locks nor the order of a key";

export async function columnTypes(
  pool: PostgresPool,
  check: TableCheck,
  { inbox, outbox }: TableNames,
): Promise<ColumnTypes> {
  const [received, sending] = await Promise.all([
    columnsOf(pool, check.table("inbox")),
    columnsOf(pool, check.table("outbox")),
  ]);
  return {
    inboxSource: received.get(inbox.source)?.castName ?? "text",
    inboxIdempotencyKey: received.get(inbox.idempotencyKey)?.castName ?? "text",
    inboxPayload: received.get(inbox.payload)?.castName ?? "text",
    inboxHeaders: received.get(inbox.headers)?.castName ?? "jsonb",
    outboxTopic: sending.get(outbox.topic)?.castName ?? "text",
    outboxKey: sending.get(outbox.key)?.castName ?? "text",
    outboxPayload: sending.get(outbox.payload)?.castName ?? "text",
    outboxHeaders: sending.get(outbox.headers)?.castName ?? "jsonb",
    keepsTexts: [inbox.source, inbox.idempotencyKey, inbox.eventType, inbox.correlationId].every((name) => {
      const { type = "text", length = null } = received.get(name) ?? {};
      return type !== "bpchar" && length === null;
    }),
  };
}

/** Whether the database is one of Citus; warns of a setting that the statements need there. */
export async function isCitus(pool: PostgresPool, log: Log): Promise<boolean> {
  const [row] = await pool.run(CITUS);
  if (row?.is_citus !== true) return false;
  if (row.propagates !== "local") {
    log.warn(
      { setting: row.propagates },
      "citus.propagate_set_commands is not 'local': statements wait for locks without a limit on the node of the tables, and may read them whole. Run ALTER DATABASE ... SET citus.propagate_set_commands = 'local'",
    );
  }
  return true;
}

const CITUS: Statement = statement("schema.citus")(
  `SELECT ${IS_CITUS} AS is_citus, current_setting('citus.propagate_set_commands', true) AS propagates`,
);

export function schemaDialect(pool: PostgresPool): SchemaDialect {
  return {
    rules: { inbox: INBOX_RULES, outbox: OUTBOX_RULES },
    quote: (identifier) => `"${identifier}"`,
    settingProblems: () => settingProblems(pool),
    async columns(table) {
      const found = await columnsOf(pool, table);
      return found.size === 0 ? undefined : found;
    },
    async indexes({ name }) {
      const rows = await pool.run(INDEXES, { table: name });
      return rows.map(({ columns, unique, whole }) => ({
        columns: columns as (string | null)[],
        unique: unique === true,
        whole: whole === true,
      }));
    },
    obstacles: async ({ name }, columns) =>
      (await pool.run(OBSTACLES, { table: name, columns })) as readonly (Obstacle & Row)[],
    remedies,
    unique: "UNIQUE",
    withoutIdIndex: "each outcome reads the whole table, and two rows with one id would count as one",
    relayIndexes: ["createdAt", "scheduledAt"],
  };
}

async function columnsOf(
  pool: PostgresPool,
  { name }: CheckedTable,
): Promise<ReadonlyMap<string, FoundColumn & { readonly castName: string }>> {
  const rows = await pool.run(COLUMNS, { table: name });
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

function remedies({ name }: CheckedTable): Remedies {
  return {
    add({ definition, fallback }: ColumnRule, column) {
      // In one statement: existing rows count as finished, and no new row gets that default.
      const after =
        fallback === undefined || definition.endsWith(`DEFAULT ${fallback}`)
          ? ""
          : `, ALTER COLUMN "${column}" SET DEFAULT ${fallback}`;
      return `ALTER TABLE ${name} ADD COLUMN "${column}" ${definition}${after};`;
    },
    allowNull: (column) => `ALTER TABLE ${name} ALTER COLUMN "${column}" DROP NOT NULL;`,
  };
}

/** Session settings on which statements rely and that have other values. */
const SETTINGS: Statement = statement("schema.settings")`
SELECT n.name, s.setting, n.needed, current_database()::text AS database
FROM (VALUES ('array_nulls', 'on'), ('default_transaction_isolation', 'read committed'),
  ('default_transaction_read_only', 'off'), ('enable_indexscan', 'on')) AS n(name, needed)
JOIN pg_settings s ON s.name = n.name AND s.setting <> n.needed`;

/** A `numeric` that may hold fractions is named with what it is declared as, another one is whole. */
const COLUMNS: Statement = statement("schema.columns(table)")`
WITH RECURSIVE types AS (
  SELECT c.attname, c.atttypid AS declared, c.atttypid AS type, c.atttypmod AS modifier, c.attnotnull AS forbidden
  FROM pg_attribute c
  WHERE c.attrelid = to_regclass($1) AND c.attnum > 0 AND NOT c.attisdropped
  UNION ALL
  SELECT d.attname, d.declared, t.typbasetype, t.typtypmod, d.forbidden OR t.typnotnull
  FROM types d JOIN pg_type t ON t.oid = d.type AND t.typtype = 'd'
)
SELECT d.attname::text AS name, CASE WHEN t.typtype = 'e' THEN 'enum'
    WHEN t.typname = 'numeric' AND d.modifier >= 4 AND (d.modifier - 4) & 2047 = 0 THEN '${WHOLE_NUMERIC}'
    WHEN t.typname = 'numeric' THEN format_type(d.type, d.modifier) ELSE t.typname::text END AS type, format_type(d.declared, -1) AS cast_name,
  NOT d.forbidden AS nullable,
  CASE WHEN t.typname IN ('varchar', 'bpchar') AND d.modifier > 4 THEN d.modifier - 4 END AS length
FROM types d JOIN pg_type t ON t.oid = d.type
WHERE t.typtype <> 'd'`;

/** `INSTEAD OF` triggers are only on views. Rules on partitions of the table count for none of our statements. */
const OBSTACLES: Statement = statement("schema.obstacles(table, columns)")`
WITH t AS (SELECT c.oid, c.relkind IN ('r', 'p') AS is_table FROM pg_class c WHERE c.oid = to_regclass($1))
SELECT 'view' AS kind, '' AS name FROM t WHERE NOT t.is_table
UNION ALL
SELECT 'rule', quote_ident(r.rulename) FROM t JOIN pg_rewrite r ON r.ev_class = t.oid
WHERE t.is_table AND r.ev_type <> '1' AND r.ev_enabled IN ('O', 'A')
UNION ALL
SELECT 'generated', quote_ident(k.attname) FROM t JOIN pg_attribute k ON k.attrelid = t.oid
WHERE k.attgenerated <> '' AND NOT k.attisdropped AND k.attname = ANY ($2::text[])
UNION ALL
SELECT 'policy', '' FROM t WHERE t.is_table AND row_security_active(t.oid)
ORDER BY 1, 2`;

const INDEXES: Statement = statement("schema.indexes(table)")`
SELECT i.indisunique AND i.indimmediate AS unique, i.indpred IS NULL AS whole, ARRAY(
  SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
  LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
  WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS columns
FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisvalid`;
