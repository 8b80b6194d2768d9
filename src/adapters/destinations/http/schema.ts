import { block, boolean, type Infer, integer, list, ms, text } from "../../../model/schema.ts";

/** Credentials that an HTTP destination sends (spec, "HTTP destination auth"). */
const httpDestinationAuthSchema = {
  kinds: {
    oauth2: block(
      "Client credentials grant: fetches a token from `tokenUrl`, caches it, sends `Authorization: Bearer <token>`.",
      ["clientId", "clientSecret", "tokenUrl"],
      {
        clientId: text("Client identifier.", { syntax: "notBlank" }),
        clientSecret: text("Client secret.", { secret: true }),
        tokenUrl: text("Token endpoint; same rules as `baseUrl`.", { url: true, syntax: "httpUrl" }),
        scope: text("Scope asked for."),
        extraParams: {
          type: "object",
          additionalProperties: { type: "string" },
          default: {},
          description: "Extra form parameters of the token request.",
        },
      },
    ),
    basic: block("Sends `Authorization: Basic <credentials>`.", ["username", "password"], {
      username: text("User name."),
      password: text("Password.", { secret: true }),
    }),
    bearer: block("Sends `Authorization: Bearer <token>`.", ["token"], {
      token: text("Token.", { secret: true }),
    }),
    "api-key": block("Sends the key in a header.", ["key"], {
      key: text("Key.", { secret: true }),
      headerName: text("Name of the header.", { syntax: "headerName", default: "X-API-Key" }),
    }),
    header: block("Sends a fixed header.", ["headerValue"], {
      headerName: text("Name of the header.", { syntax: "headerName", default: "Authorization" }),
      headerValue: text("Whole value of the header.", { secret: true }),
    }),
  },
} as const;

/** How an HTTP destination signs its requests. */
const signingSchema = block("Signs each request, so that the receiver can verify who sent it.", ["scheme", "secrets"], {
  scheme: text(
    "`standard-webhooks`: `webhook-id` (the id of the row), `webhook-timestamp` and `webhook-signature`. `hmac`: one header, as a source with `auth` of kind `hmac` verifies.",
    { enum: ["standard-webhooks", "hmac"] },
  ),
  secrets: list(
    "Every secret signs: during a rotation the new and the old one. Of `standard-webhooks` base64, with or without `whsec_`.",
    { type: "string", secret: true, minLength: 1 },
    { minItems: 1 },
  ),
  headerName: text("`hmac`: name of the header. Several signatures are separated by a comma.", {
    syntax: "headerName",
    default: "X-Signature",
  }),
  algorithm: text("`hmac`: digest.", { enum: ["HmacSHA256", "HmacSHA512"], default: "HmacSHA256" }),
  signaturePrefix: text("`hmac`: text before each hexadecimal signature.", { default: "sha256=" }),
  timestampHeader: text(
    "`hmac`: header with the time in Unix milliseconds; then time, dot and body are signed, else the body.",
    { syntax: "headerName" },
  ),
});

/** Several messages in one request. */
const batchSchema = block("Sends deliveries that run at the same time in one request. `{}` enables it.", [], {
  maxMessages: integer("Most messages of a request; `outbox.concurrency` bounds it too.", {
    minimum: 1,
    maximum: 10000,
    default: 100,
  }),
  maxBytes: integer("Most bytes of a request; a larger message goes alone.", { minimum: 1, default: 1048576 }),
  maxWaitMs: ms("Longest wait for further messages.", { minimum: 0, maximum: 10000, default: 10 }),
  format: text("A JSON array, or a line of JSON for each message (`application/x-ndjson`).", {
    enum: ["array", "ndjson"],
    default: "array",
  }),
});

const STATUS = { type: "integer", minimum: 300, maximum: 599 } as const;

/** What a PEM key holds; `file:` reads it from a file. */
const tlsSchema = block("TLS of the receiver and the token endpoint. Each text is PEM, or `file:<path>`.", [], {
  ca: text("Authorities that may sign the receiver's certificate, in place of the usual ones.", { secret: true }),
  certificate: text("Client certificate; needs `key`.", { secret: true }),
  key: text("Private key of `certificate`.", { secret: true }),
  serverName: text("Name that the certificate must have.", { syntax: "notBlank" }),
});

/** Keys of an HTTP destination (spec, "HTTP destination"; design, "Private addresses"). */
export const httpDestinationSchema = block(
  "POST with the payload as JSON body. A 2xx status completes the delivery; redirects are not followed. Values of `headers` may have placeholders, as `path`.",
  ["baseUrl"],
  {
    baseUrl: text("Absolute `http` or `https` URL without user name or password.", { url: true, syntax: "httpUrl" }),
    path: text(
      "Path behind `baseUrl`; no `.` or `..` segment. With placeholders (`/orders/{{ key }}`), as addresses of brokers; values are percent-encoded.",
      { syntax: "pathTemplate", default: "/" },
    ),
    method: text("Method of the request.", { enum: ["POST", "PUT", "PATCH", "DELETE"], default: "POST" }),
    timeoutMs: ms("Request timeout.", { minimum: 0, default: 30000 }),
    successStatuses: list("Statuses besides 2xx that complete the delivery, such as 409.", STATUS, { default: [] }),
    deadStatuses: list(
      "Statuses after which the row is not tried again, such as 410: it is dead, or parked, at once.",
      STATUS,
      { default: [] },
    ),
    batch: batchSchema,
    signing: signingSchema,
    tls: tlsSchema,
    proxy: text("Proxy such as `http://proxy.internal:3128`, or `none`. The address checks then see the URL alone.", {
      url: true,
      syntax: "proxy",
      defaultText: "`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`",
    }),
    auth: { ...httpDestinationAuthSchema, description: "Credentials to send." },
    allowMetadataAddress: boolean("Allow cloud metadata addresses such as `169.254.169.254`.", { default: false }),
  },
);

export type HttpBatch = Infer<typeof batchSchema>;
export type HttpSigning = Infer<typeof signingSchema>;
export type HttpDestinationAuth = Infer<typeof httpDestinationAuthSchema>;
export type HttpDestinationConfig = Infer<typeof httpDestinationSchema>;

/**
 * The URL of the request: `baseUrl` and `path`, with one slash between them. The default path `/` adds nothing to a
 * base URL with a path of its own (`https://example.com/hook` stays as it is); the query of either is kept.
 */
export function requestUrl(baseUrl: string, path: string): URL {
  const url = new URL(baseUrl);
  const [pathname = "", ...query] = path.split("?");
  const search = [url.search.slice(1), query.join("?")].filter((part) => part !== "").join("&");
  if (pathname !== "/" && pathname !== "")
    url.pathname = `${url.pathname.replace(/\/$/, "")}/${pathname.replace(/^\//, "")}`;
  url.search = search;
  url.hash = "";
  return url;
}
