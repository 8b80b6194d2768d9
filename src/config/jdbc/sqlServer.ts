import { didYouMean } from "../kinds.ts";
import {
  CREDENTIALS_ELSEWHERE,
  JdbcUrlError,
  type ParsedJdbcUrl,
  parseBoolean,
  parseHost,
  parsePort,
  type SqlServerTarget,
} from "./target.ts";

export const SQLSERVER_PREFIX = "jdbc:sqlserver://";
const DEFAULT_PORT = 1433;
const DEFAULT_LOGIN_TIMEOUT_S = 30;

/** The properties by name in lower case, with the driver's spelling. */
const PROPERTIES: Readonly<Record<string, string>> = {
  servername: "serverName",
  server: "serverName",
  instancename: "instanceName",
  portnumber: "portNumber",
  port: "portNumber",
  databasename: "databaseName",
  database: "databaseName",
  encrypt: "encrypt",
  trustservercertificate: "trustServerCertificate",
  hostnameincertificate: "hostNameInCertificate",
  multisubnetfailover: "multiSubnetFailover",
  logintimeout: "loginTimeout",
  applicationname: "applicationName",
};

/**
 * Reads `jdbc:sqlserver://host\instance:port;name=value;...`, with the properties of Microsoft's JDBC driver: names in
 * any letter case, values possibly in braces
 * (https://learn.microsoft.com/sql/connect/jdbc/building-the-connection-url).
 *
 * @param url a URL with {@link SQLSERVER_PREFIX}
 * @throws JdbcUrlError that names the wrong part
 */
export function parseSqlServerUrl(url: string): ParsedJdbcUrl {
  const rest = url.slice(SQLSERVER_PREFIX.length);
  const end = rest.indexOf(";");
  const server = parseServer(end < 0 ? rest : rest.slice(0, end));
  const { values, warnings } = properties(end < 0 ? "" : rest.slice(end + 1));

  const host = server.host ?? values.get("serverName");
  if (host === undefined || host === "")
    throw new JdbcUrlError(`names no server: expected ${SQLSERVER_PREFIX}host:1433;databaseName=name`);
  const database = values.get("databaseName");
  if (database === undefined || database === "") throw new JdbcUrlError("names no database: add ;databaseName=<name>");
  const instance = server.instance ?? values.get("instanceName");
  const portText = values.get("portNumber");
  const port = server.port ?? (portText === undefined ? undefined : parsePort(portText));
  const target: SqlServerTarget = {
    type: "sqlserver",
    host,
    port: port ?? (instance === undefined ? DEFAULT_PORT : undefined),
    instance,
    database,
    encrypt: encryption(values.get("encrypt") ?? "true"),
    trustServerCertificate: parseBoolean("trustServerCertificate", values.get("trustServerCertificate") ?? "false"),
    hostNameInCertificate: values.get("hostNameInCertificate"),
    multiSubnetFailover: parseBoolean("multiSubnetFailover", values.get("multiSubnetFailover") ?? "false"),
    loginTimeoutMs: loginTimeoutMs(values.get("loginTimeout")),
    applicationName: values.get("applicationName"),
  };
  return { target, warnings };
}

function parseServer(text: string) {
  if (text.includes("@")) throw new JdbcUrlError(CREDENTIALS_ELSEWHERE);
  if (text.includes(","))
    throw new JdbcUrlError(
      "names several servers: SQL Server takes one, such as the listener of an availability group",
    );
  // host\instance:port
  const match = /^([^\\]*)\\([^:]+)(?::([0-9]+))?$/.exec(text);
  if (match === null) {
    if (text === "") return { host: undefined, port: undefined, instance: undefined };
    return { ...parseHost(text), instance: undefined };
  }
  const { host } = parseHost(match[1] ?? "");
  return { host, instance: match[2], port: match[3] === undefined ? undefined : parsePort(match[3]) };
}

function properties(text: string): { values: Map<string, string>; warnings: string[] } {
  const values = new Map<string, string>();
  const warnings: string[] = [];
  let position = 0;
  while (position < text.length) {
    const equals = text.indexOf("=", position);
    const semicolon = text.indexOf(";", position);
    if (semicolon === position) {
      position += 1;
      continue;
    }
    if (equals < 0 || (semicolon >= 0 && semicolon < equals)) {
      // It may be the rest of a password that holds a semicolon, so the error does not show it.
      throw new JdbcUrlError(
        "a property has no value: expected name=value, with a value that holds a semicolon in braces",
      );
    }
    const name = text.slice(position, equals).trim();
    const { value, end } = propertyValue(text, equals + 1, name);
    position = end;
    if (/^(user|username|password|trustStorePassword|keyStoreSecret|accessToken)$/i.test(name))
      throw new JdbcUrlError(CREDENTIALS_ELSEWHERE);
    const known = Object.hasOwn(PROPERTIES, name.toLowerCase()) ? PROPERTIES[name.toLowerCase()] : undefined;
    if (known !== undefined) values.set(known, value);
    else warnings.push(`JDBC parameter "${name}" has no effect${didYouMean(name, Object.values(PROPERTIES))}`);
  }
  return { values, warnings };
}

/** A value up to the next semicolon, or in braces with `}}` for a brace. */
function propertyValue(text: string, start: number, name: string): { value: string; end: number } {
  const braced = /\s*\{((?:[^}]|\}\})*)\}\s*(;|$)/y;
  braced.lastIndex = start;
  const match = braced.exec(text);
  if (match !== null) return { value: (match[1] ?? "").replaceAll("}}", "}"), end: braced.lastIndex };
  if (/^\s*\{/.test(text.slice(start)))
    throw new JdbcUrlError(`property ${name}: a value that begins with { must end with }`);
  const semicolon = text.indexOf(";", start);
  const end = semicolon < 0 ? text.length : semicolon;
  return { value: text.slice(start, end).trim(), end: end + 1 };
}

const ENCRYPTION = new Map<string, boolean | "strict">(
  Object.entries({
    true: true,
    yes: true,
    mandatory: true,
    false: false,
    no: false,
    optional: false,
    strict: "strict",
  }),
);

function encryption(text: string): boolean | "strict" {
  const encrypt = ENCRYPTION.get(text.toLowerCase());
  if (encrypt !== undefined) return encrypt;
  throw new JdbcUrlError(`parameter encrypt: expected true, false or strict, found ${JSON.stringify(text)}`);
}

function loginTimeoutMs(text: string | undefined): number {
  const seconds = text ?? String(DEFAULT_LOGIN_TIMEOUT_S);
  if (!/^\d{1,5}$/.test(seconds))
    throw new JdbcUrlError(`parameter loginTimeout: expected seconds, found ${JSON.stringify(text)}`);
  // The driver takes 0 for its default.
  return (Number(seconds) || DEFAULT_LOGIN_TIMEOUT_S) * 1000;
}
