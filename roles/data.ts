import { severalCells } from "../src/adapters/stores/cells/index.ts";
import { cellConfig } from "../src/config/cells.ts";
import type { CellConfig, Config } from "../src/config/types.ts";
import { CellMap } from "../src/core/cells/cellMap.ts";
import { createAudit } from "../src/core/operations/audit.ts";
import { Tally, tallyDestinations } from "../src/core/operations/heartbeat.ts";
import { BUCKETS } from "../src/model/cells.ts";
import { ConfigError, withoutTable } from "../src/model/errors.ts";
import type { Role } from "../src/model/roles.ts";
import type { BucketStore } from "../src/ports/bucketStore.ts";
import type { HealthComponent, Log, Service } from "../src/ports/runtime.ts";
import { Loop, logFailures } from "../src/runtime/loop.ts";
import type { createMetrics } from "../src/runtime/metrics.ts";
import { systemClock } from "../src/time/clock.ts";
import { healthOf, openCells, RunningCell } from "./cells.ts";
import { type Cells, closer, type OperatorContext, type RoleContext, type RoleParts } from "./context.ts";
import { createStore, prepareStore } from "./database.ts";
import { heartbeatOf, newWakes, workerRoles } from "./workers.ts";

/** What of a process depends on where its data is: in one database, or in several cells. */

export interface DataOptions {
  readonly config: Config;
  readonly roles: readonly Role[];
  /** Those in which the process works; empty without cells. */
  readonly cells: readonly CellConfig[];
  readonly version: string;
  readonly log: Log;
  /** Aborts at a stop before the process is up. */
  readonly stopping: AbortSignal;
}

/** What the roles have in common, in whichever database they work. */
export type SharedParts = Pick<RoleContext, "configText" | "clock" | "secrets" | "redact" | "evaluator" | "bodies">;

type Registry = Pick<ReturnType<typeof createMetrics>, "metrics" | "ofCell" | "observePool">;

interface DataParts {
  /** Of the roles `ingest` and `admin`. */
  readonly context: OperatorContext;
  /** Where `ingest` stores messages. */
  readonly entrances: RoleContext | Cells;
  /** The roles that are made already. */
  readonly parts: readonly RoleParts[];
  readonly health: () => readonly HealthComponent[];
  readonly pools: readonly Service[];
  readonly closers: readonly Service[];
  readonly workers: readonly Service[];
}

/** @throws ConfigError when the tables do not fit, StoreError when no database answers; with cells the start does */
export async function openData(options: DataOptions, shared: SharedParts, registry: Registry): Promise<DataParts> {
  const open = options.config.database.cells.length === 0 ? openDatabase : openInstallation;
  return await open(options, shared, registry);
}

/** One database with everything. */
async function openDatabase(options: DataOptions, shared: SharedParts, registry: Registry): Promise<DataParts> {
  const { config, log, stopping, version } = options;
  const roles = new Set(options.roles);
  const store = await createStore(config, systemClock, log);
  try {
    await prepareStore(store, config, roles, log, stopping);
    if (roles.has("ingest")) await refuseLeftBuckets(store.buckets);
  } catch (error) {
    await store.close();
    throw error;
  }
  registry.observePool(() => store.poolUsage());
  const context = contextOf({ config, store, log, metrics: registry.metrics }, shared);
  const check = async () => {
    await store.ping();
    // A mover waits a minute for the heartbeat of a process: while this one was suspended, buckets may have left.
    if (roles.has("ingest")) await refuseLeftBuckets(store.buckets);
    await store.inbox.check();
  };
  return {
    context,
    entrances: context,
    parts: await workerRoles(context, roles),
    health: () => [{ name: "database", decidesReadiness: true, check }],
    pools: [closer("database", () => store.close())],
    closers: [heartbeatOf(context, { version, roles: options.roles })],
    workers: [],
  };
}

/**
 * A database that buckets have left is a cell: whoever goes on storing their messages here breaks their order.
 *
 * @throws ConfigError
 */
async function refuseLeftBuckets(buckets: BucketStore): Promise<void> {
  const table = await buckets.all().catch(withoutTable);
  const gone = table?.rows.find(({ state }) => state === "moving" || state === "left");
  if (gone === undefined) return;
  const message = `is empty, but messages that belong to this database have moved to the cell ${gone.otherCell}: name all cells of the installation, or bring them back first (svc cells drain ${gone.otherCell})`;
  throw new ConfigError([{ path: "database.cells", message }]);
}

