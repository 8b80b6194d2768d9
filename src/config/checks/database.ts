import { maskUrl } from "../../model/maskUrl.ts";
import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../model/rows.ts";
import type { Report } from "../../ports/kinds.ts";
import { DATABASES, parseJdbcUrl } from "../databases.ts";
import { JdbcUrlError, type ParsedJdbcUrl } from "../jdbc/target.ts";
import type { DeclaredConfig } from "../types.ts";
import type { Rules } from "./rules.ts";

/** Rules of the sections `server` and `database`. */
export function checkDatabase(config: DeclaredConfig, rules: Rules): void {
  const { server, database, outbox } = config;
  rules.when(["server"], ["httpPort", "managementPort"], (report) => {
    if (server.managementPort !== server.httpPort) return;
    report.error("managementPort", `must differ from server.httpPort; both are ${server.httpPort}`);
  });
  rules.when(["database"], ["type", "url"], (report) => checkUrl(database, report));
  rules.when(
    ["database"],
    ["outboxTableName", "inboxTableName", "destinationTableName", "columnMapping", "type"],
    (report) => checkNames(database, report),
  );
  rules.when(
    ["database"],
    ["migrate", "outboxTableName", "inboxTableName", "destinationTableName", "columnMapping"],
    (report) => {
      const renamed = renamedKeys(database);
      if (!database.migrate || renamed.length === 0) return;
      const message = `must be false with a renamed table or column (${renamed.join(", ")}): the bundled migrations make the default names only`;
      report.error("migrate", message);
    },
  );
  rules.when([], ["database.poolSize", "outbox.concurrency"], (report) => {
    if (database.poolSize > outbox.concurrency) return;
    const message = `is ${database.poolSize} and should be larger than outbox.concurrency (${outbox.concurrency}): the poller shares the pool with relay, retention and HTTP routes`;
    report.warning("database.poolSize", message);
  });
}

/** `database.url` read, or what is wrong with it. Shows the URL with its password masked. */
export function readJdbcUrl(database: Pick<DeclaredConfig["database"], "type" | "url">): ParsedJdbcUrl | string {
  try {
    return parseJdbcUrl(database.type, database.url);
  } catch (error) {
    if (!(error instanceof JdbcUrlError)) throw error;
    return `${error.message}; found ${JSON.stringify(maskUrl(database.url))}`;
  }
}

function checkUrl(database: DeclaredConfig["database"], report: Report): void {
  const parsed = readJdbcUrl(database);
  if (typeof parsed === "string") report.error("url", parsed);
  else for (const warning of parsed.warnings) report.warning("url", warning);
}

function checkNames(database: DeclaredConfig["database"], report: Report): void {
  const longest = DATABASES[database.type].longestName;
  const { outboxTableName, inboxTableName, destinationTableName } = database;
  const tables = { outboxTableName, inboxTableName, destinationTableName };
  const names: [string, string][] = Object.entries(tables);
  for (const table of ["outbox", "inbox"] as const) {
    const columns = Object.entries(database.columnMapping[table]);
    // Default names first, so that a renamed column is the one to blame.
    const defaults: Readonly<Record<string, string>> = table === "outbox" ? OUTBOX_COLUMNS : INBOX_COLUMNS;
    columns.sort(([a, nameA], [b, nameB]) => Number(defaults[a] !== nameA) - Number(defaults[b] !== nameB));
    names.push(...columns.map(([key, name]): [string, string] => [`columnMapping.${table}.${key}`, name]));
    const keyOf = new Map<string, string>();
    for (const [key, name] of columns) {
      const other = keyOf.get(name);
      keyOf.set(name, key);
      if (other === undefined) continue;
      report.error(`columnMapping.${table}.${key}`, `names the column "${name}", which is the one of ${other} already`);
    }
  }
  for (const [key, name] of names) {
    if (name.length > longest)
      report.error(key, `is ${name.length} characters long; ${database.type} takes ${longest}`);
  }
  if (inboxTableName === outboxTableName) {
    report.error("inboxTableName", `must differ from database.outboxTableName; both are "${inboxTableName}"`);
  }
  for (const [key, name] of Object.entries({ outboxTableName, inboxTableName })) {
    if (destinationTableName !== name) continue;
    report.error("destinationTableName", `must differ from database.${key}; both are "${name}"`);
  }
}

/** Keys below `database` that give a table or a column another name than the bundled migrations do. */
export function renamedKeys(
  database: Pick<
    DeclaredConfig["database"],
    "inboxTableName" | "outboxTableName" | "destinationTableName" | "columnMapping"
  >,
): string[] {
  const columns = (table: "inbox" | "outbox", defaults: Readonly<Record<string, string>>) =>
    Object.entries(database.columnMapping[table])
      .filter(([key, name]) => defaults[key] !== name)
      .map(([key]) => `columnMapping.${table}.${key}`);
  return [
    ...(database.outboxTableName === "outbox" ? [] : ["outboxTableName"]),
    ...(database.inboxTableName === "inbox" ? [] : ["inboxTableName"]),
    ...(database.destinationTableName === "outbox_destination" ? [] : ["destinationTableName"]),
    ...columns("outbox", OUTBOX_COLUMNS),
    ...columns("inbox", INBOX_COLUMNS),
  ];
}
