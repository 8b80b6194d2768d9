import { createSecureContext } from "node:tls";
import { errorText } from "../../../model/errors.ts";
import { block, boolean, type Infer, integer, list, ms, text } from "../../../model/schema.ts";
import { HTTP_HEADER_NAME } from "../../../model/text.ts";
import { destinationKind, type Report } from "../../../ports/kinds.ts";
import { isBase64Key, STANDARD_HEADERS } from "./signing.ts";

/** Credentials that an HTTP destination sends (spec, "HTTP destination auth"). */
const httpDestinationAuthSchema = {
  kinds: {
    oauth2: block(
      "Client credentials grant: fetches a token from `tokenUrl`, caches it, sends `Authorization: Bearer <token>`.",
      ["clientId", "clientSecret", "tokenUrl"],
      {
        clientId: text("Client id.", { syntax: "notBlank" }),
        clientSecret: text("Client secret.", { secret: true }),
        tokenUrl: text("Token endpoint.", { url: true, syntax: "httpUrl" }),
        scope: text("Requested scope."),
        extraParams: {
          type: "object",
          additionalProperties: { type: "string" },
          default: {},
          description: "Further form parameters.",
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
      headerName: text("Header with the key.", { syntax: "headerName", default: "X-API-Key" }),
    }),
    header: block("Sends a fixed header.", ["headerValue"], {
      headerName: text("Name of the header.", { syntax: "headerName", default: "Authorization" }),
      headerValue: text("Its whole value.", { secret: true }),
    }),
  },
} as const;

/** How an HTTP destination signs its requests. */
const signingSchema = block("[Signs each request](webhooks/sending.md#signatures).", ["scheme", "secrets"], {
  scheme: text("`standard-webhooks` or `hmac`.", { enum: ["standard-webhooks", "hmac"] }),
  secrets: list(
    "Each signs. For `standard-webhooks` in base64, with or without `whsec_`.",
    { type: "string", secret: true, minLength: 1 },
    { minItems: 1 },
  ),
  headerName: text("`hmac`: header of the signature.", {
    syntax: "headerName",
    default: "X-Signature",
  }),
  algorithm: text("`hmac`: digest.", { enum: ["HmacSHA256", "HmacSHA512"], default: "HmacSHA256" }),
  signaturePrefix: text("`hmac`: text before each signature.", { default: "sha256=" }),
  timestampHeader: text("`hmac`: header with the time, which is then signed too.", { syntax: "headerName" }),
});

/** Several messages in one request. */
const batchSchema = block("[Several messages](webhooks/sending.md#batches) in one request; `{}` enables it.", [], {
  maxMessages: integer("Most messages; at most `outbox.concurrency`.", {
    minimum: 1,
    maximum: 10000,
    default: 100,
  }),
  maxBytes: integer("Most bytes; a larger message goes alone.", { minimum: 1, default: 1048576 }),
  maxWaitMs: ms("Longest wait for further messages.", { minimum: 0, maximum: 10000, default: 10 }),
  format: text("A JSON `array`, or lines of JSON (`ndjson`, `application/x-ndjson`).", {
    enum: ["array", "ndjson"],
    default: "array",
  }),
});

const STATUS = { type: "integer", minimum: 300, maximum: 599 } as const;

/** What a PEM key holds; `file:` reads it from a file. */
const tlsSchema = block("[TLS](webhooks/sending.md#certificates). Each text is PEM, or `file:<path>`.", [], {
  ca: text("Authorities to trust, in place of the usual ones.", { secret: true }),
  certificate: text("Client certificate; needs `key`.", { secret: true }),
  key: text("Private key of `certificate`.", { secret: true }),
  serverName: text("Name in the receiver's certificate.", { syntax: "notBlank" }),
});

/** Keys of an HTTP destination (spec, "HTTP destination"; design, "Private addresses"). */
const httpDestinationSchema = block(
  "[Posts](webhooks/sending.md) the payload. `path` and values of `headers` take [placeholders](webhooks/sending.md#method-path-headers).",
  ["baseUrl"],
  {
    baseUrl: text("Absolute `http` or `https` URL without user name or password.", { url: true, syntax: "httpUrl" }),
    path: text("Path behind `baseUrl`, such as `/orders/{{ key }}`, without `.` or `..` segments.", {
      syntax: "pathTemplate",
      default: "/",
    }),
    method: text("Method.", { enum: ["POST", "PUT", "PATCH", "DELETE"], default: "POST" }),
    timeoutMs: ms("Request timeout.", { minimum: 0, default: 30000 }),
    successStatuses: list("Statuses besides 2xx that complete the delivery.", STATUS, { default: [] }),
    deadStatuses: list("Statuses after which the row is dead or parked at once.", STATUS, {
      default: [],
    }),
    batch: batchSchema,
    signing: signingSchema,
    tls: tlsSchema,
    proxy: text("[Proxy](webhooks/sending.md#proxies) such as `http://proxy.internal:3128`, or `none`.", {
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
 * base URL with a path of its own (`https://example.com/hook` stays unchanged); the query of either is kept.
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

const OUTSIDE_HEADERS = /[^\t\x20-\x7e\x80-\xff]/;

/** An HTTP destination (spec, "HTTP destination"). */
export const httpDestination = destinationKind({
  schema: httpDestinationSchema,
  hasHeaderTemplates: true,
  check: (entry, when) => {
    when(["headers"], (report) => {
      const { headers } = entry;
      for (const [name, value] of Object.entries(headers)) {
        if (!HTTP_HEADER_NAME.test(name)) {
          report.error("headers", `${JSON.stringify(name)} is not a header name: remove spaces and colons`);
        }
        // The value may be a credential: do not show it.
        if (OUTSIDE_HEADERS.test(value))
          report.error(
            "headers",
            `the value of ${JSON.stringify(name)} holds a character that no HTTP header can carry`,
          );
      }
    });
    when(["signing"], (report) => checkSigning(entry, report));
    when(["signing", "auth"], (report) => checkSignedHeaders(entry, report));
    when(["tls", "baseUrl"], (report) => checkTls(entry, report));
    when(["successStatuses", "deadStatuses"], (report) => {
      const both = entry.deadStatuses.filter((status) => entry.successStatuses.includes(status));
      if (both.length > 0)
        report.error("deadStatuses", `has ${both.join(", ")}, as successStatuses has: remove it from one`);
    });
  },
  address: { name: "path", template: "path", from: null },
  routingKey: null,
  cloudEvents: { prefix: "ce-", isEncoded: true },
  explain: ({ method, baseUrl, path }) => ({ name: "url", text: `${method} ${shownUrl(baseUrl, path)}` }),
  async checkAtStart(path, { baseUrl, auth, allowMetadataAddress }, { blockPrivateAddresses }) {
    const { checkAddresses } = await import("./guard.ts");
    const urls = { baseUrl, ...(auth?.kind === "oauth2" && { "auth.tokenUrl": auth.tokenUrl }) };
    return checkAddresses(path, urls, { blockPrivate: blockPrivateAddresses, allowMetadata: allowMetadataAddress });
  },
  async create(config, { http, concurrency, ...tools }) {
    const { createHttpDestination } = await import("./index.ts");
    return createHttpDestination(config, { ...tools, ...http, connections: concurrency });
  },
});

/** With its placeholders as written, which a URL would percent-encode. */
function shownUrl(baseUrl: string, path: string): string {
  return path.includes("{{")
    ? `${baseUrl.replace(/\/$/, "")}/${path.replace(/^\//, "")}`
    : requestUrl(baseUrl, path).href;
}

function checkSigning({ signing }: HttpDestinationConfig, report: Report): void {
  if (signing === undefined) return;
  if (signing.scheme === "standard-webhooks" && !signing.secrets.every((secret) => isBase64Key(secret.reveal())))
    report.error(
      "signing.secrets",
      "has a secret that is not base64: standard-webhooks needs base64, with or without whsec_ before it",
    );
  if (signing.scheme === "standard-webhooks" && signing.timestampHeader !== undefined)
    report.warning("signing.timestampHeader", "has no effect: standard-webhooks sends webhook-timestamp");
  if (signing.scheme === "hmac" && signing.timestampHeader?.toLowerCase() === signing.headerName.toLowerCase())
    report.error("signing.timestampHeader", "is the header of the signature too: name another one");
}

/** A request has each header once. */
function checkSignedHeaders({ signing, auth }: HttpDestinationConfig, report: Report): void {
  if (signing === undefined || auth === undefined) return;
  const credential = ("headerName" in auth ? auth.headerName : "Authorization").toLowerCase();
  const { scheme, headerName, timestampHeader } = signing;
  const signed = scheme === "hmac" ? [headerName, timestampHeader] : STANDARD_HEADERS;
  const shared = signed.find((name) => name?.toLowerCase() === credential);
  if (shared !== undefined)
    report.error("signing", `sends the header ${shared}, which auth sends too: name another one`);
}

function checkTls({ tls, baseUrl }: HttpDestinationConfig, report: Report): void {
  if (tls === undefined) return;
  if ((tls.certificate === undefined) !== (tls.key === undefined)) {
    const [there, missing] = tls.key === undefined ? ["certificate", "key"] : ["key", "certificate"];
    report.error(`tls.${missing}`, `is required with ${there}`);
  }
  const isPem = (key: "ca" | "certificate" | "key") => tls[key]?.reveal().includes("-----BEGIN ") ?? true;
  const others = (["ca", "certificate", "key"] as const).filter((key) => !isPem(key));
  for (const key of others) report.error(`tls.${key}`, "is not PEM text: file:<path> reads it from a file");
  if (others.length === 0 && (tls.certificate === undefined) === (tls.key === undefined)) checkKeys(tls, report);
  if (baseUrl.toLowerCase().startsWith("http://")) report.warning("tls", "has no effect on an http:// URL");
}

/** Whether TLS takes them: a key that fits the certificate and has no password. */
function checkKeys(tls: NonNullable<HttpDestinationConfig["tls"]>, report: Report): void {
  try {
    createSecureContext({ ca: tls.ca?.reveal(), cert: tls.certificate?.reveal(), key: tls.key?.reveal() });
  } catch (error) {
    // The library's texts show nothing of the key.
    report.error("tls", `cannot be used: ${errorText(error)}`);
  }
}
