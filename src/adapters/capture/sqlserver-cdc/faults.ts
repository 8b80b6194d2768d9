import { errorText } from "../../../model/errors.ts";
import type { Endpoint } from "../../stores/sqlserver/endpoints.ts";
import { MAX_CONNECT_MS, REQUEST_TIMEOUT_MS } from "./session.ts";
import {
  addMember,
  ENABLE_DATABASE,
  enableTable,
  grantSelect,
  type SourceTable,
  type Statement,
  tableName,
} from "./statements.ts";

/** Why the changes cannot be followed, and what to do. Holds no credential. */
export class CaptureFault extends Error {
  override readonly name = "CaptureFault";
  /** Of the server's error (`sys.messages`); undefined for another error. */
  readonly number: number | undefined;

  constructor(message: string, number?: number) {
    super(message);
    this.number = number;
  }
}

/** `host:port`, or `host\instance`. */
function serverName({ host, port, instance }: Endpoint): string {
  if (port !== undefined) return `${host}:${port}`;
  return instance === undefined ? host : `${host}\\${instance}`;
}

/** The meaning of a driver's error. @param statement the one that failed; undefined before a connection */
export function driverFault(endpoint: Endpoint, error: unknown, statement?: Statement): CaptureFault {
  const { name, code, number, originalError } = Object(error) as DriverError;
  // The driver wraps the network's error in one that only repeats it.
  const text = errorText((Object(originalError) as DriverError).cause ?? originalError ?? error);
  if (statement === undefined || name === "ConnectionError") return connectFault(endpoint, String(code), text);
  const what = `${serverName(endpoint)}, database ${endpoint.database}: the statement "${statement.name}"`;
  if (typeof number === "number")
    return new CaptureFault(`${what} failed: ${(error as Error).message} (error ${number})`, number);
  if (code !== "ETIMEOUT") return new CaptureFault(`${what} failed, its connection broke: ${text}`);
  return new CaptureFault(
    `${what} was not answered within ${REQUEST_TIMEOUT_MS} ms: look for what it waits for in sys.dm_exec_requests`,
  );
}

/** The properties of the driver's errors that count here. */
type DriverError = Partial<Record<"name" | "code" | "number" | "originalError" | "cause", unknown>>;

function connectFault(endpoint: Endpoint, code: string, text: string): CaptureFault {
  const server = serverName(endpoint);
  switch (code) {
    case "ELOGIN":
      return new CaptureFault(
        `${server} refused the login of ${endpoint.username} to database ${endpoint.database} (${text}): check username and password (outbox.capture.connection, else database), the database's name, and that the login has a user there`,
      );
    case "EINSTLOOKUP":
      return new CaptureFault(
        `${server}: the SQL Server Browser did not return the port of the instance (${text}): start the Browser and open UDP 1434, or set outbox.capture.connection.port`,
      );
    case "ETIMEOUT": {
      const ms = Math.min(endpoint.connectionTimeoutMs, MAX_CONNECT_MS);
      const lookup =
        endpoint.port === undefined ? " (UDP 1434 too, where the SQL Server Browser returns the port)" : "";
      return new CaptureFault(
        `${server} did not answer within ${ms} ms: check host and port (outbox.capture.connection) and the firewalls between${lookup}`,
      );
    }
    default:
      return new CaptureFault(`${server}: no connection: ${text}${connectHint(text)}`);
  }
}

function connectHint(text: string): string {
  if (text.includes("ECONNREFUSED")) return ": is the server running there, and does it listen on TCP?";
  if (!/certificate|altname/i.test(text)) return "";
  return ": give the process the certificate's issuer (NODE_EXTRA_CA_CERTS), name the host that the certificate is for, or set outbox.capture.connection.trustServerCertificate on a network you trust";
}

export function databaseNotEnabled(database: string): CaptureFault {
  return new CaptureFault(
    `change data capture is off in database ${database}: run ${ENABLE_DATABASE} there as a sysadmin (as db_owner in Azure SQL Database, which needs the vCore model, or S3 or more in the DTU model)`,
  );
}

export function tableNotVisible(table: SourceTable, database: string, user: string): CaptureFault {
  return new CaptureFault(
    `there is no table ${tableName(table)} in database ${database} that user ${user} may see: check outbox.capture.schema and the table's name, or run ${grantSelect(table, user)}`,
  );
}

export function tableNotEnabled(table: SourceTable): CaptureFault {
  return new CaptureFault(
    `table ${tableName(table)} has no capture instance: run ${enableTable(table)} as db_owner (the column of the primary key is enough, and captures no payload)`,
  );
}

/** @param role the gating role of the capture instance; undefined when unknown */
export function notReadable(table: SourceTable, user: string, role?: string): CaptureFault {
  const membership =
    role === undefined
      ? "membership in the gating role of the capture instance, where it has one (EXEC sys.sp_cdc_help_change_data_capture; shows it to a db_owner as role_name)"
      : `membership in the gating role of the capture instance: ${addMember(role, user)}`;
  return new CaptureFault(
    `user ${user} may not read the changes of table ${tableName(table)}: it needs SELECT on every captured column, ${grantSelect(table, user)} and ${membership}`,
  );
}
