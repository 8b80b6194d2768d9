import { POSTGRES_PREFIX, parsePostgresUrl } from "./postgres.ts";
import { parseSqlServerUrl, SQLSERVER_PREFIX } from "./sqlServer.ts";
import { type DatabaseTarget, JdbcUrlError, type ParsedJdbcUrl } from "./target.ts";

const PARSERS: {
  readonly [T in DatabaseTarget["type"]]: { readonly prefix: string; readonly parse: (url: string) => ParsedJdbcUrl };
} = {
  postgresql: { prefix: POSTGRES_PREFIX, parse: parsePostgresUrl },
  sqlserver: { prefix: SQLSERVER_PREFIX, parse: parseSqlServerUrl },
};

/**
 * Reads `database.url`.
 *
 * @param type `database.type`
 * @param url a JDBC URL of that type
 * @throws JdbcUrlError when the URL is of another type, or a part of it is wrong
 */
export function parseJdbcUrl(type: DatabaseTarget["type"], url: string): ParsedJdbcUrl {
  const { prefix, parse } = PARSERS[type];
  if (url.startsWith(prefix)) return parse(url);
  const other = Object.entries(PARSERS).find((entry) => url.startsWith(entry[1].prefix))?.[0];
  if (other !== undefined) {
    throw new JdbcUrlError(`is a URL of ${other}, but database.type is ${type}: expected ${prefix}...`);
  }
  const file = url.startsWith("file:")
    ? '; "file:" names no secret file in this key, since it is no pure credential'
    : "";
  throw new JdbcUrlError(`expected a JDBC URL that begins with ${prefix} (database.type is ${type})${file}`);
}
