/** What goes wrong between this host and any server, whatever is spoken on the connection. */
export const NETWORK_FAULT_CODES = [
  /** No answer in time. */
  "timeout",
  /** The host answers, but nothing listens on the port. */
  "connection_refused",
  /** The connection broke, was ended by the other side or was silent too long. What was sent may have been done. */
  "connection_lost",
  /** No way to the host. */
  "unreachable",
  /** The name of the host could not be resolved. */
  "dns",
  /** The TLS handshake failed: certificate, protocol, or only one of the two sides wants TLS. */
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
/** OpenSSL names certificate faults without a common prefix. */
const TLS_CODE =
  /^ERR_(TLS|SSL)_|^CERT_|^CRL_|CERTIFICATE|_CERT(_|$)|_SIGNATURE$|^HOSTNAME_MISMATCH$|^INVALID_(CA|PURPOSE)$/;

/**
 * What the code of an error of the network means.
 *
 * @param code the error's `code`, of any type: of the system, of name resolution, of Node's TLS or of OpenSSL
 * @returns undefined when it is any other
 */
export function networkFaultCode(code: unknown): NetworkFaultCode | undefined {
  if (typeof code !== "string") return undefined;
  const known = SYSTEM_CODES.get(code);
  if (known !== undefined) return known;
  if (RESOLVER_CODE.test(code)) return "dns";
  return TLS_CODE.test(code) ? "tls" : undefined;
}
