import { randomUUID } from "node:crypto";
import sql from "mssql";
import { requiredKinds } from "./brokers/availability.ts";
import { dockerAnswered, launchContainer } from "./brokers/docker.ts";
import { lastingPorts } from "./brokers/ports.ts";
import { once } from "./brokers/shared.ts";
import { describeWhere } from "./describeWhere.ts";

/** Where a SQL Server listens, and a user who may create databases. */
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
const IMAGE = "mcr.microsoft.com/mssql/server:2022-latest";

/**
 * `describe` for tests that need a SQL Server. Where none can be had, the block is skipped and its name tells why; when
 * `SVC_TEST_REQUIRE` names `sqlserver`, it fails instead.
 */
export function describeWithSqlServer(name: string, block: () => void): void {
  const need = {
    isThere: given() !== undefined || dockerAnswered(),
    isRequired: requiredKinds().has("sqlserver"),
    what: "a SQL Server",
    howToGet: `no SQL Server can be had: start Docker, or set ${VARIABLE} to a running server.`,
    whySkipped: `no SQL Server: start Docker, or set ${VARIABLE}`,
  };
  describeWhere(need, name, block);
}

/** The SQL Server of the run: the one that `SVC_TEST_SQLSERVER_URL` names, else a container that starts when the first test asks. */
export async function sharedSqlServer(): Promise<SqlServerAddress> {
  const url = given();
  return url === undefined ? await once("sqlserver", startContainer) : addressOf(url);
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

async function startContainer(): Promise<SqlServerAddress> {
  const [port = 0] = await lastingPorts(1);
  const address = {
    host: "127.0.0.1",
    port,
    user: "sa",
    // The server asks for letters of both cases, digits and a sign.
    password: `Svc-${randomUUID()}`,
    encrypt: true,
    trustServerCertificate: true,
  };
  await launchContainer({
    kind: "sqlserver",
    image: IMAGE,
    port,
    files: {},
    environment: {
      ACCEPT_EULA: "Y",
      MSSQL_PID: "Developer",
      MSSQL_SA_PASSWORD: address.password,
      MSSQL_TCP_PORT: String(port),
    },
    answers: () => answers(address),
  });
  return address;
}

/** Connects as a client would. */
async function answers(address: SqlServerAddress): Promise<void> {
  const pool = new sql.ConnectionPool(testConnection(address, "master", "svc-test"));
  try {
    await pool.connect();
    await pool.query("SELECT 1 AS answer");
  } finally {
    await pool.close();
  }
}
