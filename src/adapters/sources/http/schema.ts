import type { Infer } from "../../../model/schema.ts";
import type { Secret } from "../../../model/secret.ts";
import { PROVIDER_NAMES } from "./providers/index.ts";

const CREDENTIAL = { type: "string", secret: true, minLength: 1 } as const;

/** A credential, or several, each of them enough: the new and the old one while callers change over. */
function credential<const One extends string, const Many extends string>(one: One, many: Many, description: string) {
  const instead = `Several instead of \`${one}\`; any one passes.`;
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
      description:
        "The sender is a known [provider](webhooks/README.md), which determines what is verified and where key and event type are. Sources only.",
      required: ["provider"],
      properties: {
        provider: { type: "string", enum: PROVIDER_NAMES, description: "Name of the provider." },
        ...credential("secret", "secrets", "Key with which the provider signs, or its public key: see its page."),
        timestampTolerance: {
          type: "integer",
          unit: "ms",
          exclusiveMinimum: 0,
          defaultText: "300000; more for providers that retry with the same time",
          description: "Largest allowed difference from the clock, for providers that sign a time.",
        },
        url: {
          type: "string",
          syntax: "httpUrl",
          description: "URL that the provider calls, without the query; for providers that sign the URL.",
        },
        webhookId: { type: "string", syntax: "notBlank", description: "Id of the webhook at PayPal." },
        ...credential("verifyToken", "verifyTokens", "Meta's verify token; without it, subscriptions are refused."),
      },
    },
    "client-certificate": {
      type: "object",
      description:
        "A proxy that terminates mutual TLS sends the client's certificate [in a header](http-api.md#client-certificate), and replaces the header that a client sends. Sources only.",
      required: ["certificateHeader", "trustedProxies"],
      properties: {
        certificateHeader: {
          type: "string",
          syntax: "headerName",
          description:
            "Header such as `X-Client-Cert`: percent-encoded PEM, base64, `:base64:` (RFC 9440), or Envoy's `X-Forwarded-Client-Cert`.",
        },
        trustedProxies: texts(
          "Addresses and networks of the proxies, such as `10.0.0.0/8`; the header is refused from all others.",
        ),
        fingerprints: texts("SHA-256 of the certificates that pass, in hexadecimal."),
        commonNames: texts("Common names that pass."),
        subjectAltNames: texts(
          "Alternative names that pass, such as `DNS:billing.example` or `URI:spiffe://example/billing`.",
        ),
      },
    },
    bearer: {
      type: "object",
      description: "`Authorization: Bearer <token>`; the scheme in any letter case.",
      requiredAny: ["token", "tokens"],
      properties: credential("token", "tokens", "The token."),
    },
    "api-key": {
      type: "object",
      description: "A header carries the key.",
      requiredAny: ["key", "keys"],
      properties: {
        ...credential("key", "keys", "Value of the key header."),
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
      description: "A header carries an HMAC of the body.",
      requiredAny: ["secret", "secrets"],
      properties: {
        ...credential("secret", "secrets", "HMAC key."),
        headerName: {
          type: "string",
          syntax: "headerName",
          default: "X-Signature",
          description: "Name of the signature header.",
        },
        algorithm: {
          type: "string",
          enum: ["HmacSHA256", "HmacSHA512", "HmacSHA384", "HmacSHA1"],
          default: "HmacSHA256",
          description: "Digest. `HmacSHA1` is weak: only for senders that offer nothing else.",
        },
        encoding: {
          type: "string",
          enum: ["hex", "base64", "base64url"],
          default: "hex",
          description: "How the signature is written.",
        },
        signaturePrefix: {
          type: "string",
          default: "sha256=",
          description: "Text before the signature.",
        },
        signatureField: {
          type: "string",
          syntax: "notBlank",
          description:
            "Field with the signature, such as `v1`, if the header is a list such as `t=…,v1=…`; `signaturePrefix` is not used.",
        },
        timestampHeader: {
          type: "string",
          syntax: "headerName",
          description: "Header with the time of the request.",
        },
        timestampField: {
          type: "string",
          syntax: "notBlank",
          description: "Field of the signature header with the time, such as `t`; needs `signatureField`.",
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
          description:
            "[What is signed](http-api.md#hmac). A format with a timestamp needs `timestampHeader` or `timestampField`; admin and pull routes need `timestamp-dot-request`.",
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
          description: "URL that senders call, without the query, for `{{ url }}` in `signedText`.",
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
          description: "JSONPath of the list of messages in a JSON request, such as `$.events[*]` or `$[*]`.",
        },
        atomic: {
          type: "boolean",
          default: false,
          description: "`true`: all messages of a request are stored, or none.",
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
      description:
        "Senders of CloudEvents to confirm in answers to `OPTIONS`, such as `eventgrid.azure.net`, or `*`. Without it `OPTIONS` gets 405.",
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
