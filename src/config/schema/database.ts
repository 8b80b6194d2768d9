import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../model/rows.ts";
import { block, boolean, integer, list, ms, section, text } from "../../model/schema.ts";

const column = (name: string) => text("Column name.", { syntax: "identifier", default: name });

function columnProperties<K extends string>(columns: Readonly<Record<K, string>>) {
  const properties = Object.entries<string>(columns).map(([key, name]) => [key, column(name)] as const);
  return Object.fromEntries(properties) as Readonly<Record<K, ReturnType<typeof column>>>;
}

const cellSchema = block("A cell: the tables, in a database or schema of their own.", ["name"], {
  name: text("Name in commands, logs and metrics.", { syntax: "captureName" }),
  url: text("JDBC URL; the user is that of `database`.", { url: true, defaultText: "`database.url`" }),
  schema: text("Schema in the database of `database.url`; PostgreSQL only.", { syntax: "identifier" }),
});

/** Section `database` (spec, "database"). */
export const databaseSchema = section(
  "The database of inbox and outbox.",
  {
    type: text("Must match `url`.", { enum: ["postgresql", "sqlserver"], default: "postgresql" }),
    url: text("[JDBC URL](#jdbc-urls), such as `jdbc:postgresql://host:5432/name`.", { url: true }),
    username: text("User name."),
    password: text("Password.", { secret: true }),
    poolSize: integer(
      "Connections per replica and database, which [cells](cells.md#what-processes-share) share; set it above `outbox.concurrency`. Of three or more, one is reserved for receipts and one for all other work.",
      { minimum: 1, default: 10 },
    ),
    connectionTimeoutMs: ms("Longest wait for a pooled connection.", { minimum: 0, default: 30000 }),
    startupTimeoutMs: ms("Longest wait for the database at startup, without migrations.", {
      minimum: 0,
      default: 60000,
    }),
    migrate: boolean("Migrate at startup. Must be `false` with renamed tables or columns.", { default: true }),
    cells: list("[Cells](cells.md): a list, or on PostgreSQL their number. Choose number and order once.", cellSchema, {
      default: [],
      orCount: 1024,
    }),
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
