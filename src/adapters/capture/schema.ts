import { boolean, integer, ms, section, text } from "../../model/schema.ts";

const FROM_URL = "from `database.url`";

/** Keys of `outbox.capture` (spec, "outbox.capture"): what wakes the poller when the database log shows an insert. */
export const captureSchema = section(
  "Change capture: wakes the poller when the database's log shows an outbox insert.",
  {
    mode: text("`postgres-logical` needs PostgreSQL, `sqlserver-cdc` needs SQL Server.", {
      enum: ["polling", "postgres-logical", "sqlserver-cdc"],
      default: "polling",
    }),
    enabled: boolean("`true` on the one replica that captures; needs a mode other than `polling`.", { default: false }),
    identity: text("Name of the capture's owner.", { syntax: "captureName", default: "svc" }),
    stateDirectory: text("Durable directory for the position; required when `enabled`.", { default: "" }),
    schema: text("Schema of the outbox table.", {
      syntax: "identifier",
      defaultText: "`public` (PostgreSQL), `dbo` (SQL Server)",
    }),
    publication: text("Publication; PostgreSQL only. The service never creates it.", {
      syntax: "captureName",
      default: "svc_outbox",
    }),
    slot: text("Replication slot, created on the first start; PostgreSQL only.", {
      syntax: "captureName",
      default: "svc_outbox",
    }),
    reconciliationIntervalMs: ms("Longest wait of the poller when no event arrives.", {
      exclusiveMinimum: 0,
      default: 1000,
    }),
    connection: section("Where the capture connects. It needs one server, not a pooler.", {
      hostname: text("Host; required when `database.url` names several.", {
        syntax: "notBlank",
        defaultText: FROM_URL,
      }),
      port: integer("Port.", { minimum: 1, maximum: 65535, defaultText: FROM_URL }),
      database: text("Database.", { syntax: "notBlank", defaultText: FROM_URL }),
      username: text("User name.", { defaultText: "`database.username`" }),
      password: text("Password.", { secret: true, defaultText: "`database.password`" }),
      encrypt: boolean("Encrypt the connection; SQL Server only.", { default: true }),
      trustServerCertificate: boolean("Accept any server certificate; SQL Server only.", { default: false }),
    }),
  },
);
