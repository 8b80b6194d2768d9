import { PublishError } from "../../../model/errors.ts";
import type { Headers } from "../../../model/rows.ts";
import { encodedHeaderName, encodedHeaderValue } from "../../../model/text.ts";
import { httpError } from "./errors.ts";

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

/** A header that the destination itself sets: its `auth`, its signature. */
export interface RequestHeader {
  /** In lower case. */
  readonly name: string;
  readonly value: string;
}

/** Header names are tokens (RFC 9110, section 5.6.2). */
export const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const ASCII_TEXT = /^[\t\x20-\x7e]*$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not go into a header
const CONTROLS = /[\u0000-\u0008\u000a-\u001f\u007f]/;

/**
 * Headers that belong to one connection or frame one message (RFC 9110, section 7.6.1): the client sets its own, and
 * the body is never compressed. Values from a row would break the exchange, so they are dropped.
 */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set([
  "connection",
  "content-encoding",
  "content-length",
  "expect",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/**
 * The headers of one request, as a flat list of names and values. A name or value that HTTP cannot carry is encoded:
 * dropping it would hide from the receiver what the sender sent, sending it would let a row inject headers, and failing
 * would keep the message for ever.
 *
 * @param headers of the message
 * @param own set by the destination; they win over headers of the message with those names
 */
export function requestHeaders(headers: Headers, own: readonly RequestHeader[]): string[] {
  const list: string[] = [];
  for (const name of Object.keys(headers)) {
    const lowerCase = name.toLowerCase();
    if (OF_THE_CONNECTION.has(lowerCase) || own.some((each) => each.name === lowerCase)) continue;
    const sentName = TOKEN.test(name) ? name : encodedHeaderName(name, TOKEN);
    if (sentName !== null) list.push(sentName, octets(encodedHeaderValue(lowerCase, headers[name] ?? "")));
  }
  for (const { name, value } of own) list.push(name, value);
  return list;
}

/** @throws PublishError `header_invalid` when the name is not a token */
export function headerName(name: string): string {
  if (TOKEN.test(name)) return name;
  throw httpError("header_invalid", `the header name ${JSON.stringify(name)} cannot go over HTTP`);
}

/**
 * A configured header value as the octets that HTTP sends.
 *
 * @throws PublishError `header_invalid` when it holds a control character; the error does not repeat the value
 */
export function headerValue(name: string, value: string): string {
  const control = CONTROLS.exec(value);
  if (control === null) return octets(value);
  const code = control[0].charCodeAt(0).toString(16).padStart(4, "0");
  throw new PublishError(
    "header_invalid",
    `the value of the header ${JSON.stringify(name)} cannot go over HTTP: it holds the control character U+${code.toUpperCase()}`,
  );
}

/** Text outside ASCII becomes UTF-8, one character per octet. */
function octets(value: string): string {
  return ASCII_TEXT.test(value) ? value : Buffer.from(value, "utf8").toString("latin1");
}
