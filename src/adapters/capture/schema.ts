/** Keys of `outbox.capture` (spec, "outbox.capture"): what wakes the poller when the database log shows an insert. */
export const captureSchema = {
  type: "object",
  default: {},
  description: "Change capture: wakes the poller when the database's log shows an outbox insert.",
  properties: {
    mode: {
      type: "string",
      enum: ["polling", "postgres-logical", "sqlserver-cdc"],
      default: "polling",
      description: "`postgres-logical` needs PostgreSQL, `sqlserver-cdc` needs SQL Server.",
    },
    enabled: {
      type: "boolean",
      default: false,
      description: "`true` on the one replica that captures; needs a mode other than `polling`.",
    },
    identity: { type: "string", syntax: "captureName", default: "svc", description: "Name of the capture's owner." },
    stateDirectory: {
      type: "string",
      default: "",
      description: "Durable directory for the position; required when `enabled`.",
    },
    schema: {
      type: "string",
      syntax: "identifier",
      defaultText: "`public` (PostgreSQL), `dbo` (SQL Server)",
      description: "Schema of the outbox table.",
    },
    publication: {
      type: "string",
      syntax: "captureName",
      default: "svc_outbox",
      description: "Publication; PostgreSQL only. The service never creates it.",
    },
    slot: {
      type: "string",
      syntax: "captureName",
      default: "svc_outbox",
      description: "Replication slot, created on the first start; PostgreSQL only.",
    },
    reconciliationIntervalMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 1000,
      description: "Longest wait of the poller when no event arrives.",
    },
    connection: {
      type: "object",
      default: {},
      description: "Where the capture connects. It needs one server, not a pooler.",
      properties: {
        hostname: {
          type: "string",
          syntax: "notBlank",
          defaultText: "from `database.url`",
          description: "Host; required when `database.url` names several.",
        },
        port: {
          type: "integer",
          minimum: 1,
          maximum: 65535,
          defaultText: "from `database.url`",
          description: "Port.",
        },
        database: {
          type: "string",
          syntax: "notBlank",
          defaultText: "from `database.url`",
          description: "Database.",
        },
        username: { type: "string", defaultText: "`database.username`", description: "User name." },
        password: { type: "string", secret: true, defaultText: "`database.password`", description: "Password." },
        encrypt: { type: "boolean", default: true, description: "Encrypt the connection; SQL Server only." },
        trustServerCertificate: {
          type: "boolean",
          default: false,
          description: "Accept any server certificate; SQL Server only.",
        },
      },
    },
  },
} as const;
