import { type IncomingMessage, request as overHttp } from "node:http";
import { request as overHttps } from "node:https";
import type { Socket } from "node:net";
import ipaddr from "ipaddr.js";
import { buildConnector, type Dispatcher, Pool } from "undici";
import { percentDecoded } from "../../../model/secret.ts";
import type { SecretMasker } from "../../../ports/runtime.ts";
import { keptConnection } from "./delivery.ts";
import { httpError, publishErrorOf } from "./errors.ts";
import { type AddressPolicy, guardedConnector, type Lookup } from "./guard.ts";
import type { HttpDestinationConfig } from "./kind.ts";

/** Connections to the servers of an HTTP destination: direct or by a proxy, with its TLS settings. */
export interface Transport {
  /** @param connections most at a time */
  open(url: URL, connections: number): Dispatcher;
}

interface TransportOptions {
  readonly tls: HttpDestinationConfig["tls"] | undefined;
  readonly proxy: string | undefined;
  readonly policy: AddressPolicy;
  /** Of connect and TLS handshake, in ms. */
  readonly timeoutMs: number;
  readonly lookup: Lookup | undefined;
  /** Learns the password of the proxy. */
  readonly secrets: Pick<SecretMasker, "add">;
}

/**
 * The timeout of the publish bounds the answer; the client's own timers would only cost. Requests are not pipelined: a
 * missing answer would block the messages behind it.
 */
const EXCHANGE = { pipelining: 1, headersTimeout: 0, bodyTimeout: 0, factory: keptConnection } as const;

/** @throws Error when the certificate or key is not PEM; its `open` when the environment names no HTTP proxy */
export function createTransport({ policy, timeoutMs, lookup, secrets, ...config }: TransportOptions): Transport {
  const tls = tlsOptions(config.tls);
  const connect = guardedConnector(policy, timeoutMs, lookup, tls);
  return {
    open(url, connections) {
      const text = proxyOf(url, config.proxy, process.env);
      if (text === undefined) return new Pool(url.origin, { ...EXCHANGE, connections, connect });
      const proxy = new URL(text);
      // Some take a token as the user name alone.
      for (const part of [proxy.password, proxy.password === "" ? proxy.username : ""])
        if (part !== "") secrets.add(percentDecoded(part));
      return new Pool(url.origin, { ...EXCHANGE, connections, connect: tunnelConnector(proxy, timeoutMs, tls) });
    },
  };
}

/** As Node's TLS takes them. */
interface TlsOptions {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
}

function tlsOptions({ ca, certificate, key, serverName }: NonNullable<HttpDestinationConfig["tls"]> = {}): TlsOptions {
  return {
    ...(ca && { ca: ca.reveal() }),
    ...(certificate && { cert: certificate.reveal() }),
    ...(key && { key: key.reveal() }),
    ...(serverName !== undefined && { servername: serverName }),
  };
}

/**
 * The proxy for a URL: the configured one, else by `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` in upper or lower case.
 *
 * @param configured `none` for no proxy, whatever the environment has
 * @returns its URL; undefined for a direct connection
 * @throws Error when the environment has another text
 */
export function proxyOf(
  url: URL,
  configured: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
): string | undefined {
  if (configured !== undefined) return configured === "none" ? undefined : configured;
  const of = (name: string) => env[name] || env[name.toUpperCase()] || undefined;
  const name = url.protocol === "https:" ? "https_proxy" : "http_proxy";
  const found = of(name);
  if (found === undefined || isExcepted(url, of("no_proxy") ?? "")) return undefined;
  const proxy = /^[a-z][a-z0-9+.-]*:\/\//i.test(found) ? found : `http://${found}`;
  if (/^https?:/i.test(proxy) && URL.canParse(proxy)) return proxy;
  // Its text may hold a password.
  throw new Error(
    `the environment variable ${name.toUpperCase()} is not the URL of an HTTP proxy, such as http://proxy.internal:3128`,
  );
}

/**
 * Entries of `NO_PROXY`: `*`, a domain with all below it or an address, with a port or without, a network of addresses.
 */
