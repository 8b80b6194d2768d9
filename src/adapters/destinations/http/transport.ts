import ipaddr from "ipaddr.js";
import { type Dispatcher, Pool, ProxyAgent } from "undici";
import type { SecretMasker } from "../../../ports/runtime.ts";
import { type AddressPolicy, guardedConnector, type Lookup } from "./guard.ts";
import type { HttpDestinationConfig } from "./schema.ts";

/** Connections to the servers of an HTTP destination: direct or by a proxy, with its TLS settings. */
export interface Transport {
  /**
   * @param url of the server
   * @param connections most at a time
   */
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
const EXCHANGE = { pipelining: 1, headersTimeout: 0, bodyTimeout: 0 } as const;

/** @throws Error when the certificate or key is not PEM */
export function createTransport({ policy, timeoutMs, lookup, secrets, ...config }: TransportOptions): Transport {
  const tls = tlsOptions(config.tls);
  const connect = guardedConnector(policy, timeoutMs, lookup, tls);
  return {
    open(url, connections) {
      const proxy = proxyOf(url, config.proxy, process.env);
      if (proxy === undefined) return new Pool(url.origin, { ...EXCHANGE, connections, connect });
      const { password } = new URL(proxy);
      if (password !== "") secrets.add(decodeURIComponent(password));
      const limit = { timeout: timeoutMs };
      return new ProxyAgent({
        ...EXCHANGE,
        uri: proxy,
        connections,
        proxyTls: limit,
        requestTls: { ...limit, ...tls },
      });
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
 * The proxy for a URL: the configured one, else by the environment's `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in capital
 * letters or small ones.
 *
 * @param configured `none` for no proxy, whatever the environment has
 * @returns its URL; undefined for a direct connection
 */
export function proxyOf(
  url: URL,
  configured: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
): string | undefined {
  if (configured !== undefined) return configured === "none" ? undefined : configured;
  const of = (name: string) => env[name] || env[name.toUpperCase()] || undefined;
  const found = of(url.protocol === "https:" ? "https_proxy" : "http_proxy");
  if (found === undefined || isExcepted(url, of("no_proxy") ?? "")) return undefined;
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(found) ? found : `http://${found}`;
}

/** Entries of `NO_PROXY`: `*`, a domain with all below it, with a port or without, an address or a network of them. */
function isExcepted({ hostname, port, protocol }: URL, list: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").toLowerCase();
  const ownPort = port || (protocol === "https:" ? "443" : "80");
  return list
    .toLowerCase()
    .split(/[\s,]+/)
    .filter((entry) => entry !== "")
    .some((entry) => {
      if (entry === "*") return true;
      if (ipaddr.isValid(host)) return isOfNetwork(host, entry);
      const [, name = "", onPort = ownPort] = /^\*?\.?([^:]*)(?::(\d+))?$/.exec(entry) ?? [];
      return onPort === ownPort && name !== "" && (host === name || host.endsWith(`.${name}`));
    });
}

function isOfNetwork(host: string, entry: string): boolean {
  const address = ipaddr.process(host);
  if (ipaddr.isValid(entry)) return ipaddr.process(entry).toNormalizedString() === address.toNormalizedString();
  if (!ipaddr.isValidCIDR(entry)) return false;
  const [network, bits] = ipaddr.parseCIDR(entry);
  return network.kind() === address.kind() && address.match(network, bits);
}
