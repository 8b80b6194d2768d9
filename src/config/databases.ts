import {
  CREDENTIALS_ELSEWHERE,
  type DatabaseTarget,
  JdbcUrlError,
  type ParsedJdbcUrl,
  type PostgresTarget,
  parseBoolean,
  parseHost,
  parsePort,
  type SqlServerTarget,
  SSL_MODES,
  type SslMode,
} from "./jdbc/target.ts";
import { didYouMean } from "./kinds.ts";

interface Database {
  /** How its JDBC URLs begin. */
  readonly prefix: string;
  /** @throws JdbcUrlError when a part of the URL is wrong */
  readonly parse: (url: string) => ParsedJdbcUrl;
  /** Longest name of a table or column, in characters. */
  readonly longestName: number;
  readonly defaultSchema: string;
  /** The `outbox.capture.mode` that reads its log. */
  readonly captureMode: "postgres-logical" | "sqlserver-cdc";
}

const POSTGRES_PREFIX = "jdbc:postgresql://";
const SQLSERVER_PREFIX = "jdbc:sqlserver://";

/** Every database that `database.type` names; if the database of a {@link DatabaseTarget} is missing here, nothing compiles. */
export const DATABASES: { readonly [T in DatabaseTarget["type"]]: Database } = {
  postgresql: {
    prefix: POSTGRES_PREFIX,
    parse: parsePostgresUrl,
    longestName: 63,
    defaultSchema: "public",
    captureMode: "postgres-logical",
  },
  sqlserver: {
    prefix: SQLSERVER_PREFIX,
    parse: parseSqlServerUrl,
    longestName: 128,
    defaultSchema: "dbo",
    captureMode: "sqlserver-cdc",
  },
};

/** The schema that has the tables of a database; on SQL Server it is that of the user. */
export function schemaOf(target: DatabaseTarget): string {
  return (target.type === "postgresql" ? target.currentSchema : undefined) ?? DATABASES[target.type].defaultSchema;
}

/**
 * Reads `database.url`.
 *
 * @param type `database.type`
 * @throws JdbcUrlError when the URL is of another type, or a part of it is wrong
 */
export function parseJdbcUrl(type: DatabaseTarget["type"], url: string): ParsedJdbcUrl {
  const { prefix, parse } = DATABASES[type];
  if (url.startsWith(prefix)) return parse(url);
  const other = Object.entries(DATABASES).find((entry) => url.startsWith(entry[1].prefix))?.[0];
  if (other !== undefined) {
    throw new JdbcUrlError(`is a URL of ${other}, but database.type is ${type}: expected ${prefix}...`);
  }
  const file = url.startsWith("file:")
    ? '; "file:" names no secret file in this key, which is not a pure credential'
    : "";
  throw new JdbcUrlError(`expected a JDBC URL that begins with ${prefix} (database.type is ${type})${file}`);
}

const POSTGRES_PORT = 5432;

/** Parameters that a key of the configuration replaces. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  connectTimeout: "database.connectionTimeoutMs",
  loginTimeout: "database.connectionTimeoutMs",
};

type Settings = Partial<Omit<PostgresTarget, "type" | "hosts" | "database">> & { readonly ssl?: boolean };

const SETTINGS: Readonly<Record<string, (value: string) => Settings>> = {
  sslmode: (value) => ({ sslMode: sslMode(value) }),
  ssl: (value) => ({ ssl: value === "" || parseBoolean("ssl", value) }),
  sslrootcert: (sslRootCert) => ({ sslRootCert }),
  sslcert: (sslCert) => ({ sslCert }),
  sslkey: (sslKey) => ({ sslKey }),
  targetServerType: (value) => ({ targetServerType: serverType(value) }),
  ApplicationName: (applicationName) => ({ applicationName }),
  currentSchema: (value) => ({ currentSchema: schemaName(value) }),
};

/**
 * Reads `jdbc:postgresql://host1:port1,host2:port2/database?name=value&...`, with the parameters of the PostgreSQL JDBC
 * driver (https://jdbc.postgresql.org/documentation/use/).
 *
 * @throws JdbcUrlError that names the wrong part
 */
function parsePostgresUrl(url: string): ParsedJdbcUrl {
  const rest = url.slice(POSTGRES_PREFIX.length);
  const [address = "", query] = split(rest, "?");
  const [authority = "", database] = split(address, "/");
  // The whole address, since a password may hold a slash.
  if (address.includes("@")) throw new JdbcUrlError(CREDENTIALS_ELSEWHERE);
  const hosts = authority.split(",").map((text) => {
    const { host, port } = parseHost(text.trim());
    return { host: decoded(host), port: port ?? POSTGRES_PORT };
  });
  const { settings, warnings } = parameters(query ?? "");
  const target: PostgresTarget = {
    type: "postgresql",
    hosts,
    database: database === undefined || database === "" ? undefined : decoded(database),
    sslMode: settings.sslMode ?? (settings.ssl === true ? "verify-full" : "prefer"),
    sslRootCert: settings.sslRootCert,
    sslCert: settings.sslCert,
    sslKey: settings.sslKey,
    targetServerType: settings.targetServerType ?? "any",
    applicationName: settings.applicationName,
    currentSchema: settings.currentSchema,
  };
  return { target, warnings };
}

function parameters(query: string) {
  let settings: Settings = {};
  const warnings: string[] = [];
  for (const pair of query.split("&").filter((text) => text !== "")) {
    const [rawName = "", rawValue = ""] = split(pair, "=");
    const name = decoded(rawName);
    if (/^(user|password|sslpassword)$/i.test(name)) throw new JdbcUrlError(CREDENTIALS_ELSEWHERE);
    const setting = Object.hasOwn(SETTINGS, name) ? SETTINGS[name] : undefined;
    const elsewhere = Object.hasOwn(ELSEWHERE, name) ? ELSEWHERE[name] : undefined;
    if (setting !== undefined) settings = { ...settings, ...setting(decoded(rawValue)) };
    else if (elsewhere !== undefined) warnings.push(`JDBC parameter "${name}" has no effect: set ${elsewhere}`);
    else warnings.push(`JDBC parameter "${name}" has no effect${didYouMean(name, Object.keys(SETTINGS))}`);
  }
  return { settings, warnings };
}

function sslMode(value: string): SslMode {
  const mode = SSL_MODES.find((known) => known === value);
  if (mode !== undefined) return mode;
  throw new JdbcUrlError(`parameter sslmode: expected one of ${SSL_MODES.join(", ")}, found ${JSON.stringify(value)}`);
}

/** A standby takes no writes, so every preference for a primary means a primary. */
function serverType(value: string): "any" | "primary" {
  if (value === "any") return "any";
  if (["primary", "master", "preferPrimary"].includes(value)) return "primary";
  throw new JdbcUrlError(`parameter targetServerType: expected any or primary, found ${JSON.stringify(value)}`);
}

/** One schema, which holds every table; by the rule for the names of tables and columns. */
function schemaName(value: string): string {
  if (/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(value)) return value;
  throw new JdbcUrlError(
    "parameter currentSchema: expected the name of one schema (a letter or _ first, then letters, digits and _, at most 63), " +
      `found ${JSON.stringify(value)}`,
  );
}

function split(text: string, separator: string): [string, string?] {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new JdbcUrlError('holds a "%" that begins no percent-encoded character; write a plain "%" as %25');
  }
}

const SQLSERVER_PORT = 1433;
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
 * @throws JdbcUrlError that names the wrong part
 */
function parseSqlServerUrl(url: string): ParsedJdbcUrl {
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
    port: port ?? (instance === undefined ? SQLSERVER_PORT : undefined),
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
