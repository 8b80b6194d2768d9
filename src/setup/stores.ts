import { severalCells } from "../adapters/stores/cells/index.ts";
import type { PostgresConnections } from "../adapters/stores/postgres/connections.ts";
import type { TableNames } from "../adapters/stores/sql/names.ts";
import { cellConfig, controlCell, NO_CELL, requireIdentity } from "../config/cells.ts";
import type { CellConfig, Config } from "../config/types.ts";
import { compileRouting } from "../core/delivery/routing.ts";
import { ConfigError, errorText, StoreError } from "../model/errors.ts";
import type { Role } from "../model/roles.ts";
import { DESTINATION_COLUMNS, HISTORY_COLUMNS, JOURNAL_COLUMNS, operationsTables } from "../model/rows.ts";
import type { OperatorStore } from "../ports/operatorStore.ts";
import type { Log } from "../ports/runtime.ts";
import type { CellIdentity, CheckedTables, Store } from "../ports/store.ts";
import { type Clock, systemClock } from "../time/clock.ts";
import { sleep, withTimeout } from "../time/wait.ts";

export const APPLICATION_NAME = "svc";

/** The store of the configured database, not connected yet. */
export async function createStore(config: Config, log: Log, clock = systemClock): Promise<Store> {
  return await sharingStores(clock)(config, log);
}

/**
 * @returns makes the store of a configured database, not connected yet. Those of one PostgreSQL database share their
 *   connections: of its pool a store has at most half
 */
function sharingStores(clock = systemClock): (config: Config, log: Log) => Promise<Store> {
  const shared = new Map<string, PostgresConnections>();
  return async (config, log) => await openStore(config, log, clock, shared);
}

/** Loads only the driver of the database. @param shared connections of stores that were made before, by their database */
async function openStore(
  { database, routes }: Config,
  log: Log,
  clock: Clock,
  shared: Map<string, PostgresConnections>,
): Promise<Store> {
  const { target, username, password, poolSize, connectionTimeoutMs } = database;
  const common = {
    username,
    password,
    poolSize,
    connectionTimeoutMs,
    applicationName: target.applicationName ?? APPLICATION_NAME,
    routing: compileRouting(routes),
  };
  const names: Omit<TableNames, "schema"> = {
    inboxTable: database.inboxTableName,
    outboxTable: database.outboxTableName,
    destinationTable: database.destinationTableName,
    historyTable: database.historyTableName,
    operations: operationsTables(database.operationsTablePrefix),
    inbox: database.columnMapping.inbox,
    outbox: database.columnMapping.outbox,
    destination: DESTINATION_COLUMNS,
    history: HISTORY_COLUMNS,
    journal: JOURNAL_COLUMNS,
  };
  switch (target.type) {
    case "postgresql": {
      const { endpointsOf } = await import("../adapters/stores/postgres/connections.ts");
      const { PostgresConnections } = await import("../adapters/stores/postgres/connections.ts");
      const { createPostgresStore } = await import("../adapters/stores/postgres/index.ts");
      const { currentSchema, ...place } = target;
      const options = {
        ...common,
        database: target.database,
        endpoints: endpointsOf(target),
        primaryOnly: target.targetServerType === "primary",
        names: { ...names, schema: currentSchema },
      };
      const key = JSON.stringify({ ...place, username });
      const connections = shared.get(key) ?? new PostgresConnections(options, log);
      shared.set(key, connections);
      return createPostgresStore(options, clock, log, connections);
    }
    case "sqlserver": {
      const { createSqlServerStore } = await import("../adapters/stores/sqlserver/index.ts");
      return createSqlServerStore({ ...target, ...common, names: { ...names, schema: undefined } }, clock, log);
    }
  }
}

/** What operators work on: the one database, or all cells together. Not connected yet. */
export async function createOperatorStore(config: Config, log: Log): Promise<OperatorStore> {
  const { cells } = config.database;
  if (cells.length === 0) return await createStore(config, log);
  const { control, stores } = await openStores(config, cells, log);
  const named = stores.map(({ cell, store }) => ({ name: cell.name, store }));
  return severalCells(named, control, systemClock, log);
}

/** The stores of cells, and that of `database.url`, which may be a cell's, for what cells share. Not connected yet. */
export async function openStores(config: Config, cells: readonly CellConfig[], log: Log) {
  const open = sharingStores();
  const stores = await Promise.all(
    cells.map(async (cell) => {
      const ownLog = log.child({ cell: cell.name });
      return { cell, log: ownLog, store: await open(cellConfig(config, cell), ownLog) };
    }),
  );
  const own = controlCell(config);
  const control = stores.find(({ cell }) => cell === own)?.store ?? (await open(config, log));
  return { control, stores };
}

interface StorePart {
  /** The cell that the configuration takes the database for; the first process to do so notes it there. */
  readonly cell?: CellIdentity | undefined;
  /** `cell`: the rows of a cell; `control`: what cells share; `everything`: both, as without cells. */
  readonly holds: "everything" | "cell" | "control";
}

/**
 * Waits for the database, applies the migrations if `database.migrate` is on, and checks the tables. When the database
 * goes away meanwhile, it waits again and repeats the steps.
 *
 * @param roles those of this process: tables that none of them uses may be missing
 * @throws StoreError or TimeoutError when no database answers in time, ConfigError when a column is missing or the
 *   database is another cell
 */
