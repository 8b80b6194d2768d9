/** Faults between this host and any server, whatever the protocol. */
export const NETWORK_FAULT_CODES = [
  /** No answer in time. */
  "timeout",
  /** The host answers, but nothing listens on the port. */
  "connection_refused",
  /** The connection broke, was closed by the other side or was silent too long. Requests sent may have taken effect. */
  "connection_lost",
  /** No route to the host. */
  "unreachable",
  /** The host name could not be resolved. */
  "dns",
  /** The TLS handshake failed: certificate, protocol, or only one side uses TLS. */
  "tls",
] as const;
type NetworkFaultCode = (typeof NETWORK_FAULT_CODES)[number];

const SYSTEM_CODES: ReadonlyMap<string, NetworkFaultCode> = new Map([
  ["ECONNREFUSED", "connection_refused"],
  ["ECONNRESET", "connection_lost"],
  ["EPIPE", "connection_lost"],
  ["ETIMEDOUT", "timeout"],
  ["EHOSTUNREACH", "unreachable"],
  ["ENETUNREACH", "unreachable"],
  ["EADDRNOTAVAIL", "unreachable"],
  ["ENOTFOUND", "dns"],
  ["ENODATA", "dns"],
  ["EPROTO", "tls"],
]);
const RESOLVER_CODE = /^EAI_/;
/** OpenSSL's certificate faults have no common prefix. */
const TLS_CODE =
  /^ERR_(TLS|SSL)_|^CERT_|^CRL_|CERTIFICATE|_CERT(_|$)|_SIGNATURE$|^HOSTNAME_MISMATCH$|^INVALID_(CA|PURPOSE)$/;

/**
 * @param code an error's `code`, of any type: of the system, of name resolution, of Node's TLS or of OpenSSL
 * @returns undefined for any other code
 */
export function networkFaultCode(code: unknown): NetworkFaultCode | undefined {
  if (typeof code !== "string") return undefined;
  const known = SYSTEM_CODES.get(code);
  if (known !== undefined) return known;
  if (RESOLVER_CODE.test(code)) return "dns";
  return TLS_CODE.test(code) ? "tls" : undefined;
}
