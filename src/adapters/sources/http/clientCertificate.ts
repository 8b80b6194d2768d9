import { X509Certificate } from "node:crypto";
import ipaddr from "ipaddr.js";
import type { SignedRequest } from "./scheme.ts";
import type { Refusal } from "./signature.ts";

/**
 * Mutual TLS that ends at a proxy: the certificate of the client comes in a header of the request. The proxy has
 * verified it; here only who it names counts, and that the request came through the proxy.
 */

export interface ClientCertificateSettings {
  readonly certificateHeader: string;
  /** Networks such as `10.0.0.0/8`, or single addresses. */
  readonly trustedProxies: readonly string[];
  /** SHA-256 of the certificate in hexadecimal. One match of any list is enough. */
  readonly fingerprints?: readonly string[] | undefined;
  readonly commonNames?: readonly string[] | undefined;
  /** With their kind: `DNS:billing.example`, `URI:spiffe://example/billing`. */
  readonly subjectAltNames?: readonly string[] | undefined;
}

/** Makes the check of a client certificate. @param now in Unix milliseconds @throws Error for a network that is none */
export function createCertificateCheck(settings: ClientCertificateSettings, now: () => number): Refusal {
  const { certificateHeader: header, commonNames = [], subjectAltNames = [] } = settings;
  const isTrusted = createAddressTest(settings.trustedProxies);
  const fingerprints = (settings.fingerprints ?? []).map(normalFingerprint);
  const matches = ({ fingerprint, names, altNames }: Identity): boolean =>
    fingerprints.includes(fingerprint) ||
    names.some((name) => commonNames.includes(name)) ||
    altNames.some((name) => subjectAltNames.includes(name));
  return (request) => {
    if (!isTrusted(request.socket?.remoteAddress)) return "the request did not come through a trusted proxy";
    const texts = headerTexts(request, header);
    const [text] = texts;
    if (text === undefined) return `missing ${header} header`;
    if (texts.length > 1) return `several ${header} headers`;
    const identity = readIdentity(text);
    if (identity === undefined) return `the ${header} header holds no certificate, or several`;
    if (now() < identity.validFrom || now() > identity.validTo) {
      return "the client certificate has expired, or is not valid yet";
    }
    return matches(identity) ? null : "this source does not accept the client certificate";
  };
}

/** What a certificate says of its owner. */
interface Identity {
  /** In hexadecimal, lower case. */
  readonly fingerprint: string;
  readonly names: readonly string[];
  readonly altNames: readonly string[];
  /** Unix milliseconds. */
  readonly validFrom: number;
  readonly validTo: number;
}

/**
 * Reads a certificate as proxies write it into a header: percent-encoded PEM (nginx, AWS), `:base64:` (RFC 9440),
 * base64 (Traefik, HAProxy; of a chain the first), or `X-Forwarded-Client-Cert` of Envoy with one element.
 */
function readIdentity(text: string): Identity | undefined {
  const trimmed = text.trim();
  if (/(?:^|;)\s*(?:hash|cert)=/i.test(trimmed)) return fromEnvoy(trimmed);
  const bytes = RFC_9440.exec(trimmed)?.[1];
  if (bytes !== undefined) return fromBase64(bytes);
  const decoded = decodedUri(trimmed);
  if (decoded === undefined) return undefined;
  return decoded.includes("-----BEGIN") ? fromPem(decoded) : fromBase64(decoded.split(",", 1)[0] ?? "");
}

const RFC_9440 = /^:([A-Za-z0-9+/]+={0,2}):$/;
const BASE64 = /^[A-Za-z0-9+/\s]+={0,2}\s*$/;
const PEM = /-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/;

function decodedUri(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** The first of a chain is the client's. */
function fromPem(text: string): Identity | undefined {
  const body = PEM.exec(text)?.[1];
  return body === undefined ? undefined : fromBase64(body);
}

function fromBase64(text: string): Identity | undefined {
  if (!BASE64.test(text)) return undefined;
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(Buffer.from(text, "base64"));
  } catch {
    return undefined;
  }
  const { subject, subjectAltName, validFrom, validTo, fingerprint256 } = certificate;
  return {
    fingerprint: normalFingerprint(fingerprint256),
    names: commonNamesOf(subject),
    altNames: altNamesOf(subjectAltName ?? ""),
    validFrom: Date.parse(validFrom),
    validTo: Date.parse(validTo),
  };
}

/** A line for each part; Node escapes line breaks in their values. Undefined without any part. */
const commonNamesOf = (subject: string | undefined): readonly string[] =>
  (subject ?? "").split("\n").flatMap((part) => (part.startsWith("CN=") ? [part.slice("CN=".length)] : []));

