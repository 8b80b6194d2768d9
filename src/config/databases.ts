import { POSTGRES_PREFIX, parsePostgresUrl } from "./jdbc/postgres.ts";
import { parseSqlServerUrl, SQLSERVER_PREFIX } from "./jdbc/sqlServer.ts";
import { type DatabaseTarget, JdbcUrlError, type ParsedJdbcUrl } from "./jdbc/target.ts";

/** What the configuration knows of a database. */
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

/** Every database that `database.type` names; one that a {@link DatabaseTarget} lacks here does not compile. */
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
 * @param url a JDBC URL of that type
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