/** Cells, each with a database or schema of its own, and the roles that work in it. */
async function openInstallation(options: DataOptions, shared: SharedParts, registry: Registry): Promise<DataParts> {
  const { config, log, stopping, version, roles } = options;
  const reachesAll = roles.some((role) => role === "ingest" || role === "admin");
  const reached = reachesAll ? config.database.cells : options.cells;
  const cells = await Promise.all(
    reached.map(async (cell) => {
      const own = cellConfig(config, cell);
      const ownLog = log.child({ cell: cell.name });
      const store = await createStore(own, systemClock, ownLog);
      registry.observePool(() => store.poolUsage(), cell.name);
      const metrics = registry.ofCell(cell.name);
      const context = contextOf({ config: own, store, log: ownLog, metrics }, shared);
      const isServed = options.cells.includes(cell);
      return new RunningCell({ name: cell.name, context, roles, isServed, version, stopping });
    }),
  );
  const stores = cells.map((cell) => ({
    name: cell.name,
    store: cell.context.store,
    isReady: () => cell.isOpen,
  }));
  const store = severalCells(stores, systemClock, log);
  // What is counted before its cell is known is kept in the first one.
  const tally = cells[0]?.context.tally;
  const context = contextOf({ config, store, log, metrics: registry.metrics }, shared, tally);
  context.wakes.poller = () => {
    for (const { context } of cells) context.wakes.poller();
  };
  const buckets = new CellMap({ cells: stores, log });
  const refreshing = new Loop({
    name: "cells",
    async pass() {
      await buckets.refresh();
      return "idle";
    },
    intervalMs: REFRESH_MS,
    staleAfterMs: Number.POSITIVE_INFINITY,
    onError: logFailures(log, "reading where buckets are failed"),
  });
  const start = async () => {
    await openCells(cells);
    await buckets.refresh();
    if (roles.includes("ingest")) await refreshing.start();
  };
  return {
    context,
    entrances: { contexts: new Map(cells.map((cell) => [cell.name, cell.context])), buckets },
    parts: [],
    health: () => [...healthOf(cells), ...(roles.includes("ingest") ? [bucketsHealth(buckets)] : [])],
    pools: cells.map(({ pool }) => pool),
    closers: cells.map((cell) => cell.stopper("closers")),
    // A start that fails is undone from its end: the roles of the cells that were opened are stopped then.
    workers: [
      ...cells.map((cell) => cell.stopper("workers")),
      { name: "cells", start, stop: (cutoff) => refreshing.stop(cutoff) },
    ],
  };
}

/** Of where buckets are: a cell that went back to before a move is corrected, also while no message comes for it. */
const REFRESH_MS = 5000;

/**
 * Up while some bucket is known to be open. With a cell that has never answered and others that have no bucket, nobody
 * can say where any message belongs: a rollout that adds such a cell must stop at the first replica.
 */
function bucketsHealth(buckets: CellMap): HealthComponent {
  /** Why none is; undefined where one is. */
  const closed = () => {
    let reason: string | undefined;
    for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
      const place = buckets.cellOf(bucket);
      if ("cell" in place) return undefined;
      reason ??= place.reason;
    }
    return reason;
  };
  return {
    name: "buckets",
    decidesReadiness: true,
    async check() {
      if (closed() === undefined) return;
      await buckets.refresh();
      const reason = closed();
      if (reason !== undefined) throw new Error(reason);
    },
  };
}

/** @param own what is that of one database, or of all cells */
function contextOf<S extends OperatorContext["store"]>(
  own: Pick<RoleContext, "config" | "log" | "metrics"> & { readonly store: S },
  shared: SharedParts,
  tally = new Tally(systemClock),
) {
  const { config, store, log, metrics } = own;
  return {
    ...shared,
    config,
    store,
    log,
    metrics: tallyDestinations(metrics, tally),
    tally,
    audit: createAudit({ store: store.operations, redact: shared.redact, log }),
    fleet: { others: { pollers: 0, relays: 0 } },
    wakes: newWakes(config.outbox.pollIntervalMs),
  };
}