export async function prepareStore(
  store: Store,
  config: Config,
  roles: ReadonlySet<Role>,
  log: Log,
  signal: AbortSignal,
  { cell, holds }: StorePart = { holds: "everything" },
): Promise<void> {
  const { startupTimeoutMs, migrate } = config.database;
  const tables = tablesOf(config, roles).filter(
    (table) => holds === "everything" || (table === "destinations") === (holds === "control"),
  );
  let deadline = systemClock.monotonic() + startupTimeoutMs;
  const left = () => Math.max(0, Math.ceil(deadline - systemClock.monotonic()));
  for (let waitMs = startupTimeoutMs; ; waitMs = left()) {
    await store.waitUntilReady(waitMs, signal);
    try {
      if (migrate) {
        const applied = await store.schema.migrate();
        if (applied.length > 0) {
          log.info({ applied }, "migrations applied");
          // Migrations of large tables take long: the limit is for the wait alone.
          deadline = systemClock.monotonic() + startupTimeoutMs;
        }
      }
      const limitMs = Math.max(left(), MIN_CHECK_MS);
      await withTimeout(
        limitMs,
        "the check of the tables",
        () =>
          store.schema.checkColumns(tables, {
            destinations: holds !== "cell" && roles.has("poller") && needsSharedState(config),
            expiry: needsExpiry(config),
            lists: config.routes.some(({ destinations }) => destinations !== undefined),
          }),
        signal,
      );
      if (cell?.position === NO_CELL) await refuseLeftRows(store);
      requireIdentity(await store.schema.cell(cell).catch(refuseWithoutTable(config)), cell);
      const keepsHistory = tables.includes("history") && roles.has("poller") && config.outbox.history !== "off";
      if (keepsHistory && !store.history.isAvailable) warnOfHistory(config, log);
      return;
    } catch (error) {
      const wentAway = error instanceof StoreError && error.code === "unavailable";
      if (!wentAway || systemClock.monotonic() + RETRY_PAUSE_MS >= deadline) throw error;
      log.warn({ reason: errorText(error) }, "lost the database while the tables were prepared, trying again");
      await sleep(RETRY_PAUSE_MS, signal);
    }
  }
}

function refuseWithoutTable({ database: { type, operationsTablePrefix } }: Config) {
  return (error: unknown): never => {
    if (!(error instanceof StoreError) || error.code !== "schema") throw error;
    const table = operationsTables(operationsTablePrefix).cell;
    const message = `the table ${table}, in which a cell notes which one it is, cannot be used (${error.message}): run \`svc migrate\`, or the statements of migrations/${type}/015.do.cell.sql with the name ${table}, and grant SELECT and INSERT on it`;
    throw new ConfigError([{ path: "database.cells", message }]);
  };
}

/**
 * Refuses to start while rows wait in the tables of `database.url` and it is no cell: nothing would deliver these.
 *
 * @throws ConfigError when rows wait
 */
async function refuseLeftRows(control: Pick<Store, "schema">): Promise<void> {
  if (!(await control.schema.hasUnfinished())) return;
  const message =
    'no cell has the tables of database.url, and rows wait in them: move them into the cells (docs/cells.md, "From one database to several cells"), or let a process without cells deliver them first';
  throw new ConfigError([{ path: "database.cells", message }]);
}

function warnOfHistory({ database }: Config, log: Log): void {
  const { type, historyTableName } = database;
  log.warn(
    {
      remedy: `svc migrate, or the statements of migrations/${type}/008.do.history.sql with the name ${historyTableName}`,
    },
    `the table ${historyTableName} cannot be used: attempts are not kept. Make it, or grant SELECT, INSERT and DELETE on it, and restart; or set outbox.history: off`,
  );
}

/** Whether messages of a source may expire. */
function needsExpiry({ sources }: Config): boolean {
  return Object.values(sources).some(
    ({ timeToLive, expiresAtPath, expiresAtHeader }) =>
      timeToLive !== undefined || expiresAtPath !== undefined || expiresAtHeader !== undefined,
  );
}

/** Whether a destination has a limit that replicas share. */
export function needsSharedState({ destinations }: Config): boolean {
  return Object.values(destinations).some(
    ({ rateLimit, circuitBreaker }) => rateLimit !== undefined || circuitBreaker !== undefined,
  );
}

const OUTBOX_ROLES: readonly Role[] = ["relay", "poller", "capture", "admin"];

/** The tables that roles read or write. */
function tablesOf({ retention }: Config, roles: ReadonlySet<Role>): CheckedTables {
  const sweeps = (table: "inbox" | "outbox") => roles.has("retention") && retention[table].policy !== "DISABLED";
  const usesInbox = roles.has("ingest") || roles.has("relay") || sweeps("inbox");
  const usesOutbox = OUTBOX_ROLES.some((role) => roles.has(role)) || sweeps("outbox");
  const usesDestinations = roles.has("poller") || roles.has("admin");
  return [
    ...(usesInbox ? ["inbox" as const] : []),
    ...(usesOutbox ? (["outbox", "history"] as const) : []),
    ...(usesDestinations ? ["destinations" as const] : []),
  ];
}

const RETRY_PAUSE_MS = 100;
/** Time for a few queries of the catalogue. */
const MIN_CHECK_MS = 5000;
