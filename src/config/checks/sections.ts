import { checkCallers, checkInboundAuth } from "../../adapters/sources/http/kind.ts";
import { INBOX_COLUMNS, OUTBOX_COLUMNS, operationsTables } from "../../model/rows.ts";
import { maskUrl } from "../../model/secret.ts";
import type { Report, When } from "../../ports/kinds.ts";
import { DATABASES, parseJdbcUrl, schemaOf } from "../databases.ts";
import { JdbcUrlError, type ParsedJdbcUrl } from "../jdbc/target.ts";
import type { DeclaredConfig } from "../types.ts";
import type { Rules } from "./rules.ts";

export function checkDatabase(config: DeclaredConfig, rules: Rules): void {
  const { server, database, outbox } = config;
  rules.when(["server"], ["httpPort", "managementPort"], (report) => {
    if (server.managementPort !== server.httpPort) return;
    report.error("managementPort", `must differ from server.httpPort; both are ${server.httpPort}`);
  });
  rules.when(["database"], ["type", "url"], (report) => {
    const parsed = readJdbcUrl(database);
    if (typeof parsed === "string") report.error("url", parsed);
    else for (const warning of parsed.warnings) report.warning("url", warning);
  });
  checkCells(config, rules);
  rules.when(["database"], [...NAME_KEYS, "type"], (report) => checkNames(database, report));
  rules.when(["database"], [...NAME_KEYS, "migrate"], (report) => {
    const renamed = renamedKeys(database);
    if (!database.migrate || renamed.length === 0) return;
    const message = `must be false with a renamed table or column (${renamed.join(", ")}): the bundled migrations make the default names only`;
    report.error("migrate", message);
  });
  rules.when([], ["database.poolSize", "outbox.concurrency"], (report) => {
    if (database.poolSize > outbox.concurrency) return;
    const message = `is ${database.poolSize} and should be larger than outbox.concurrency (${outbox.concurrency}): the poller shares the pool with relay, retention and HTTP routes`;
    report.warning("database.poolSize", message);
  });
}

/** Two cells in one place would share their rows: each needs tables of its own. */
function checkCells({ database, outbox }: DeclaredConfig, rules: Rules): void {
  const { cells, type, url } = database;
  rules.when(["database"], ["cells", "type", "url"], (report) => {
    const whole = readJdbcUrl(database);
    const places = new Map<string, string>();
    cells.forEach(({ name, url: own, schema }, n) => {
      const key = `cells.${n}`;
      const parsed = own === undefined ? whole : readJdbcUrl({ type, url: own });
      if (own !== undefined && typeof parsed === "string") report.error(`${key}.url`, parsed);
      if (own !== undefined && schema !== undefined)
        report.error(`${key}.schema`, "cannot be combined with url: name the schema in the URL, with currentSchema");
      if (schema !== undefined && type !== "postgresql")
        report.error(`${key}.schema`, `works on postgresql only: give the cell a url`);
      checkLength(report, `${key}.schema`, schema ?? "", type);
      if (cells.findIndex((each) => each.name === name) < n)
        report.error(`${key}.name`, `names a second cell ${name}: each needs a name of its own`);
      const place = `${own ?? url} ${schema ?? (typeof parsed === "string" ? "" : schemaOf(parsed.target))}`;
      const other = places.get(place);
      places.set(place, name);
      if (other === undefined) return;
      report.error(key, `is the same database and schema as the cell ${other}: give it a url or a schema of its own`);
    });
  });
  rules.when([], ["database.cells", "outbox.capture"], (report) => {
    const { enabled, connection } = outbox.capture;
    if (!enabled || !cells.some((cell) => cell.url !== undefined)) return;
    for (const key of ["hostname", "port", "database"] as const) {
      if (connection[key] === undefined) continue;
      const message = "cannot be set with cells in several databases: each captures from its own url";
      report.error(`outbox.capture.connection.${key}`, message);
    }
  });
}

