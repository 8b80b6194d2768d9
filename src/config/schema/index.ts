import { inboundAuthSchema } from "../../adapters/sources/http/schema.ts";
import { block, boolean, integer, list, ms, type SchemaNode, section, text } from "../../model/schema.ts";
import { databaseSchema } from "./database.ts";
import { destinationsSchema } from "./destinations.ts";
import {
  adminSchema,
  httpSchema,
  metricsSchema,
  retentionSchema,
  routesSchema,
  serverSchema,
  tracingSchema,
} from "./sections.ts";
import { sourcesSchema } from "./sources.ts";

const FROM_URL = "from `database.url`";

/** Keys of `outbox.capture` (spec, "outbox.capture"): what wakes the poller when the database log shows an insert. */
const captureSchema = section("Change capture: wakes the poller when the database's log shows an outbox insert.", {
  mode: text("`polling`, `postgres-logical` or `sqlserver-cdc`.", {
    enum: ["polling", "postgres-logical", "sqlserver-cdc"],
    default: "polling",
  }),
  enabled: boolean("Set `true` on one replica only; needs a mode other than `polling`.", { default: false }),
  identity: text("Name of the capture's owner.", { syntax: "captureName", default: "svc" }),
  stateDirectory: text("Durable directory for the position; required if `enabled`.", { default: "" }),
  schema: text("Schema of the outbox table.", {
    syntax: "identifier",
    defaultText: "`public` (PostgreSQL), `dbo` (SQL Server)",
  }),
  publication: text("Publication, which you create; PostgreSQL only.", {
    syntax: "captureName",
    default: "svc_outbox",
  }),
  slot: text("Replication slot, created at the first start; PostgreSQL only.", {
    syntax: "captureName",
    default: "svc_outbox",
  }),
  reconciliationIntervalMs: ms("Longest wait of the poller when no event arrives.", {
    exclusiveMinimum: 0,
    default: 1000,
  }),
  connection: section("The server to capture from, not a pooler.", {
    hostname: text("Host; required if `database.url` names several.", {
      syntax: "notBlank",
      defaultText: FROM_URL,
    }),
    port: integer("Port.", { minimum: 1, maximum: 65535, defaultText: FROM_URL }),
    database: text("Database.", { syntax: "notBlank", defaultText: FROM_URL }),
    username: text("User name.", { defaultText: "`database.username`" }),
    password: text("Password.", { secret: true, defaultText: "`database.password`" }),
    encrypt: boolean("SQL Server only.", { default: true }),
    trustServerCertificate: boolean("Accept any server certificate; SQL Server only.", { default: false }),
  }),
});

/** Section `outbox` (spec, "outbox"). */
const outboxSchema = section("The poller.", {
  pollIntervalMs: ms("Wait between claim cycles.", { exclusiveMinimum: 0, default: 100 }),
  batchSize: integer("Most rows per claim.", { minimum: 1, default: 100 }),
  concurrency: integer("Most deliveries in flight per process.", { minimum: 1, default: 8 }),
  retryBaseDelayMs: ms("A retry waits `retryBaseDelayMs * 2^attempt` plus up to 25 %, at most 60 s.", {
    minimum: 0,
    default: 1000,
  }),
  history: text("Attempts to store: `off` (none), `failures` or `all`.", {
    enum: ["off", "failures", "all"],
    default: "failures",
  }),
  maxAttempts: integer("`max_attempts` of rows the service creates.", {
    minimum: 1,
    maximum: 2147483647,
    default: 5,
  }),
  claimTimeoutMs: ms("Longest claim. Set it above the slowest delivery.", { minimum: 0, default: 300000 }),
  pendingGaugeIntervalMs: ms("Shortest interval of the pending gauge's query.", { minimum: 0, default: 5000 }),
  shutdownTimeoutMs: ms("Longest wait for deliveries in flight at shutdown.", { minimum: 0, default: 30000 }),
  capture: captureSchema,
});

/** Section `inbox` (spec, "inbox"; design, "Pull rows"). */
const inboxSchema = section("Receipt, relay and pull clients.", {
  basePath: text("Prefix of every HTTP source path.", { syntax: "urlPath", default: "/inbox" }),
  maxBodyBytes: integer("Largest request body on the data port.", { minimum: 1, default: 1048576 }),
  credentialHeaders: list(
    "Further [credential headers](security.md#callers-inbound-credentials) of HTTP sources.",
    { type: "string", syntax: "headerName" },
    { default: [] },
  ),
  relay: section("The relay: copies push rows into the outbox.", {
    enabled: boolean("With `false`, push rows stay in the inbox.", { default: true }),
    pollIntervalMs: ms("Wait between relay passes.", { minimum: 0, default: 100 }),
    batchSize: integer("Most rows per pass.", { minimum: 1, default: 100 }),
    claimTimeoutMs: ms("No effect.", { minimum: 0, default: 300000 }),
    pendingGaugeIntervalMs: ms("Interval of the query for the oldest pending row.", { minimum: 0, default: 5000 }),
    maxAttempts: integer("`max_attempts` of outbox rows the relay creates.", {
      minimum: 1,
      maximum: 2147483647,
      defaultText: "`outbox.maxAttempts`",
    }),
  }),
  pull: section("Routes for clients of sources with `consumption: pull`.", {
    enabled: boolean("Serve the [pull routes](pull.md).", { default: false }),
    auth: { ...inboundAuthSchema, description: "Credentials of pull clients." },
    basePath: text("Prefix of the pull routes.", {
      syntax: "urlPath",
      default: "/pull",
    }),
    leaseMs: ms("Default lease of a claim.", { exclusiveMinimum: 0, default: 30000 }),
    maxAttempts: integer("Claims without acknowledgement after which a row is `dead`.", {
      minimum: 1,
      maximum: 2147483647,
      default: 5,
    }),
  }),
});

/**
 * The whole configuration, declared once: its types (`Infer`), validation, environment names, JSON Schema and reference
 * page derive from it.
 */
export const configSchema = block("Configuration of svc.", [], {
  server: serverSchema,
  database: databaseSchema,
  outbox: outboxSchema,
  inbox: inboxSchema,
  http: httpSchema,
  admin: adminSchema,
  destinations: destinationsSchema,
  routes: routesSchema,
  sources: sourcesSchema,
  retention: retentionSchema,
  tracing: tracingSchema,
  metrics: metricsSchema,
}) satisfies SchemaNode;

/** The same schema without its literal types. */
export const rootSchema: SchemaNode = configSchema;
