import { inboundAuthSchema } from "../../adapters/sources/http/schema.ts";

/** Section `inbox` (spec, "inbox"; design, "Pull rows"). */
export const inboxSchema = {
  type: "object",
  default: {},
  description: "Receipt over HTTP, the relay into the outbox, and pull clients.",
  properties: {
    basePath: {
      type: "string",
      syntax: "urlPath",
      default: "/inbox",
      description: "Prefix of every HTTP source path.",
    },
    maxBodyBytes: {
      type: "integer",
      minimum: 1,
      default: 1048576,
      description: "Largest request body on the data port.",
    },
    credentialHeaders: {
      type: "array",
      items: { type: "string", syntax: "headerName" },
      default: [],
      description: "Further credential headers of HTTP sources: not stored, not forwarded, hidden from transforms.",
    },
    relay: {
      type: "object",
      default: {},
      description: "The relay: copies push rows into the outbox.",
      properties: {
        enabled: { type: "boolean", default: true, description: "With `false` push rows stay in the inbox." },
        pollIntervalMs: {
          type: "integer",
          unit: "ms",
          minimum: 0,
          default: 100,
          description: "Wait between relay passes.",
        },
        batchSize: { type: "integer", minimum: 1, default: 100, description: "Most rows per pass." },
        claimTimeoutMs: {
          type: "integer",
          unit: "ms",
          minimum: 0,
          default: 300000,
          description: "No effect: the relay moves rows in one transaction, without claims.",
        },
        pendingGaugeIntervalMs: {
          type: "integer",
          unit: "ms",
          minimum: 0,
          default: 5000,
          description: "Interval of the query for the oldest pending row.",
        },
        maxAttempts: {
          type: "integer",
          minimum: 1,
          maximum: 2147483647,
          defaultText: "`outbox.maxAttempts`",
          description: "`max_attempts` of outbox rows the relay creates.",
        },
      },
    },
    pull: {
      type: "object",
      default: {},
      description: "Routes for clients of sources with `consumption: pull`.",
      properties: {
        enabled: { type: "boolean", default: false, description: "With `false` the pull routes do not exist (404)." },
        auth: { ...inboundAuthSchema, description: "Credentials of pull clients." },
        basePath: {
          type: "string",
          syntax: "urlPath",
          default: "/pull",
          description: "Prefix of the pull routes: `POST <basePath>/<source>/claim`, `/ack`, `/nack`, `/extend`.",
        },
        leaseMs: {
          type: "integer",
          unit: "ms",
          exclusiveMinimum: 0,
          default: 30000,
          description: "Default lease of a claim.",
        },
        maxAttempts: {
          type: "integer",
          minimum: 1,
          maximum: 2147483647,
          default: 5,
          description: "Claims without acknowledgement after which a row is `dead`.",
        },
      },
    },
  },
} as const;
