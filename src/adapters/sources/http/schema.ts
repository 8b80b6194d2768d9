import type { Infer } from "../../../model/schema.ts";

/** Credentials of callers: HTTP sources, the admin routes and the pull routes (spec, "Source auth kinds"). */
export const inboundAuthSchema = {
  kinds: {
    bearer: {
      type: "object",
      description: "`Authorization: Bearer <token>`; the scheme in any letter case.",
      required: ["token"],
      properties: {
        token: { type: "string", secret: true, minLength: 1, description: "The token." },
      },
    },
    "api-key": {
      type: "object",
      description: "A header carries the key.",
      required: ["key"],
      properties: {
        key: { type: "string", secret: true, minLength: 1, description: "Value of the key header." },
        headerName: {
          type: "string",
          syntax: "headerName",
          default: "X-API-Key",
          description: "Name of the key header.",
        },
      },
    },
    hmac: {
      type: "object",
      description: "A header carries a hexadecimal HMAC of the body.",
      required: ["secret"],
      properties: {
        secret: { type: "string", secret: true, minLength: 1, description: "HMAC key." },
        headerName: {
          type: "string",
          syntax: "headerName",
          default: "X-Signature",
          description: "Name of the signature header.",
        },
        algorithm: {
          type: "string",
          enum: ["HmacSHA256", "HmacSHA512"],
          default: "HmacSHA256",
          description: "Digest.",
        },
        signaturePrefix: {
          type: "string",
          default: "sha256=",
          description: "Text before the hexadecimal signature.",
        },
        timestampHeader: {
          type: "string",
          syntax: "headerName",
          description: "Header with the time of the request in Unix milliseconds.",
        },
        timestampTolerance: {
          type: "integer",
          unit: "ms",
          exclusiveMinimum: 0,
          default: 300000,
          description: "Largest allowed difference from the clock.",
        },
        signaturePayloadFormat: {
          type: "string",
          enum: ["body", "BODY", "timestamp-dot-body", "TIMESTAMP_DOT_BODY"],
          defaultText: "`TIMESTAMP_DOT_BODY` with `timestampHeader`, else `BODY`",
          description: "What is signed: the body, or timestamp, dot and body, which needs `timestampHeader`.",
        },
      },
    },
  },
} as const;

/** Keys of an HTTP source (spec, "HTTP source keys"). */
export const httpSourceSchema = {
  type: "object",
  description: "A route `POST <inbox.basePath><path>`.",
  required: ["path", "idempotencyKeyPath"],
  properties: {
    path: { type: "string", syntax: "urlPath", description: "Path after `inbox.basePath`." },
    auth: {
      ...inboundAuthSchema,
      description: "Credentials of callers. Without it, any caller is accepted.",
    },
  },
} as const;

type DeclaredAuth = Infer<typeof inboundAuthSchema>;
type DeclaredHmac = Extract<DeclaredAuth, { readonly kind: "hmac" }>;

export type SignaturePayloadFormat = "BODY" | "TIMESTAMP_DOT_BODY";
export type HmacAuth = Omit<DeclaredHmac, "signaturePayloadFormat"> & {
  readonly signaturePayloadFormat: SignaturePayloadFormat;
};
/** Inbound credentials with all defaults applied. */
export type InboundAuth = Exclude<DeclaredAuth, DeclaredHmac> | HmacAuth;
