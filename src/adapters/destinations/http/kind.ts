import { createSecureContext } from "node:tls";
import { errorText } from "../../../model/errors.ts";
import { HTTP_HEADER_NAME } from "../../../model/text.ts";
import { destinationKind, type Report } from "../../../ports/kinds.ts";
import { type HttpDestinationConfig, httpDestinationSchema, requestUrl } from "./schema.ts";
import { isBase64Key, STANDARD_HEADERS } from "./signing.ts";

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
      "has one that is not base64, with or without whsec_ before it, as standard-webhooks needs",
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
