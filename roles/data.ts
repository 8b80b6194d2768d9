import { severalCells } from "../src/adapters/stores/cells/index.ts";
import { cellConfig, controlIdentity, identityOf } from "../src/config/cells.ts";
import { compileRouting } from "../src/core/delivery/routing.ts";
import { Heartbeat, Tally, tallyDestinations } from "../src/core/operations/heartbeat.ts";
import type { HealthComponent, Service } from "../src/ports/runtime.ts";
import type { Store } from "../src/ports/store.ts";
import { REPLICA } from "../src/runtime/log.ts";
import type { createMetrics } from "../src/runtime/metrics.ts";
import type { ProcessOptions } from "../src/setup/process.ts";
import { createStore, openStores, prepareStore } from "../src/setup/stores.ts";
import { systemClock, systemTimer } from "../src/time/clock.ts";
import { healthOf, openCells, RunningCell, workerRoles } from "./cells.ts";
import { type Cells, closer, type OperatorContext, type RoleContext, type RoleParts, Wakes } from "./context.ts";
import { fleetFactorOf } from "./poller.ts";
import { SharedStates } from "./sharedStates.ts";

/** What of a process depends on where its data is: in one database, or in several cells. */

/** What the roles have in common, in whichever database they work. */
export type SharedParts = Pick<RoleContext, "configText" | "clock" | "secrets" | "redact" | "evaluator" | "bodies">;

type Registry = Pick<ReturnType<typeof createMetrics>, "metrics" | "ofCell" | "observePools">;

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

/** One database with everything. @throws ConfigError when the tables do not fit, StoreError when no database answers */
export async function openDatabase(
  options: ProcessOptions,
  shared: SharedParts,
  registry: Registry,
): Promise<DataParts> {
  const { config, log, stopping } = options;
  const roles = new Set(options.roles);
  const store = await createStore(config, log);
  try {
    await prepareStore(store, config, roles, log, stopping);
  } catch (error) {
    await store.close();
    throw error;
  }
  registry.observePools([store]);
  const common = commonOf(store, shared);
  const context = contextOf(common, { config, store, log, metrics: registry.metrics });
  const check = async () => {
    await store.ping();
    await store.inbox.check();
  };
  return {
    context,
    entrances: context,
    parts: await workerRoles(context, roles),
    health: () => [{ name: "database", decidesReadiness: true, check }],
    pools: [closer("database", () => store.close())],
    closers: commonServices(common, options),
    workers: [],
  };
}

/**
 * Cells, each with a database or schema of its own, and the roles that work in it. What they share is in the schema of
 * `database.url`, which the start needs; the cells are opened by the start of the services.
 *
 * @throws ConfigError when the tables do not fit, StoreError when the database of `database.url` does not answer
 */
export async function openInstallation(
  options: ProcessOptions,
  shared: SharedParts,
  registry: Registry,
): Promise<DataParts> {
  const { config, log, stopping, roles } = options;
  const reachesAll = roles.some((role) => role === "ingest" || role === "admin");
  const reached = reachesAll ? config.database.cells : options.cells;
  const { control, stores } = await openStores(config, reached, log);
  try {
    const cell = controlIdentity(config);
    await prepareStore(control, config, new Set(roles), log, stopping, { cell, holds: "control" });
  } catch (error) {
    await Promise.all([control, ...stores.map(({ store }) => store)].map((store) => store.close()));
    throw error;
  }
  registry.observePools([control, ...stores.map(({ store }) => store)]);
  const common = commonOf(control, shared);
  const cells = stores.map(({ cell, store, log }) => {
    const { name } = cell;
    const own = { config: cellConfig(config, cell), store, log, metrics: registry.ofCell(name) };
    const context = contextOf(common, own);
    const isServed = options.cells.includes(cell);
    return new RunningCell({ identity: identityOf(config, cell), context, roles, isServed, stopping });
  });
  const asked = cells.map((cell) => ({ name: cell.name, store: cell.context.store, isReady: () => cell.isOpen }));
  const store = severalCells(asked, control, systemClock, log);
  const context = contextOf(common, { config, store, log, metrics: registry.metrics });
  context.wakes.listen("poller", () => {
    for (const { context } of cells) context.wakes.wake("poller");
  });
  const isCell = stores.some(({ store }) => store === control);
  return {
    context,
    entrances: cells,
    parts: [],
    health: () => healthOf(cells, isCell ? undefined : control),
    pools: [
      ...cells.map(({ pool }) => pool),
      ...(isCell ? [] : [closer("database of the control tables", () => control.close())]),
    ],
    closers: [...commonServices(common, options), ...cells.map((cell) => cell.stopper("closers"))],
    // A start that fails is undone from its end: the roles of the cells that were opened are stopped then.
    workers: [
      ...cells.map((cell) => cell.stopper("workers")),
      { name: "cells", start: () => openCells(cells), stop: async () => {} },
    ],
  };
}

/** What the cells of a process have in common. */
function commonOf(control: Store, shared: SharedParts) {
  const fleet: RoleContext["fleet"] = { others: { pollers: 0, relays: 0 } };
  const { clock } = shared;
  const fleetFactor = () => fleetFactorOf(fleet.others.pollers);
  const states = new SharedStates({ store: control.destinations, fleetFactor, clock });
  return { ...shared, control, states, tally: new Tally(clock), fleet };
}

function commonServices(
  common: ReturnType<typeof commonOf>,
  { config, log, version, roles }: ProcessOptions,
): readonly Service[] {
  // Those of a relay too: its receipts label rows.
  const routes = roles.some((role) => role === "poller" || role === "relay")
    ? compileRouting(config.routes).hash
    : undefined;
  const { control, states, tally, fleet } = common;
  // Notes in the database that this process is alive, and what it counted.
  const heartbeat = new Heartbeat({
    store: control.operations,
    process: { name: REPLICA, version, roles, routes },
    tally,
    onBeat(others) {
      fleet.others = others;
    },
    clock: systemClock,
    timer: systemTimer,
    log,
  });
  return roles.includes("poller") ? [states.loop, heartbeat] : [heartbeat];
}

/** @param own what is that of one database, or of all cells */
function contextOf<S extends OperatorContext["store"]>(
  common: ReturnType<typeof commonOf>,
  own: Pick<RoleContext, "config" | "log" | "metrics"> & { readonly store: S },
) {
  return {
    ...common,
    ...own,
    metrics: tallyDestinations(own.metrics, common.tally),
    wakes: new Wakes(() => own.store.announceOutbox()),
    receipts: { relay: undefined, claim: () => undefined },
  };
}
