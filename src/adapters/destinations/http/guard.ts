import { type LookupAddress, lookup as systemLookup } from "node:dns";
import type { LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import { buildConnector } from "undici";
import type { ConfigProblem } from "../../../model/errors.ts";
import { httpError } from "./errors.ts";

/** Which addresses a destination must not reach (spec, `http.blockPrivateAddresses`; design, "Private addresses"). */
export interface AddressPolicy {
  readonly blockPrivate: boolean;
  /** `destinations.<name>.allowMetadataAddress`. */
  readonly allowMetadata: boolean;
}

/**
 * Ranges refused by `blockPrivateAddresses` in addition to the spec: 0.0.0.0/8 and ::, which reach this host; the
 * shared space 100.64.0.0/10 (RFC 6598), which is as internal as 10.0.0.0/8; and ranges without receivers on the
 * internet. Documentation ranges are harmless and pass.
 */
const PRIVATE_RANGES: Readonly<Record<string, string>> = {
  loopback: "loopback",
  linkLocal: "link-local",
  private: "site-local",
  deprecatedSiteLocal: "site-local",
  uniqueLocal: "unique-local",
  unspecified: "unspecified",
  carrierGradeNat: "shared address space",
  multicast: "multicast",
  broadcast: "broadcast",
  teredo: "Teredo tunnel",
  benchmarking: "benchmarking",
  discard: "discard-only",
};

/** More of them, which the address library does not distinguish from harmless ones. */
const FURTHER_RANGES: readonly (readonly [cidr: readonly [ipaddr.IPv4 | ipaddr.IPv6, number], name: string])[] = [
  [ipaddr.parseCIDR("198.18.0.0/15"), "benchmarking"],
  [ipaddr.parseCIDR("192.0.0.0/24"), "protocol assignments"],
  [ipaddr.parseCIDR("240.0.0.0/4"), "reserved"],
  [ipaddr.parseCIDR("64:ff9b:1::/48"), "local translation"],
];

function privateRange(address: ipaddr.IPv4 | ipaddr.IPv6): string | undefined {
  const known = PRIVATE_RANGES[address.range()];
  if (known !== undefined) return known;
  return FURTHER_RANGES.find(
    ([[network, bits]]) => network.kind() === address.kind() && address.match(network, bits),
  )?.[1];
}

/** Addresses at which clouds serve the credentials of the machine to anyone who can make it send a request. */
const METADATA_ADDRESSES: ReadonlySet<string> = new Set(
  [
    "169.254.169.254", // AWS, Google, Azure, Oracle, DigitalOcean and most others
    "169.254.170.2", // AWS ECS task credentials
    "169.254.170.23", // AWS EKS pod identity
    "169.254.42.42", // Scaleway
    "100.100.100.200", // Alibaba
    "168.63.129.16", // Azure platform
    "192.0.0.192", // Oracle classic
    "fd00:ec2::254", // AWS
    "fd00:ec2::23", // AWS EKS pod identity
    "fd20:ce::254", // Google
    "fd00:42::42", // Scaleway
  ].map((address) => ipaddr.parse(address).toNormalizedString()),
);

/** Why a policy refuses an IPv4 or IPv6 address, for people; undefined if it is allowed. */
export function refusalOf(address: string, policy: AddressPolicy): string | undefined {
  if (!ipaddr.isValid(address)) return `${address} is not an IP address`;
  for (const reached of reachedAddresses(ipaddr.parse(address))) {
    const isMetadata = METADATA_ADDRESSES.has(reached.toNormalizedString());
    if (isMetadata && !policy.allowMetadata) {
      return `${address} is a cloud metadata address; allowMetadataAddress: true on the destination permits it`;
    }
    const range = privateRange(reached);
    if (policy.blockPrivate && range !== undefined && !isMetadata) {
      return `${address} is a private address (${range}) and http.blockPrivateAddresses is true`;
    }
  }
  return undefined;
}

/** The address itself and the IPv4 addresses that an IPv6 address maps to, translates to (RFC 6052) or tunnels to. */
function reachedAddresses(address: ipaddr.IPv4 | ipaddr.IPv6): readonly (ipaddr.IPv4 | ipaddr.IPv6)[] {
  if (!(address instanceof ipaddr.IPv6)) return [address];
  const bytes = address.toByteArray();
  // With its zone, fe80::1%eth0 would not equal fe80::1.
  return [new ipaddr.IPv6(bytes), ...embeddedIn(address.range(), bytes).map((embedded) => new ipaddr.IPv4(embedded))];
}

function embeddedIn(range: string, bytes: number[]): readonly number[][] {
  const last = bytes.slice(12);
  switch (range) {
    case "ipv4Mapped":
    case "rfc6145":
    case "rfc6052":
      return [last];
    case "6to4":
      return [bytes.slice(2, 6)];
    case "teredo":
      // The server, and the client with each bit inverted (RFC 4380, section 4).
      return [bytes.slice(4, 8), last.map((byte) => byte ^ 0xff)];
    default:
      // ::a.b.c.d, deprecated yet routed by some systems (except ::1 and ::), and the interface identifier of ISATAP.
      return range === "unicast" && (isZero(bytes.slice(0, 12)) || isIsatap(bytes)) ? [last] : [];
  }
}

const isZero = (bytes: number[]): boolean => bytes.every((byte) => byte === 0);
const isIsatap = (bytes: number[]): boolean =>
  ["00005efe", "02005efe"].includes(Buffer.from(bytes.slice(8, 12)).toString("hex"));

export type Lookup = (
  hostname: string,
  options: { readonly all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void,
) => void;

/**
 * A connector for the HTTP client that checks the address of each connection: a literal one in the URL, and every
 * answer of the name service at connect time, so that a changed answer is caught too.
 *
 * @param connectTimeoutMs timeout for connect and TLS handshake
 */
export function guardedConnector(
  policy: AddressPolicy,
  connectTimeoutMs: number,
  lookup: Lookup = systemLookup,
  tls: object = {},
): buildConnector.connector {
  const connect = buildConnector({ ...tls, timeout: connectTimeoutMs, lookup: guardedLookup(policy, lookup) });
  return (options, callback) => {
    const literal = options.hostname.replace(/^\[|\]$/g, "");
    const refusal = ipaddr.isValid(literal) ? refusalOf(literal, policy) : undefined;
    if (refusal === undefined) return connect(options, callback);
    queueMicrotask(() => callback(httpError("private_address", `not connected: ${refusal}`), null));
  };
}

function guardedLookup(policy: AddressPolicy, lookup: Lookup): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      const refusal = error === null ? firstRefusal(addresses, policy) : undefined;
      const [first] = addresses ?? [];
      if (error !== null) callback(error, "", 0);
      else if (refusal !== undefined) {
        callback(httpError("private_address", `not connected to ${hostname}: ${refusal}`), "", 0);
      } else if (options.all === true) callback(null, [...addresses]);
      else callback(null, first?.address ?? "", first?.family ?? 0);
    });
  };
}

