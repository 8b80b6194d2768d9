import type sql from "mssql";
import { requiredKinds } from "./brokers/availability.ts";
import { describeWhere } from "./describeWhere.ts";

/** The address of a SQL Server, and a user who may create databases. */
export interface SqlServerAddress {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly encrypt: boolean;
  readonly trustServerCertificate: boolean;
}

/** Names a running server: `mssql://user:password@host:port/?encrypt=false&trustServerCertificate=true`, user and password URL-encoded. */
const VARIABLE = "SVC_TEST_SQLSERVER_URL";

/**
 * `describe` for tests that need a SQL Server. If none is available, the block is skipped and its name gives the reason; when `SVC_TEST_REQUIRE` names
 * `sqlserver`, it fails instead.
 */
export function describeWithSqlServer(name: string, block: () => void): void {
  const need = {
    isThere: given() !== undefined,
    isRequired: requiredKinds().has("sqlserver"),
    what: "a SQL Server",
    howToGet: `no SQL Server can be had: set ${VARIABLE} to a running server.`,
    whySkipped: `no SQL Server: set ${VARIABLE}`,
  };
  describeWhere(need, name, block);
}

/** The SQL Server that `SVC_TEST_SQLSERVER_URL` names. @throws Error if it names none */
export function sharedSqlServer(): SqlServerAddress {
  const url = given();
  if (url === undefined) throw new Error(`no SQL Server: set ${VARIABLE}`);
  return addressOf(url);
}

/** The driver's configuration for the one connection of a test's own, which stays until it is closed. */
export function testConnection(server: SqlServerAddress, database: string, applicationName: string): sql.config {
  return {
    server: server.host,
    port: server.port,
    user: server.user,
    password: server.password,
    database,
    pool: { min: 1, max: 1 },
    requestTimeout: 30_000,
    options: {
      encrypt: server.encrypt,
      trustServerCertificate: server.trustServerCertificate,
      appName: applicationName,
      lowerCaseGuids: true,
    } as NonNullable<sql.config["options"]>,
  };
}

function given(): string | undefined {
  return process.env[VARIABLE] || undefined;
}

function addressOf(text: string): SqlServerAddress {
  const url = new URL(text);
  return {
    host: url.hostname,
    port: Number(url.port || 1433),
    user: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
    encrypt: url.searchParams.get("encrypt") !== "false",
    trustServerCertificate: url.searchParams.get("trustServerCertificate") === "true",
  };
}
