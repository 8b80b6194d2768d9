import { isIP } from "node:net";
import type sql from "mssql";
import type { Secret } from "../../../model/secret.ts";

interface SqlServerConnection {
  /** Name or address; of an availability group its listener. */
  readonly host: string;
  /** Undefined for a named instance: the server's browser service then returns the port. */
  readonly port: number | undefined;
  readonly instance: string | undefined;
  readonly database: string;
  readonly username: string;
  readonly password: Secret;
  readonly encrypt: boolean | "strict";
  readonly trustServerCertificate: boolean;
  readonly hostNameInCertificate: string | undefined;
  readonly loginTimeoutMs: number;
  readonly applicationName: string;
}

export interface PoolOptions extends SqlServerConnection {
  /** Most connections (`database.poolSize`). */
  readonly poolSize: number;
  /** Longest wait for a connection, in ms (`database.connectionTimeoutMs`). */
  readonly connectionTimeoutMs: number;
}

/** The driver's configuration. @param options from the JDBC URL and the keys of `database` */
export function connectionConfig(options: PoolOptions): sql.config {
  const serverName = options.hostNameInCertificate;
  return {
    server: options.host,
    ...(options.port === undefined ? {} : { port: options.port }),
    database: options.database,
    user: options.username,
    password: options.password.reveal(),
    connectionTimeout: Math.min(options.connectionTimeoutMs, options.loginTimeoutMs),
    pool: {
      min: 0,
      max: options.poolSize,
      acquireTimeoutMillis: options.connectionTimeoutMs,
      idleTimeoutMillis: 60_000,
    },
    options: {
      ...(options.port === undefined && options.instance !== undefined ? { instanceName: options.instance } : {}),
      encrypt: options.encrypt as boolean,
      trustServerCertificate: options.trustServerCertificate,
      // For the certificate's check; an address is not a name (RFC 6066, section 3).
      ...(serverName === undefined || isIP(serverName) !== 0 ? {} : { serverName }),
      appName: options.applicationName,
      useUTC: true,
      // As PostgreSQL writes them, and as the process compares them.
      lowerCaseGuids: true,
      // Filtered indexes require it (CREATE INDEX, "Required SET options for filtered indexes").
      enableArithAbort: true,
    } as NonNullable<sql.config["options"]>,
  };
}
