import type { Infer } from "../../../model/schema.ts";

/** Credentials that an HTTP destination sends (spec, "HTTP destination auth"). */
const httpDestinationAuthSchema = {
  kinds: {
    oauth2: {
      type: "object",
      description:
        "Client credentials grant: fetches a token from `tokenUrl`, caches it, sends `Authorization: Bearer <token>`.",
      required: ["clientId", "clientSecret", "tokenUrl"],
      properties: {
        clientId: { type: "string", syntax: "notBlank", description: "Client identifier." },
        clientSecret: { type: "string", secret: true, description: "Client secret." },
        tokenUrl: {
          type: "string",
          url: true,
          syntax: "httpUrl",
          description: "Token endpoint; same rules as `baseUrl`.",
        },
        scope: { type: "string", description: "Scope asked for." },
        extraParams: {
          type: "object",
          additionalProperties: { type: "string" },
          default: {},
          description: "Extra form parameters of the token request.",
        },
      },
    },
    basic: {
      type: "object",
      description: "Sends `Authorization: Basic <credentials>`.",
      required: ["username", "password"],
      properties: {
        username: { type: "string", description: "User name." },
        password: { type: "string", secret: true, description: "Password." },
      },
    },
    header: {
      type: "object",
      description: "Sends a fixed header.",
      required: ["headerValue"],
      properties: {
        headerName: {
          type: "string",
          syntax: "headerName",
          default: "Authorization",
          description: "Name of the header.",
        },
        headerValue: { type: "string", secret: true, description: "Whole value of the header." },
      },
    },
  },
} as const;

/** How an HTTP destination signs its requests. */
const signingSchema = {
  type: "object",
  description: "Signs each request, so that the receiver can verify who sent it.",
  required: ["scheme", "secrets"],
  properties: {
    scheme: {
      type: "string",
      enum: ["standard-webhooks", "hmac"],
      description:
        "`standard-webhooks`: `webhook-id` (the id of the row), `webhook-timestamp` and `webhook-signature`. `hmac`: one header, as a source with `auth` of kind `hmac` verifies.",
    },
    secrets: {
      type: "array",
      items: { type: "string", secret: true, minLength: 1 },
      minItems: 1,
      description:
        "Every secret signs: during a rotation the new and the old one. Of `standard-webhooks` base64, with or without `whsec_`.",
    },
    headerName: {
      type: "string",
      syntax: "headerName",
      default: "X-Signature",
      description: "`hmac`: name of the header. Several signatures are separated by a comma.",
    },
    algorithm: {
      type: "string",
      enum: ["HmacSHA256", "HmacSHA512"],
      default: "HmacSHA256",
      description: "`hmac`: digest.",
    },
    signaturePrefix: {
      type: "string",
      default: "sha256=",
      description: "`hmac`: text before each hexadecimal signature.",
    },
    timestampHeader: {
      type: "string",
      syntax: "headerName",
      description:
        "`hmac`: header with the time in Unix milliseconds; then time, dot and body are signed, else the body.",
    },
  },
} as const;

/** Several messages in one request. */
const batchSchema = {
  type: "object",
  description: "Sends deliveries that run at the same time in one request. `{}` enables it.",
  properties: {
    maxMessages: {
      type: "integer",
      minimum: 1,
      maximum: 10000,
      default: 100,
      description: "Most messages of a request; `outbox.concurrency` bounds it too.",
    },
    maxBytes: {
      type: "integer",
      minimum: 1,
      default: 1048576,
      description: "Most bytes of a request; a larger message goes alone.",
    },
    maxWaitMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      maximum: 10000,
      default: 10,
      description: "Longest wait for further messages.",
    },
    format: {
      type: "string",
      enum: ["array", "ndjson"],
      default: "array",
      description: "A JSON array, or a line of JSON for each message (`application/x-ndjson`).",
    },
  },
} as const;

const STATUS = { type: "integer", minimum: 300, maximum: 599 } as const;

/** What a PEM key holds; `file:` reads it from a file. */
const tlsSchema = {
  type: "object",
  description: "TLS of the receiver and the token endpoint. Each text is PEM, or `file:<path>`.",
  properties: {
    ca: {
      type: "string",
      secret: true,
      description: "Authorities that may sign the receiver's certificate, in place of the usual ones.",
    },
    certificate: { type: "string", secret: true, description: "Client certificate; needs `key`." },
    key: { type: "string", secret: true, description: "Private key of `certificate`." },
    serverName: { type: "string", syntax: "notBlank", description: "Name that the certificate must have." },
  },
} as const;

/** Keys of an HTTP destination (spec, "HTTP destination"; design, "Private addresses"). */
export const httpDestinationSchema = {
  type: "object",
  description:
    "POST with the payload as JSON body. A 2xx status completes the delivery; redirects are not followed. Values of `headers` may have placeholders, as `path`.",
  required: ["baseUrl"],
  properties: {
    baseUrl: {
      type: "string",
      url: true,
      syntax: "httpUrl",
      description: "Absolute `http` or `https` URL without user name or password.",
    },
    path: {
      type: "string",
      syntax: "pathTemplate",
      default: "/",
      description:
        "Path behind `baseUrl`; no `.` or `..` segment. With placeholders (`/orders/{{ key }}`), as addresses of brokers; values are percent-encoded.",
    },
    method: {
      type: "string",
      enum: ["POST", "PUT", "PATCH", "DELETE"],
      default: "POST",
      description: "Method of the request.",
    },
    timeoutMs: { type: "integer", unit: "ms", minimum: 0, default: 30000, description: "Request timeout." },
    successStatuses: {
      type: "array",
      items: STATUS,
      default: [],
      description: "Statuses besides 2xx that complete the delivery, such as 409.",
    },
    deadStatuses: {
      type: "array",
      items: STATUS,
      default: [],
      description: "Statuses after which the row is not tried again, such as 410: it is dead, or parked, at once.",
    },
    batch: batchSchema,
    signing: signingSchema,
    tls: tlsSchema,
    proxy: {
      type: "string",
      url: true,
      syntax: "proxy",
      defaultText: "`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`",
      description: "Proxy such as `http://proxy.internal:3128`, or `none`. The address checks then see the URL alone.",
    },
    auth: { ...httpDestinationAuthSchema, description: "Credentials to send." },
    allowMetadataAddress: {
      type: "boolean",
      default: false,
      description: "Allow cloud metadata addresses such as `169.254.169.254`.",
    },
  },
} as const;

export type HttpBatch = Infer<typeof batchSchema>;
export type HttpSigning = Infer<typeof signingSchema>;
export type HttpDestinationAuth = Infer<typeof httpDestinationAuthSchema>;
export type HttpDestinationConfig = Infer<typeof httpDestinationSchema>;
