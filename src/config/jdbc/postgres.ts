import { didYouMean } from "../kinds.ts";
import {
  CREDENTIALS_ELSEWHERE,
  JdbcUrlError,
  type ParsedJdbcUrl,
  type PostgresTarget,
  parseBoolean,
  parseHost,
  SSL_MODES,
  type SslMode,
} from "./target.ts";

export const POSTGRES_PREFIX = "jdbc:postgresql://";
const DEFAULT_PORT = 5432;

/** Parameters that a key of the configuration replaces. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  connectTimeout: "database.connectionTimeoutMs",
  loginTimeout: "database.connectionTimeoutMs",
};

/** What the parameters set. */
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
 * @param url a URL with {@link POSTGRES_PREFIX}
 * @throws JdbcUrlError that names the wrong part
 */
export function parsePostgresUrl(url: string): ParsedJdbcUrl {
  const rest = url.slice(POSTGRES_PREFIX.length);
  const [address = "", query] = split(rest, "?");
  const [authority = "", database] = split(address, "/");
  // The whole address, since a password may hold a slash.
  if (address.includes("@")) throw new JdbcUrlError(CREDENTIALS_ELSEWHERE);
  const hosts = authority.split(",").map((text) => {
    const { host, port } = parseHost(text.trim());
    return { host: decoded(host), port: port ?? DEFAULT_PORT };
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

/** Cuts at the first separator. */
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
