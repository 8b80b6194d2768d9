/** A parsed JDBC URL. User name and password are separate keys. */
export type DatabaseTarget = PostgresTarget | SqlServerTarget;

export const SSL_MODES = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const;
export type SslMode = (typeof SSL_MODES)[number];

interface HostAndPort {
  /** Name or address; an IPv6 address without brackets. */
  readonly host: string;
  readonly port: number;
}

export interface PostgresTarget {
  readonly type: "postgresql";
  /** Tried in this order at each new connection; never empty. */
  readonly hosts: readonly HostAndPort[];
  /** Undefined when the URL names none: the server then takes the user's name. */
  readonly database: string | undefined;
  /** Default: `prefer`, as in the JDBC driver. */
  readonly sslMode: SslMode;
  /** Files in PEM format: authority, own certificate, own key. */
  readonly sslRootCert: string | undefined;
  readonly sslCert: string | undefined;
  readonly sslKey: string | undefined;
  /** `primary` skips hosts that are standbys. */
  readonly targetServerType: "any" | "primary";
  readonly applicationName: string | undefined;
  readonly currentSchema: string | undefined;
}

export interface SqlServerTarget {
  readonly type: "sqlserver";
  readonly host: string;
  /** Undefined when only an instance is named: the server's browser service then has the port. */
  readonly port: number | undefined;
  readonly instance: string | undefined;
  readonly database: string;
  readonly encrypt: boolean | "strict";
  readonly trustServerCertificate: boolean;
  readonly hostNameInCertificate: string | undefined;
  /** Whether the addresses of a listener in several subnets are tried at once. */
  readonly multiSubnetFailover: boolean;
  readonly loginTimeoutMs: number;
  readonly applicationName: string | undefined;
}

export interface ParsedJdbcUrl {
  readonly target: DatabaseTarget;
  readonly warnings: readonly string[];
}

/** A JDBC URL that cannot be used; the message holds no part of the URL that could be a credential. */
export class JdbcUrlError extends Error {
  override readonly name = "JdbcUrlError";
}

export const CREDENTIALS_ELSEWHERE =
  "the URL must hold no user name or password: put them into database.username and database.password";

/**
 * Reads `host`, `host:port`, `[IPv6]` or `[IPv6]:port`, without surrounding blanks.
 *
 * @returns the host, `localhost` when it is empty, and the port when there is one
 * @throws JdbcUrlError
 */
export function parseHost(text: string): { readonly host: string; readonly port: number | undefined } {
  const match = /^(?:\[([0-9A-Fa-f:.%]+)\]|([^:[\]\s]*))(?::([0-9]+))?$/.exec(text);
  if (match === null) {
    // It may be a part of a password, so the error does not show it.
    throw new JdbcUrlError("the part behind // names no host: expected host, host:port or [IPv6 address]:port");
  }
  return {
    host: match[1] ?? (match[2] || "localhost"),
    port: match[3] === undefined ? undefined : parsePort(match[3]),
  };
}

/** @throws JdbcUrlError unless the text is a port from 1 to 65535 */
export function parsePort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65535) throw new JdbcUrlError("expected a port from 1 to 65535");
  return port;
}

/** @throws JdbcUrlError unless the text is `true` or `false`, in any letter case */
export function parseBoolean(name: string, text: string): boolean {
  const lower = text.toLowerCase();
  if (lower !== "true" && lower !== "false")
    throw new JdbcUrlError(`parameter ${name}: expected true or false, found ${JSON.stringify(text)}`);
  return lower === "true";
}
