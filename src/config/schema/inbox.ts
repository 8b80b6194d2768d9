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
      description: "Prefix of every HTTP source path; the source's name is not part of the path.",
    },
    maxBodyBytes: {
      type: "integer",
      minimum: 1,
      default: 1048576,
      description: "Largest request body on every data-port route.",
    },
    credentialHeaders: {
      type: "array",
      items: { type: "string", syntax: "headerName" },
      default: [],
      description:
        "Further headers of HTTP sources that carry credentials: neither stored, nor shown to transforms, nor handed on.",
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
          description: "Wait between relay cycles.",
        },
        batchSize: { type: "integer", minimum: 1, default: 100, description: "Most rows per cycle." },
        claimTimeoutMs: {
          type: "integer",
          unit: "ms",
          minimum: 0,
          default: 300000,
          description: "A claim older than this returns to `pending`.",
        },
        pendingGaugeIntervalMs: {
          type: "integer",
          unit: "ms",
          minimum: 0,
          default: 5000,
          description: "Interval of the query for the oldest pending inbox row.",
        },
        maxAttempts: {
          type: "integer",
          minimum: 1,
          maximum: 2147483647,
          defaultText: "`outbox.maxAttempts`",
          description: "Written into `max_attempts` of the outbox rows the relay creates.",
        },
      },
    },
    pull: {
      type: "object",
      default: {},
      description: "Routes with which a pull client claims rows of sources with `consumption: pull`.",
      properties: {
        enabled: { type: "boolean", default: false, description: "With `false` the pull routes do not exist (404)." },
        auth: { ...inboundAuthSchema, description: "Credentials that a pull client must show." },
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
          description: "Lease of a claim that names none.",
        },
        maxAttempts: {
          type: "integer",
          minimum: 1,
          maximum: 2147483647,
          default: 5,
          description: "A row that was claimed this often without being acknowledged becomes `dead`.",
        },
      },
    },
  },
} as const;
