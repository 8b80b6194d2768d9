import type { Infer } from "../../../model/schema.ts";
import type { Secret } from "../../../model/secret.ts";
import { PROVIDER_NAMES } from "./providers/index.ts";

const CREDENTIAL = { type: "string", secret: true, minLength: 1 } as const;

/** A credential, or several, each of them enough: the new and the old one while callers change over. */
function credential<const One extends string, const Many extends string>(one: One, many: Many, description: string) {
  const instead = `Instead of \`${one}\`; any one passes.`;
  const several = { type: "array", minItems: 1, items: CREDENTIAL, description: instead } as const;
  return { [one]: { ...CREDENTIAL, description }, [many]: several } as {
    readonly [K in One]: typeof CREDENTIAL & { readonly description: string };
  } & { readonly [K in Many]: typeof several };
}

/** A list of texts, one at least. */
const texts = (description: string) =>
  ({ type: "array", minItems: 1, items: { type: "string", syntax: "notBlank" }, description }) as const;

/** Credentials of callers: HTTP sources, the admin routes and the pull routes (spec, "Source auth kinds"). */
export const inboundAuthSchema = {
  kinds: {
    provider: {
      type: "object",
      description: "Signed by a known provider. Sources only.",
      required: ["provider"],
      properties: {
        provider: {
          type: "string",
          enum: PROVIDER_NAMES,
          description: "One of the [providers](webhooks/README.md#providers).",
        },
        ...credential("secret", "secrets", "The provider's signing key or public key."),
        timestampTolerance: {
          type: "integer",
          unit: "ms",
          exclusiveMinimum: 0,
          defaultText: "300000; more for some providers",
          description: "Largest difference from the clock, if a time is signed.",
        },
        url: {
          type: "string",
          syntax: "httpUrl",
          description: "URL that the provider calls, without the query, if it is signed.",
        },
        webhookId: { type: "string", syntax: "notBlank", description: "Id of the webhook at PayPal." },
        ...credential("verifyToken", "verifyTokens", "Meta's verify token; without it, subscriptions are refused."),
      },
    },
    "client-certificate": {
      type: "object",
      description:
        "A proxy sends the client's certificate [in a header](http-api.md#client-certificate). Sources only.",
      required: ["certificateHeader", "trustedProxies"],
      properties: {
        certificateHeader: {
          type: "string",
          syntax: "headerName",
          description: "Header such as `X-Client-Cert`.",
        },
        trustedProxies: texts("Addresses and networks whose header is accepted, such as `10.0.0.0/8`."),
        fingerprints: texts("Certificates that pass: SHA-256 in hexadecimal."),
        commonNames: texts("Common names that pass."),
        subjectAltNames: texts("Alternative names that pass, such as `DNS:billing.example`."),
      },
    },
    bearer: {
      type: "object",
      description: "`Authorization: Bearer <token>`.",
      requiredAny: ["token", "tokens"],
      properties: credential("token", "tokens", "The token."),
    },
    "api-key": {
      type: "object",
      description: "A header carries the key.",
      requiredAny: ["key", "keys"],
      properties: {
        ...credential("key", "keys", "The key."),
        headerName: {
          type: "string",
          syntax: "headerName",
          default: "X-API-Key",
          description: "Header with the key.",
        },
      },
    },
    hmac: {
      type: "object",
      description: "A header carries an HMAC of the body.",
      requiredAny: ["secret", "secrets"],
      properties: {
        ...credential("secret", "secrets", "HMAC key."),
        headerName: {
          type: "string",
          syntax: "headerName",
          default: "X-Signature",
          description: "Header of the signature.",
        },
        algorithm: {
          type: "string",
          enum: ["HmacSHA256", "HmacSHA512", "HmacSHA384", "HmacSHA1"],
          default: "HmacSHA256",
          description: "Digest. `HmacSHA1` is weak.",
        },
        encoding: {
          type: "string",
          enum: ["hex", "base64", "base64url"],
          default: "hex",
          description: "Form of the signature.",
        },
        signaturePrefix: {
          type: "string",
          default: "sha256=",
          description: "Text before the signature.",
        },
        signatureField: {
          type: "string",
          syntax: "notBlank",
          description: "Field with the signature, such as `v1` of `t=…,v1=…`, in place of `signaturePrefix`.",
        },
        timestampHeader: {
          type: "string",
          syntax: "headerName",
          description: "Header with the time.",
        },
        timestampField: {
          type: "string",
          syntax: "notBlank",
          description: "Field with the time, such as `t`; needs `signatureField`.",
        },
        timestampUnit: {
          type: "string",
          enum: ["ms", "s"],
          default: "ms",
          description: "Unit of the Unix time.",
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
          enum: ["body", "BODY", "timestamp-dot-body", "TIMESTAMP_DOT_BODY", "timestamp-dot-request"],
          defaultText: "`TIMESTAMP_DOT_BODY` with `timestampHeader` or `timestampField`, else `BODY`",
          description: "[What is signed](http-api.md#hmac). Admin and pull routes need `timestamp-dot-request`.",
        },
        signedText: {
          type: "string",
          syntax: "notBlank",
          description:
            "What is signed, as a template with `{{ body }}`, `{{ timestamp }}`, `{{ method }}`, `{{ url }}`, `{{ path }}` (with query) and `{{ headers.<name> }}`.",
        },
        url: {
          type: "string",
          syntax: "httpUrl",
          description: "URL that senders call, without the query, for `{{ url }}`.",
        },
      },
    },
  },
} as const;

