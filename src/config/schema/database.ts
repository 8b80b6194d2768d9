import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../model/rows.ts";

interface ColumnSchema {
  readonly type: "string";
  readonly syntax: "identifier";
  readonly default: string;
  readonly description: string;
}

function columnProperties<K extends string>(columns: Readonly<Record<K, string>>): Readonly<Record<K, ColumnSchema>> {
  const properties = Object.entries<string>(columns).map(([key, column]): [string, ColumnSchema] => [
    key,
    { type: "string", syntax: "identifier", default: column, description: `Column of \`${key}\`.` },
  ]);
  return Object.fromEntries(properties) as Record<K, ColumnSchema>;
}

/** Section `database` (spec, "database"). */
export const databaseSchema = {
  type: "object",
  default: {},
  description: "The database that holds the inbox and the outbox.",
  required: ["url", "username", "password"],
  properties: {
    type: {
      type: "string",
      enum: ["postgresql", "sqlserver"],
      default: "postgresql",
      description: "Database product; `url` must match it.",
    },
    url: {
      type: "string",
      url: true,
      description:
        "JDBC URL: `jdbc:postgresql://host:5432/name` or `jdbc:sqlserver://host:1433;databaseName=name`. Takes no `file:`.",
    },
    username: { type: "string", description: "User name." },
    password: { type: "string", secret: true, description: "Password." },
    poolSize: {
      type: "integer",
      minimum: 1,
      default: 10,
      description: "Connections per replica, shared by all its roles. Keep it above `outbox.concurrency`.",
    },
    connectionTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 30000,
      description: "Longest wait for a pooled connection.",
    },
    startupTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 60000,
      description: "Longest wait for the database at startup, without migrations.",
    },
    migrate: {
      type: "boolean",
      default: true,
      description: "Apply the bundled migrations at startup. Must be `false` with renamed tables or columns.",
    },
    outboxTableName: {
      type: "string",
      syntax: "identifier",
      default: "outbox",
      description: "Outbox table.",
    },
    inboxTableName: {
      type: "string",
      syntax: "identifier",
      default: "inbox",
      description: "Inbox table.",
    },
    destinationTableName: {
      type: "string",
      syntax: "identifier",
      default: "outbox_destination",
      description: "Name of the table of pauses, circuit breakers and rates.",
    },
    columnMapping: {
      type: "object",
      default: {},
      description: "Column names that differ from the defaults.",
      properties: {
        outbox: {
          type: "object",
          default: {},
          description: "Columns of the outbox table.",
          properties: columnProperties(OUTBOX_COLUMNS),
        },
        inbox: {
          type: "object",
          default: {},
          description: "Columns of the inbox table.",
          properties: columnProperties(INBOX_COLUMNS),
        },
      },
    },
  },
} as const;