/** One refused address is enough: which one a connection uses is chance. */
function firstRefusal(addresses: readonly LookupAddress[], policy: AddressPolicy): string | undefined {
  return addresses.map(({ address }) => refusalOf(address, policy)).find((refusal) => refusal !== undefined);
}

/**
 * Checks the URLs of an HTTP destination at startup. Connecting checks a host that does not resolve now.
 *
 * @param path key path of the destination
 * @param urls by their keys within it
 * @returns a problem for each URL that leads to a refused address
 */
export async function checkAddresses(
  path: string,
  urls: Readonly<Record<string, string>>,
  policy: AddressPolicy,
  lookup: Lookup = systemLookup,
): Promise<readonly ConfigProblem[]> {
  const checks = Object.entries(urls).map(([key, url]) => checkUrl(`${path}.${key}`, url, policy, lookup));
  return (await Promise.all(checks)).filter((problem) => problem !== undefined);
}

async function checkUrl(
  path: string,
  url: string,
  policy: AddressPolicy,
  lookup: Lookup,
): Promise<ConfigProblem | undefined> {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, "");
  const addresses = ipaddr.isValid(host) ? [{ address: host, family: 0 }] : await resolve(host, lookup);
  const refusal = firstRefusal(addresses, policy);
  return refusal === undefined ? undefined : { path, message: `the host ${host} must not be used: ${refusal}` };
}

function resolve(host: string, lookup: Lookup): Promise<readonly LookupAddress[]> {
  return new Promise((done) => {
    lookup(host, { all: true }, (error, addresses) => done(error === null ? addresses : []));
  });
}