const DEFAULT_TABLES = {
  outboxTableName: "outbox",
  inboxTableName: "inbox",
  destinationTableName: "outbox_destination",
  historyTableName: "outbox_history",
  operationsTablePrefix: "outbox_",
} as const;
const TABLE_KEYS = Object.keys(DEFAULT_TABLES) as readonly (keyof typeof DEFAULT_TABLES)[];
const NAME_KEYS = [...TABLE_KEYS, "columnMapping"] as const;

/** @returns `database.url` parsed, or what is wrong with it, with its password masked */
export function readJdbcUrl(database: Pick<DeclaredConfig["database"], "type" | "url">): ParsedJdbcUrl | string {
  try {
    return parseJdbcUrl(database.type, database.url);
  } catch (error) {
    if (!(error instanceof JdbcUrlError)) throw error;
    return `${error.message}; found ${JSON.stringify(maskUrl(database.url))}`;
  }
}

function checkNames(database: DeclaredConfig["database"], report: Report): void {
  const tables = TABLE_KEYS.flatMap((key) => {
    const found = key === "operationsTablePrefix" ? Object.values(operationsTables(database[key])) : [database[key]];
    return found.map((name) => [key, name] as readonly [string, string]);
  });
  const names = [...tables];
  for (const table of ["outbox", "inbox"] as const) {
    const columns = Object.entries(database.columnMapping[table]);
    // Default names first, so that a renamed column is the one to blame.
    const defaults: Readonly<Record<string, string>> = table === "outbox" ? OUTBOX_COLUMNS : INBOX_COLUMNS;
    columns.sort(([a, nameA], [b, nameB]) => Number(defaults[a] !== nameA) - Number(defaults[b] !== nameB));
    names.push(...columns.map(([key, name]) => [`columnMapping.${table}.${key}`, name] as const));
    const keyOf = new Map<string, string>();
    for (const [key, name] of columns) {
      const other = keyOf.get(name);
      keyOf.set(name, key);
      if (other === undefined) continue;
      report.error(`columnMapping.${table}.${key}`, `names the column "${name}", as ${other} does: each needs its own`);
    }
  }
  for (const [key, name] of names) checkLength(report, key, name, database.type);
  tables.forEach(([key, name], n) => {
    for (const [other] of tables.slice(0, n).filter(([, earlier]) => earlier === name)) {
      report.error(key, `must differ from database.${other}; both are "${name}"`);
    }
  });
}

function checkLength(report: Report, key: string, name: string, type: DeclaredConfig["database"]["type"]): void {
  const longest = DATABASES[type].longestName;
  if (name.length > longest) report.error(key, `has ${name.length} characters, at most ${longest} on ${type}`);
}

/** The keys below `database` that rename a table or column of the bundled migrations. */
export function renamedKeys(database: Pick<DeclaredConfig["database"], (typeof NAME_KEYS)[number]>): string[] {
  const columns = (table: "inbox" | "outbox", defaults: Readonly<Record<string, string>>) =>
    Object.entries(database.columnMapping[table])
      .filter(([key, name]) => defaults[key] !== name)
      .map(([key]) => `columnMapping.${table}.${key}`);
  return [
    ...TABLE_KEYS.filter((key) => database[key] !== DEFAULT_TABLES[key]),
    ...columns("outbox", OUTBOX_COLUMNS),
    ...columns("inbox", INBOX_COLUMNS),
  ];
}

