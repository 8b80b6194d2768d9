import { inboundAuthSchema } from "../../adapters/sources/http/schema.ts";
import { transformSchema } from "./blocks.ts";

/** The small sections (spec, "server", "http", "admin", "routes", "retention"). */

export const serverSchema = {
  type: "object",
  default: {},
  description: "Ports and bounds of the HTTP servers. The service listens on plain HTTP.",
  properties: {
    httpPort: {
      type: "integer",
      minimum: 1,
      maximum: 65535,
      default: 8080,
      description: "Data port (inbox routes).",
    },
    managementPort: {
      type: "integer",
      minimum: 1,
      maximum: 65535,
      description:
        "Port for health, metrics and admin; must differ from `httpPort`. When set, the data port answers 404 on those paths.",
    },
    host: {
      type: "string",
      syntax: "bindAddress",
      defaultText: "every address of the machine",
      description: "Address the data port listens on, such as `127.0.0.1` or `::1`.",
    },
    managementHost: {
      type: "string",
      syntax: "bindAddress",
      defaultText: "`server.host`",
      description: "Address the management port listens on.",
    },
    requestTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 1000,
      default: 60000,
      description: "Longest time from the first byte of a request to its last; then it is answered with 408.",
    },
    maxConnections: {
      type: "integer",
      minimum: 1,
      default: 4096,
      description: "Most open connections of each port; further ones are closed at once.",
    },
    maxBufferedBodyBytes: {
      type: "integer",
      minimum: 1,
      default: 67108864,
      description:
        "Most memory for request bodies that have not come whole yet, of all connections together. Bodies up to 16 KiB do not count. When it is used up, stalled bodies are given up, and further ones answered with 503.",
    },
  },
} as const;

export const httpSchema = {
  type: "object",
  default: {},
  description: "Applies to every HTTP destination.",
  properties: {
    maxErrorBodyBytes: {
      type: "integer",
      minimum: 0,
      default: 2048,
      description:
        "Most bytes of a failed response's body kept; secret values are removed before it is logged or stored.",
    },
    blockPrivateAddresses: {
      type: "boolean",
      default: false,
      description:
        "Refuse a `baseUrl` or `tokenUrl` whose host resolves to a loopback, link-local, site-local or unique-local address.",
    },
  },
} as const;

export const adminSchema = {
  type: "object",
  default: {},
  description: "The admin routes: transform test and replay.",
  properties: {
    enabled: { type: "boolean", default: false, description: "With `false` the admin routes do not exist (404)." },
    auth: {
      ...inboundAuthSchema,
      description: "Credentials that a caller must show; required when `enabled`, unless `insecure`.",
    },
    insecure: {
      type: "boolean",
      default: false,
      description: "Allow admin routes without `auth` (local test only).",
    },
    maxTransformTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 1000,
      description: "Upper bound for a caller's `timeoutMs`.",
    },
    maxPayloadBytes: { type: "integer", minimum: 1, default: 65536, description: "Largest admin request body." },
  },
} as const;

export const routesSchema = {
  type: "array",
  default: [],
  description:
    "Which topic goes to which destination: tested in this order, the first match wins. A row that matches no route goes dead.",
  items: {
    type: "object",
    required: ["topicPattern", "destination"],
    description: "A route.",
    properties: {
      topicPattern: {
        type: "string",
        syntax: "topicPattern",
        description:
          "Glob on the whole topic: `*` matches one segment without a dot, `**` any text, everything else itself.",
      },
      destination: { type: "string", description: "Name of a destination." },
      routingKeyTemplate: {
        type: "string",
        syntax: "routingKey",
        description: "AMQP routing key or log-broker record key for this route; wins over the destination's template.",
      },
      routingKeyMissingFieldDefault: {
        type: "string",
        default: "",
        description: "Value of a placeholder that finds none.",
      },
      transform: { ...transformSchema, description: "Runs before the destination's transform." },
      onExhausted: {
        type: "string",
        enum: ["dead", "park"],
        default: "dead",
        description:
          "What becomes of a row whose attempts are used up, or which the receiver refuses for good: `dead`, and the next row of its key is delivered; `park`: the row stays first of its key, whose later rows wait until somebody retries or discards it (`svc parked`).",
      },
    },
  },
} as const;

const retentionKeys = {
  maxAge: { type: "string", duration: true, description: "Age at which a row is deleted; required by `AGE`." },
  cleanupInterval: { type: "string", duration: true, default: "1h", description: "Wait between two passes." },
  batchSize: { type: "integer", minimum: 1, default: 1000, description: "Most rows per delete statement." },
} as const;

export const retentionSchema = {
  type: "object",
  default: {},
  description: "Deletes old finished rows in batches; never a row that waits or runs.",
  properties: {
    enabled: { type: "boolean", default: false, description: "The blocks below apply only when `true`." },
    outbox: {
      type: "object",
      default: {},
      description: "Retention of `sent` and `dead` outbox rows.",
      properties: {
        policy: {
          type: "string",
          enum: ["AGE", "COUNT", "DISABLED"],
          default: "DISABLED",
          description: "`AGE` counts from `updated_at`; `COUNT` keeps that many `sent` and that many `dead` rows.",
        },
        maxCount: { type: "integer", minimum: 1, description: "Rows kept of each state; required by `COUNT`." },
        ...retentionKeys,
      },
    },
    inbox: {
      type: "object",
      default: {},
      description: "Retention of `processed` and `dead` inbox rows.",
      properties: {
        policy: {
          type: "string",
          enum: ["AGE", "DISABLED"],
          default: "DISABLED",
          description: "`AGE` counts from `created_at`.",
        },
        ...retentionKeys,
      },
    },
  },
} as const;