function isExcepted({ hostname, port, protocol }: URL, list: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").toLowerCase();
  const ownPort = port || (protocol === "https:" ? "443" : "80");
  return list
    .toLowerCase()
    .split(/[\s,]+/)
    .filter((entry) => entry !== "")
    .some((entry) => {
      if (entry === "*") return true;
      if (ipaddr.isValid(host)) return isOfNetwork(host, ownPort, entry);
      const [, name = "", onPort = ownPort] = /^\*?\.?([^:]*)(?::(\d+))?$/.exec(entry) ?? [];
      return onPort === ownPort && name !== "" && (host === name || host.endsWith(`.${name}`));
    });
}

function isOfNetwork(host: string, ownPort: string, entry: string): boolean {
  const address = ipaddr.process(host);
  // An IPv6 address has a port only behind brackets.
  const [, bracketed, plain, onPort = ownPort] = /^(?:\[([^\]]*)\]|([\d.]+))(?::(\d+))?$/.exec(entry) ?? [];
  const name = bracketed ?? plain ?? entry;
  if (ipaddr.isValid(name))
    return onPort === ownPort && ipaddr.process(name).toNormalizedString() === address.toNormalizedString();
  if (!ipaddr.isValidCIDR(entry)) return false;
  const [network, bits] = ipaddr.parseCIDR(entry);
  return network.kind() === address.kind() && address.match(network, bits);
}

/**
 * A connector for the HTTP client that connects through the tunnel of a proxy (RFC 9110, section 9.3.6). The client's
 * own one reconnects without a pause to a proxy that closes connections, and waits five minutes for a silent one.
 *
 * @param proxy may have a user name and password; errors do not show them
 * @param timeoutMs of the tunnel, and again of the TLS handshake in it; 0 for none
 * @param tls options of Node's TLS for the server behind the proxy
 */
function tunnelConnector(proxy: URL, timeoutMs: number, tls: object): buildConnector.connector {
  const secure = buildConnector({ ...tls, timeout: timeoutMs });
  return (options, callback) => {
    const { protocol, port, host } = options;
    const isTls = protocol === "https:";
    const authority = port ? String(host) : `${host}:${isTls ? 443 : 80}`;
    openTunnel(proxy, authority, timeoutMs).then(
      (socket) => {
        if (!isTls) return callback(null, socket);
        try {
          secure({ ...options, httpSocket: socket }, callback);
        } catch (error) {
          // A key that does not fit its certificate, for one.
          socket.destroy();
          callback(error as Error, null);
        }
      },
      (error: Error) => callback(error, null),
    );
  };
}

/** Rejects with PublishError. */
function openTunnel(proxy: URL, authority: string, timeoutMs: number): Promise<Socket> {
  const name = `CONNECT ${authority} to the proxy ${proxy.origin}`;
  return new Promise((resolve, reject) => {
    const request = (proxy.protocol === "https:" ? overHttps : overHttp)({
      method: "CONNECT",
      hostname: proxy.hostname.replace(/^\[|\]$/g, ""),
      port: proxy.port,
      path: authority,
      headers: { host: authority, ...proxyCredentials(proxy) },
      agent: false,
    });
    const late = () => request.destroy(httpError("timeout", `${name} was not answered within ${timeoutMs} ms`));
    const timer = timeoutMs > 0 ? setTimeout(late, timeoutMs) : undefined;
    request.once("connect", ({ statusCode = 0 }: IncomingMessage, socket: Socket, head: Buffer) => {
      clearTimeout(timer);
      if (statusCode < 200 || statusCode > 299) {
        socket.destroy();
        reject(httpError("unreachable", `${name} was answered ${statusCode}`));
        return;
      }
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    request.once("error", (error) => {
      clearTimeout(timer);
      reject(publishErrorOf(name, error));
    });
    request.end();
  });
}

function proxyCredentials({ username, password }: URL): { readonly "proxy-authorization"?: string } {
  if (username === "" && password === "") return {};
  const both = `${percentDecoded(username)}:${percentDecoded(password)}`;
  return { "proxy-authorization": `Basic ${Buffer.from(both).toString("base64")}` };
}