/** Keys of an HTTP source (spec, "HTTP source keys"). */
export const httpSourceSchema = {
  type: "object",
  description: "A route `POST <inbox.basePath><path>`.",
  required: ["path"],
  requiredAny: [
    "idempotencyKeyPath",
    "idempotencyKeyHeader",
    "idempotencyKeyExpression",
    "cloudEvents",
    "auth.provider",
  ],
  properties: {
    path: { type: "string", syntax: "urlPath", description: "Path after `inbox.basePath`." },
    auth: {
      ...inboundAuthSchema,
      description: "Credentials of callers. Without it, any caller is accepted.",
    },
    batch: {
      type: "object",
      default: {},
      description: "Requests with [several messages](http-api.md#several-messages-in-one-request).",
      properties: {
        path: {
          type: "string",
          syntax: "listPath",
          description: "[Messages](http-api.md#several-messages-in-one-request) in a JSON body, such as `$.events[*]`.",
        },
        atomic: {
          type: "boolean",
          default: false,
          description: "Store all messages of a request, or none.",
        },
        maxItems: {
          type: "integer",
          minimum: 1,
          default: 10_000,
          description: "Most messages per request; more get 413.",
        },
      },
    },
    webhookOrigins: {
      type: "array",
      minItems: 1,
      items: { type: "string" },
      description: "Senders of CloudEvents to confirm on `OPTIONS`, such as `eventgrid.azure.net`, or `*`.",
    },
  },
} as const;

export type DeclaredAuth = Infer<typeof inboundAuthSchema>;
export type DeclaredAuthOf<K extends DeclaredAuth["kind"]> = Extract<DeclaredAuth, { readonly kind: K }>;

export type ProviderAuth = DeclaredAuthOf<"provider"> & { readonly timestampTolerance: number };

export type HmacAuth = DeclaredAuthOf<"hmac"> & Required<Pick<DeclaredAuthOf<"hmac">, "signaturePayloadFormat">>;
/** Inbound credentials with all defaults applied. */
export type InboundAuth =
  | Exclude<DeclaredAuth, DeclaredAuthOf<"hmac"> | DeclaredAuthOf<"provider">>
  | HmacAuth
  | ProviderAuth;

/** The key of each kind for one credential, and the key for several; null for a kind without. */
export const CREDENTIAL_KEYS: Readonly<Record<InboundAuth["kind"], readonly [one: string, many: string] | null>> = {
  bearer: ["token", "tokens"],
  "api-key": ["key", "keys"],
  hmac: ["secret", "secrets"],
  provider: ["secret", "secrets"],
  "client-certificate": null,
};

/** The credentials of a block, each of them enough; the first is the newest. */
export function secretsOf(auth: DeclaredAuth | InboundAuth): readonly string[] {
  return credentialsOf(auth).map((secret) => secret.reveal());
}

/** The tokens of Meta's subscriptions. */
export function verifyTokensOf({
  verifyToken,
  verifyTokens,
}: DeclaredAuthOf<"provider"> | ProviderAuth): readonly Secret[] {
  return [verifyToken ?? [], verifyTokens ?? []].flat();
}

/** The same as secrets, whose values may change; none for a certificate. */
export function credentialsOf(auth: DeclaredAuth | InboundAuth): readonly Secret[] {
  const keys = CREDENTIAL_KEYS[auth.kind];
  if (keys === null) return [];
  const [one, many] = keys;
  const block = auth as unknown as Readonly<Record<string, Secret | readonly Secret[] | undefined>>;
  return [block[one] ?? [], block[many] ?? []].flat() as readonly Secret[];
}