/** Rules of `outbox.capture`, `admin`, `inbox.pull` and `retention`: what they need when they are switched on. */
export function checkSwitches(config: DeclaredConfig, rules: Rules): void {
  checkCapture(config, rules);
  const { admin, inbox, retention, metrics } = config;
  rules.when(["admin"], ["enabled", "auth", "insecure"], (report) => {
    const { enabled, auth, insecure } = admin;
    const required = "is required when admin.enabled is true (for a local test, set admin.insecure to true instead)";
    const unused = "has no effect: admin.insecure is true, so anybody can use the admin routes; remove one of the two";
    if (enabled && auth === undefined && !insecure) report.error("auth", required);
    if (enabled && auth !== undefined && insecure) report.warning("auth", unused);
  });
  rules.when(["admin"], ["console", "enabled"], (report) => {
    const message = "has no effect: the console is one of the admin routes, and admin.enabled is false";
    if (admin.console && !admin.enabled) report.warning("console", message);
  });
  const adminRoutes = "the admin routes other than POST /admin/transform/test and POST /admin/replay";
  for (const [base, auth, closed] of [
    [["admin"], admin.auth, admin.enabled && !admin.insecure ? adminRoutes : null],
    [["inbox", "pull"], inbox.pull.auth, inbox.pull.enabled ? "the pull routes" : null],
  ] as const) {
    const when: When = (keys, rule) => rules.when(base, keys, rule);
    checkInboundAuth("auth.", auth, when);
    checkCallers("auth.", auth, closed, when);
  }
  rules.when(["inbox", "pull"], ["enabled", "auth"], (report) => {
    if (!inbox.pull.enabled || inbox.pull.auth !== undefined) return;
    report.warning("auth", "is not set: anybody who reaches the data port can take messages out of the inbox");
  });
  rules.when(["metrics"], ["deliveryBuckets"], (report) => {
    const isAscending = metrics.deliveryBuckets.every((bound, n, all) => n === 0 || bound > (all[n - 1] ?? 0));
    if (!isAscending) report.error("deliveryBuckets", "must ascend: each bound is larger than the one before it");
  });
  for (const table of ["outbox", "inbox"] as const) {
    rules.when(["retention"], ["enabled", table], (report) => {
      if (retention.enabled) checkRetention(table, retention[table], report);
    });
  }
}

function checkRetention(
  table: "outbox" | "inbox",
  block: DeclaredConfig["retention"][typeof table],
  report: Report,
): void {
  const error = (key: string, message: string) => report.error(`${table}.${key}`, message);
  const { policy, maxAge, cleanupInterval } = block;
  if (policy === "AGE" && maxAge === undefined)
    error("maxAge", "is required by the policy AGE: a duration such as 30d");
  if (policy === "COUNT" && !("maxCount" in block))
    error("maxCount", "is required by the policy COUNT: the rows to keep of each state");
  if (cleanupInterval === 0) error("cleanupInterval", "must be longer than 0");
}

function checkCapture(config: DeclaredConfig, rules: Rules): void {
  const { capture } = config.outbox;
  const base = ["outbox", "capture"];
  rules.when([], ["database.type", "outbox.capture.mode"], (report) => {
    const { type } = config.database;
    if (capture.mode === "polling" || capture.mode === DATABASES[type].captureMode) return;
    const fitting = Object.entries(DATABASES).find(([, { captureMode }]) => captureMode === capture.mode)?.[0];
    const message = `${capture.mode} works with ${fitting} only, and database.type is ${type}`;
    report.error("outbox.capture.mode", message);
  });
  rules.when(base, ["enabled", "mode"], (report) => {
    const message = "must be postgres-logical or sqlserver-cdc when outbox.capture.enabled is true; found polling";
    if (capture.enabled && capture.mode === "polling") report.error("mode", message);
  });
  rules.when(base, ["enabled", "stateDirectory"], (report) => {
    const message = "is required when outbox.capture.enabled is true: a directory that outlives the process";
    if (capture.enabled && capture.stateDirectory.trim() === "") report.error("stateDirectory", message);
  });
  rules.when([], ["database.url", "database.type", "outbox.capture"], (report) => {
    if (!capture.enabled || capture.connection.hostname !== undefined) return;
    const parsed = readJdbcUrl(config.database);
    if (typeof parsed === "string" || parsed.target.type !== "postgresql" || parsed.target.hosts.length < 2) return;
    const message = "is required because database.url names several hosts: name the one to capture from";
    report.error("outbox.capture.connection.hostname", message);
  });
}
