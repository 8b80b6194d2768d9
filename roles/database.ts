import type { TableNames } from "../src/adapters/stores/sql/names.ts";
import { cellConfig } from "../src/config/cells.ts";
import type { Config } from "../src/config/types.ts";
import { errorText, StoreError } from "../src/model/errors.ts";
import type { Role } from "../src/model/roles.ts";
import { DESTINATION_COLUMNS, HISTORY_COLUMNS, JOURNAL_COLUMNS, operationsTables } from "../src/model/rows.ts";
import type { OperatorStore } from "../src/ports/operatorStore.ts";
import type { Log } from "../src/ports/runtime.ts";
import type { CheckedTables, Store } from "../src/ports/store.ts";
import { type Clock, systemClock } from "../src/time/clock.ts";
import { sleep, withTimeout } from "../src/time/wait.ts";

export const APPLICATION_NAME = "svc";

/** The store of the configured database, not connected yet. Loads only its own driver. */
export async function createStore({ database, routes, destinations }: Config, clock: Clock, log: Log): Promise<Store> {
  const { target, username, password, poolSize, connectionTimeoutMs } = database;
  const common = {
    username,
    password,
    poolSize,
    connectionTimeoutMs,
    applicationName: target.applicationName ?? APPLICATION_NAME,
    routing: { routes, destinations: Object.keys(destinations) },
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
      const { endpointsOf } = await import("../src/adapters/stores/postgres/endpoints.ts");
      const { createPostgresStore } = await import("../src/adapters/stores/postgres/index.ts");
      return createPostgresStore(
        {
          ...common,
          database: target.database,
          endpoints: endpointsOf(target),
          primaryOnly: target.targetServerType === "primary",
          names: { ...names, schema: target.currentSchema },
        },
        clock,
        log,
      );
    }
    case "sqlserver": {
      const { createSqlServerStore } = await import("../src/adapters/stores/sqlserver/index.ts");
      return createSqlServerStore({ ...target, ...common, names: { ...names, schema: undefined } }, clock, log);
    }
  }
}

/** The stores of the configured cells, not connected yet; none without cells. */
export async function createCellStores(config: Config, clock: Clock, log: Log) {
  const { cells } = config.database;
  return await Promise.all(
    cells.map(async (cell) => ({ name: cell.name, store: await createStore(cellConfig(config, cell), clock, log) })),
  );
}

/** What operators work on: the one database, or all cells together. Not connected yet. */
export async function createOperatorStore(config: Config, clock: Clock, log: Log): Promise<OperatorStore> {
  const cells = await createCellStores(config, clock, log);
  if (cells.length === 0) return await createStore(config, clock, log);
  const { severalCells } = await import("../src/adapters/stores/cells/index.ts");
  return severalCells(cells, clock, log);
}

/**
 * Waits for the database, applies the migrations where `database.migrate` is on, and checks the tables. When the
 * database goes away meanwhile, it waits again and repeats the steps.
 *
 * @param roles those of this process: tables that none of them uses may be missing
 * @param signal aborts when the process stops meanwhile
 * @throws StoreError or TimeoutError when no database answers in time, ConfigError when a column is missing
 */
export async function prepareStore(
  store: Store,
  config: Config,
  roles: ReadonlySet<Role>,
  log: Log,
  signal: AbortSignal,
): Promise<void> {
  const { startupTimeoutMs, migrate } = config.database;
  let deadline = systemClock.monotonic() + startupTimeoutMs;
  const left = () => Math.max(0, Math.ceil(deadline - systemClock.monotonic()));
  for (;;) {
    await store.waitUntilReady(left(), signal);
    try {
      if (migrate) {
        const applied = await store.schema.migrate(true);
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
          store.schema.checkColumns(tablesOf(config, roles), {
            destinations: roles.has("poller") && needsSharedState(config),
            expiry: needsExpiry(config),
          }),
        signal,
      );
      if (roles.has("poller") && config.outbox.history !== "off" && !store.history.isAvailable)
        warnOfHistory(config, log);
      return;
    } catch (error) {
      const wentAway = error instanceof StoreError && error.code === "unavailable";
      if (!wentAway || systemClock.monotonic() + RETRY_PAUSE_MS >= deadline) throw error;
      log.warn({ reason: errorText(error) }, "lost the database while the tables were prepared, trying again");
      await sleep(RETRY_PAUSE_MS, signal);
    }
  }
}

function warnOfHistory({ database }: Config, log: Log): void {
  const { type, historyTableName } = database;
  log.warn(
    {
      remedy: `svc migrate, or the statements of migrations/${type}/008.do.history.sql with the name ${historyTableName}`,
    },
    `the table ${historyTableName} cannot be used: attempts are not kept. Make it, or grant SELECT, INSERT and DELETE on it, and start again; outbox.history: off does without`,
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
