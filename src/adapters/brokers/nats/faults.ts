import { ErrorCode } from "nats";
import { errorText } from "../../../model/errors.ts";
import { NETWORK_FAULT_CODES, networkFaultCode } from "../../../model/networkFaults.ts";

/** Why the connection failed or ended. */
export const NATS_FAULT_CODES = [
  ...NETWORK_FAULT_CODES,
  /** The server refused user name, password or token. */
  "authentication",
  "other",
] as const;
type NatsFaultCode = (typeof NATS_FAULT_CODES)[number];

/** Connecting failed. The message is written for an operator and holds no credentials. */
export class NatsFault extends Error {
  override readonly name = "NatsFault";
  readonly code: NatsFaultCode;

  constructor(code: NatsFaultCode, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Translates an error that the client threw or closed with.
 *
 * @param server `host:port`
 * @param timeoutMs timeout of the attempt
 */
export function connectFault(server: string, error: unknown, timeoutMs: number): NatsFault {
  const { code, chained } = partsOf(error);
  switch (code) {
    case ErrorCode.Timeout:
      return new NatsFault("timeout", `${server} did not answer within ${timeoutMs} ms`);
    case ErrorCode.AuthorizationViolation:
    case ErrorCode.AuthenticationExpired:
    case ErrorCode.AccountExpired:
    case ErrorCode.AuthenticationTimeout:
    case ErrorCode.BadAuthentication:
      return new NatsFault(
        "authentication",
        `${server} refused the login (${plain(errorText(error))}): check username and password, or token, and the server's accounts`,
      );
    case ErrorCode.ServerOptionNotAvailable:
      return new NatsFault("tls", `${server} does not offer TLS: use nats:// or turn TLS on at the server`);
    case ErrorCode.ConnectionRefused:
      if (partsOf(chained).code === "ECONNREFUSED")
        return new NatsFault("connection_refused", `${server} refused the connection: is the server running there?`);
      return new NatsFault("connection_lost", `${server} closed the connection before its greeting`);
    default: {
      const known = networkFaultCode(code) ?? "other";
      return new NatsFault(known, `${server}: ${plain(errorText(error ?? "the connection was closed"))}`);
    }
  }
}

export function lossText(server: string, error: unknown): string {
  if (error === undefined || error === null) return `${server} closed the connection`;
  return `the connection to ${server} broke: ${plain(errorText(error))}`;
}

function partsOf(error: unknown): { readonly code: unknown; readonly chained: unknown } {
  const { code, chainedError } = Object(error) as { readonly code?: unknown; readonly chainedError?: unknown };
  return { code, chained: chainedError };
}

/** Removes the server's quotes around the reason, and the client's code before it. */
function plain(text: string): string {
  return /^[A-Z_]+ '([^']*)'$/.exec(text)?.[1] ?? text;
}
