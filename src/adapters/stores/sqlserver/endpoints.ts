import { isIP } from "node:net";
import type sql from "mssql";
import type { Secret } from "../../../model/secret.ts";

export interface Endpoint {
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
  /** Whether all addresses of the host are tried at once, not one after another. */
  readonly multiSubnetFailover: boolean;
  readonly connectionTimeoutMs: number;
  readonly applicationName: string;
}

export interface PoolOptions extends Endpoint {
  readonly loginTimeoutMs: number;
  readonly poolSize: number;
}

export function poolConfig(options: PoolOptions): sql.config {
  const { port, instance, hostNameInCertificate: serverName } = options;
  return {
    server: options.host,
    ...(port === undefined ? {} : { port }),
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
      ...(port === undefined && instance !== undefined ? { instanceName: instance } : {}),
      encrypt: options.encrypt as boolean,
      trustServerCertificate: options.trustServerCertificate,
      // For the certificate's check; an address is not a name (RFC 6066, section 3).
      ...(serverName === undefined || isIP(serverName) !== 0 ? {} : { serverName }),
      multiSubnetFailover: options.multiSubnetFailover,
      appName: options.applicationName,
      useUTC: true,
      // As PostgreSQL writes them, and as the process compares them.
      lowerCaseGuids: true,
      // Filtered indexes require it (CREATE INDEX, "Required SET options for filtered indexes").
      enableArithAbort: true,
    } as NonNullable<sql.config["options"]>,
  };
}
