import type { Options } from "amqplib";
import { text as textKey } from "../../../model/schema.ts";
import { maskUrl } from "../../../model/secret.ts";
import type { Report } from "../../../ports/kinds.ts";
import { RabbitmqFault } from "./fault.ts";

/** The key of sources and destinations for their connection. */
export const amqpUri = textKey("AMQP URI such as `amqp://user:password@host:5672/vhost`.", {
  url: true,
});

export interface AmqpTarget {
  /** The address without credentials and query, for errors and logs: `amqp://broker:5672/orders`. */
  readonly name: string;
  readonly vhost: string;
  readonly user: string;
  readonly options: Options.Connect;
  /** Timeout of connection and handshake, in ms. */
  readonly connectTimeoutMs: number;
}

/** A silent connection fails after two of these, in seconds. */
const DEFAULT_HEARTBEAT_S = 10;
const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
/** RabbitMQ's own default, in bytes. */
const DEFAULT_FRAME_MAX = 131_072;
/** AMQP 0-9-1, section 4.2.3: peers must accept frames up to this size, in bytes. */
const FRAME_MIN_SIZE = 4096;

/** Names as in other AMQP clients, each with its range. */
const PARAMETERS = {
  heartbeat: { names: ["heartbeat"], from: 0, to: 65_535 },
  connectTimeoutMs: { names: ["connection_timeout", "connectionTimeout"], from: 1, to: 600_000 },
  frameMax: { names: ["frame_max", "frameMax"], from: FRAME_MIN_SIZE, to: 2 ** 27 },
  channelMax: { names: ["channel_max", "channelMax"], from: 2, to: 65_535 },
} as const;

/**
 * Reads an AMQP URI (RabbitMQ's "URI Specification" and "URI Query Parameters"): `amqp` or `amqps`, user and password
 * `guest` when both are missing, port 5672 or 5671, virtual host `/` when the path is empty; user, password and virtual
 * host are percent-encoded UTF-8. Reads `heartbeat` (s), `connection_timeout` (ms), `frame_max` (bytes) and
 * `channel_max`.
 *
 * @throws RabbitmqFault `url_invalid` that quotes only the scheme and parameter names of the URI
 */
export function parseAmqpUri(text: string): AmqpTarget {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const scheme = url?.protocol.slice(0, -1);
  if (url === undefined || (scheme !== "amqp" && scheme !== "amqps")) {
    const found = scheme === undefined ? "text that is not a URL" : `a URL of the scheme "${scheme}"`;
    throw invalid(`found ${found}, which is not shown since it may hold a password`);
  }
  if (url.hostname === "") throw invalid("the host is missing");
  // A password with a bare "/", "?" or "#" continues after the host, and would be shown as the virtual host.
  if (/@/.test(url.pathname + url.search + url.hash))
    throw invalid('an "@" follows the host: percent-encode "/", "?", "#" and "@" of the password');
  const anonymous = url.username === "" && url.password === "";
  const user = anonymous ? "guest" : decoded(url.username, "user name");
  const password = anonymous ? "guest" : decoded(url.password, "password");
  const vhost = decoded(url.pathname.slice(1), "virtual host") || "/";
  const port = url.port === "" ? (scheme === "amqp" ? 5672 : 5671) : Number(url.port);
  const channelMax = parameter(url, "channelMax");
  return {
    name: `${scheme}://${url.hostname}:${port}/${vhost === "/" ? "" : encodeURIComponent(vhost)}`,
    vhost,
    user,
    options: {
      protocol: scheme,
      // The brackets of an IPv6 address belong to the URL.
      hostname: url.hostname.replace(/^\[|\]$/g, ""),
      port,
      username: user,
      password,
      vhost: encodeURIComponent(vhost),
      heartbeat: parameter(url, "heartbeat") ?? DEFAULT_HEARTBEAT_S,
      frameMax: parameter(url, "frameMax") ?? DEFAULT_FRAME_MAX,
      ...(channelMax === undefined ? {} : { channelMax }),
    },
    connectTimeoutMs: parameter(url, "connectTimeoutMs") ?? DEFAULT_CONNECT_TIMEOUT_MS,
  };
}

function decoded(text: string, part: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid(`its ${part} holds a "%" that begins no percent-encoded UTF-8: write "%25" for "%"`);
  }
}

function parameter(url: URL, key: keyof typeof PARAMETERS): number | undefined {
  const { names, from, to } = PARAMETERS[key];
  for (const name of names) {
    const text = url.searchParams.get(name);
    if (text === null) continue;
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= from && value <= to))
      throw invalid(`its parameter ${name} must be a whole number from ${from} to ${to}`);
    return value;
  }
  return undefined;
}

function invalid(what: string): RabbitmqFault {
  return new RabbitmqFault(
    "url_invalid",
    `the AMQP URL cannot be used: ${what}; expected something like amqp://user:password@host:5672/vhost, ` +
      `with every special character percent-encoded`,
  );
}

/** Only a warning: the specification accepts any text here, even a `file:` string. */
export function checkAmqpUri(key: string, uri: string, report: Report): void {
  if (/^amqps?:\/\/./i.test(uri)) return;
  const file = uri.startsWith("file:") ? "; no file is read for this key" : "";
  report.warning(
    key,
    `expected an AMQP URI such as amqp://host:5672/vhost, found ${JSON.stringify(maskUrl(uri))}${file}`,
  );
}
