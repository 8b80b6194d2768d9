import { inboundAuthSchema } from "../../adapters/sources/http/schema.ts";
import { transformSchema } from "./blocks.ts";

/** The small sections (spec, "server", "http", "admin", "routes", "retention"). */

export const serverSchema = {
  type: "object",
  default: {},
  description: "Ports and limits of the HTTP servers (plain HTTP).",
  properties: {
    httpPort: {
      type: "integer",
      minimum: 1,
      maximum: 65535,
      default: 8080,
      description: "Data port.",
    },
    managementPort: {
      type: "integer",
      minimum: 1,
      maximum: 65535,
      description:
        "Port for health, metrics and admin, which the data port then answers with 404; must differ from `httpPort`.",
    },
    host: {
      type: "string",
      syntax: "bindAddress",
      defaultText: "every address of the machine",
      description: "Address of the data port, such as `127.0.0.1` or `::1`.",
    },
    managementHost: {
      type: "string",
      syntax: "bindAddress",
      defaultText: "`server.host`",
      description: "Address of the management port.",
    },
    requestTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 1000,
      default: 60000,
      description: "Longest time from a request's first byte to its last; then 408.",
    },
    maxConnections: {
      type: "integer",
      minimum: 1,
      default: 4096,
      description: "Most connections per port; further ones are closed at once.",
    },
    maxBufferedBodyBytes: {
      type: "integer",
      minimum: 1,
      default: 67108864,
      description:
        "Memory for all unfinished request bodies above 16 KiB together. When it is used up, stalled bodies, then new ones, get 503.",
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
      description: "Most bytes kept of a failed response's body.",
    },
    blockPrivateAddresses: {
      type: "boolean",
      default: false,
      description:
        "Refuse a `baseUrl` or `tokenUrl` that resolves to a loopback, link-local, private or reserved address.",
    },
  },
} as const;

export const adminSchema = {
  type: "object",
  default: {},
  description: "The admin routes.",
  properties: {
    enabled: { type: "boolean", default: false, description: "With `false` the admin routes do not exist (404)." },
    auth: {
      ...inboundAuthSchema,
      description: "Credentials of callers; required when `enabled`, unless `insecure`.",
    },
    insecure: {
      type: "boolean",
      default: false,
      description: "Allow admin routes without `auth` (local tests only).",
    },
    maxTransformTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 1000,
      description: "Upper limit of a caller's `timeoutMs`.",
    },
    maxPayloadBytes: { type: "integer", minimum: 1, default: 65536, description: "Largest admin request body." },
  },
} as const;

export const routesSchema = {
  type: "array",
  default: [],
  description: "Which topic goes to which destination. The first match wins; a row without a match goes dead.",
  items: {
    type: "object",
    required: ["topicPattern", "destination"],
    description: "A route.",
    properties: {
      topicPattern: {
        type: "string",
        syntax: "topicPattern",
        description: "Glob on the whole topic: `*` matches text without a dot, `**` any text.",
      },
      destination: { type: "string", description: "Name of a destination." },
      routingKeyTemplate: {
        type: "string",
        syntax: "routingKey",
        description: "RabbitMQ routing key or Kafka record key; wins over the destination's template.",
      },
      routingKeyMissingFieldDefault: {
        type: "string",
        default: "",
        description: "Value of a placeholder without one.",
      },
      transform: { ...transformSchema, description: "Runs before the destination's transform." },
      onExhausted: {
        type: "string",
        enum: ["dead", "park"],
        default: "dead",
        description:
          "What becomes of a row out of attempts or refused for good: `dead`, and the next row of its key is delivered; `park`: later rows of its key wait until it is retried or discarded (`svc parked`).",
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
  description: "Deletes old finished rows, never pending or processing ones.",
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
