import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../model/rows.ts";
import { block, boolean, integer, list, ms, section, text } from "../../model/schema.ts";

const column = (name: string) => text("Name of this column.", { syntax: "identifier", default: name });

function columnProperties<K extends string>(columns: Readonly<Record<K, string>>) {
  const properties = Object.entries<string>(columns).map(([key, name]) => [key, column(name)] as const);
  return Object.fromEntries(properties) as Readonly<Record<K, ReturnType<typeof column>>>;
}

const cellSchema = block("A cell: the tables, in a database or schema of their own.", ["name"], {
  name: text("Name in commands, logs and metrics.", { syntax: "captureName" }),
  url: text("JDBC URL of its database; the user is that of `database`.", { url: true, defaultText: "`database.url`" }),
  schema: text("Its schema in the database of `database.url` (PostgreSQL).", { syntax: "identifier" }),
});

/** Section `database` (spec, "database"). */
export const databaseSchema = section(
  "The database of inbox and outbox.",
  {
    type: text("Database product; `url` must match it.", { enum: ["postgresql", "sqlserver"], default: "postgresql" }),
    url: text(
      "JDBC URL: `jdbc:postgresql://host:5432/name` or `jdbc:sqlserver://host:1433;databaseName=name`. Takes no `file:`.",
      { url: true },
    ),
    username: text("User name."),
    password: text("Password.", { secret: true }),
    poolSize: integer(
      "Connections per replica and database; set it above `outbox.concurrency`. If several [cells](cells.md) share them, each has at most half. Of three or more, one is reserved for receipts and one for all other work, so that a locked outbox table does not stop receipts, nor a locked inbox deliveries.",
      { minimum: 1, default: 10 },
    ),
    connectionTimeoutMs: ms("Longest wait for a pooled connection.", { minimum: 0, default: 30000 }),
    startupTimeoutMs: ms("Longest wait for the database at startup, without migrations.", {
      minimum: 0,
      default: 60000,
    }),
    migrate: boolean("Migrate at startup. Must be `false` with renamed tables or columns.", { default: true }),
    cells: list(
      "[Cells](cells.md) that share the load: a list, or on PostgreSQL their number. `4` makes four, named like their schemas, `<schema>_0` to `<schema>_3`; `<schema>` is `currentSchema` of `database.url`, else `public`. Number and order are chosen once.",
      cellSchema,
      { default: [], orCount: 1024 },
    ),
    outboxTableName: text("Outbox table.", { syntax: "identifier", default: "outbox" }),
    inboxTableName: text("Inbox table.", { syntax: "identifier", default: "inbox" }),
    destinationTableName: text("Table of pauses, circuit breakers and rates.", {
      syntax: "identifier",
      default: "outbox_destination",
    }),
    historyTableName: text("Table of attempts and operators' actions.", {
      syntax: "identifier",
      default: "outbox_history",
    }),
    operationsTablePrefix: text("Prefix of the tables for operators.", {
      syntax: "identifier",
      default: "outbox_",
    }),
    columnMapping: section("Column names that differ from the defaults.", {
      outbox: section("Columns of the outbox table.", columnProperties(OUTBOX_COLUMNS)),
      inbox: section("Columns of the inbox table.", columnProperties(INBOX_COLUMNS)),
    }),
  },
  ["url", "username", "password"],
);