/** Node quotes a value that holds a comma, so that it cannot pass for two. */
const ALT_NAME = /(?:^|, )((?:DNS|URI|email|IP Address):)("(?:[^"\\]|\\.)*"|[^,]*)/g;

function altNamesOf(text: string): readonly string[] {
  return Array.from(text.matchAll(ALT_NAME), ([, kind = "", value = ""]) => kind + value);
}

/** Keys and values of an element, quoted if they hold a separator (Envoy documentation, "x-forwarded-client-cert"). */
const ENVOY_PART = /\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^,;"]*)(;|,|$)/y;

function fromEnvoy(text: string): Identity | undefined {
  const parts = new Map<string, string>();
  for (ENVOY_PART.lastIndex = 0; ENVOY_PART.lastIndex < text.length; ) {
    const [, key = "", value = "", end] = ENVOY_PART.exec(text) ?? [];
    // A comma begins the element of another proxy, which the client may have sent itself.
    if (key === "" || end === "," || parts.has(key.toLowerCase())) {
      // `URI` and `DNS` may come several times; what identifies the certificate may not.
      if (key === "" || end === "," || /^(?:hash|cert)$/i.test(key)) return undefined;
      continue;
    }
    parts.set(key.toLowerCase(), value.startsWith('"') ? value.slice(1, -1) : value);
  }
  const certificate = parts.get("cert");
  if (certificate !== undefined) return fromPem(decodedUri(certificate) ?? "");
  const fingerprint = normalFingerprint(parts.get("hash") ?? "");
  if (!FINGERPRINT.test(fingerprint)) return undefined;
  const always = { validFrom: Number.NEGATIVE_INFINITY, validTo: Number.POSITIVE_INFINITY };
  return { fingerprint, names: [], altNames: [], ...always };
}

const FINGERPRINT = /^[0-9a-f]{64}$/;
const normalFingerprint = (text: string): string => text.replaceAll(":", "").toLowerCase();

/** Node joins repeated headers, so the raw ones count: the joined text does not show which of them the proxy wrote. */
function headerTexts({ headers, rawHeaders = [] }: SignedRequest, name: string): readonly string[] {
  const wanted = name.toLowerCase();
  const raw = rawHeaders.filter((_, n) => n % 2 === 1 && rawHeaders[n - 1]?.toLowerCase() === wanted);
  if (raw.length > 0) return raw;
  const value = Object.hasOwn(headers, wanted) ? headers[wanted] : undefined;
  return value === undefined ? [] : [value].flat();
}

/** @returns whether an address, also an IPv4 address in IPv6 form, is in a network @throws Error for a wrong network */
function createAddressTest(networks: readonly string[]): (address: string | undefined) => boolean {
  const parsed = networks.map(parseNetwork);
  return (text) => {
    if (text === undefined || !ipaddr.isValid(text)) return false;
    const address = ipaddr.process(text);
    return parsed.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
  };
}

function parseNetwork(text: string): readonly [ipaddr.IPv4 | ipaddr.IPv6, number] {
  const [address = "", bits] = text.split("/", 2);
  if (ipaddr.isValid(address) && !/^\d+(?:\.\d+){0,2}$/.test(address)) {
    if (bits === undefined) {
      const single = ipaddr.process(address);
      return [single, single.kind() === "ipv4" ? 32 : 128];
    }
    if (ipaddr.isValidCIDR(text)) return ipaddr.parseCIDR(text);
  }
  throw new Error(`is ${JSON.stringify(text)}: an address or a network is expected, such as 10.0.0.0/8 or ::1`);
}

/** What is wrong with the settings, by their keys. @returns one text a key, without the key itself */
export function certificateProblems(settings: ClientCertificateSettings): readonly (readonly [string, string])[] {
  const { trustedProxies, fingerprints = [], commonNames = [], subjectAltNames = [] } = settings;
  const problems: [string, string][] = [];
  for (const network of trustedProxies) {
    try {
      parseNetwork(network);
    } catch (error) {
      problems.push(["trustedProxies", (error as Error).message]);
    }
  }
  for (const fingerprint of fingerprints) {
    if (FINGERPRINT.test(normalFingerprint(fingerprint))) continue;
    problems.push(["fingerprints", "holds a text that is not a SHA-256 in hexadecimal: 64 digits are expected"]);
  }
  for (const name of subjectAltNames) {
    if (/^(?:DNS|URI|email|IP Address):./.test(name)) continue;
    const expected = "a kind in front is expected: DNS:, URI:, email: or IP Address:";
    problems.push(["subjectAltNames", `has ${JSON.stringify(name)}: ${expected}`]);
  }
  if (fingerprints.length + commonNames.length + subjectAltNames.length === 0) {
    const message =
      "needs one of fingerprints, commonNames and subjectAltNames: without them every certificate of the authority passes";
    problems.push(["certificateHeader", message]);
  }
  return problems;
}
