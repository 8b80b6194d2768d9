import { severalCells } from "../src/adapters/stores/cells/index.ts";
import { cellConfig, controlIdentity, identityOf } from "../src/config/cells.ts";
import { compileRouting } from "../src/core/delivery/routing.ts";
import { Heartbeat, Tally, tallyDestinations } from "../src/core/operations/heartbeat.ts";
import { ConfigError, configErrorOf, errorText } from "../src/model/errors.ts";
import type { Role } from "../src/model/roles.ts";
import type { HealthComponent, Service } from "../src/ports/runtime.ts";
import type { CellIdentity, Store } from "../src/ports/store.ts";
import { REPLICA } from "../src/runtime/log.ts";
import type { createMetrics } from "../src/runtime/metrics.ts";
import { startInOrder } from "../src/runtime/shutdown.ts";
import type { ProcessOptions } from "../src/setup/process.ts";
import { createStore, openStores, prepareStore } from "../src/setup/stores.ts";
import { systemClock, systemTimer } from "../src/time/clock.ts";
import { atMost, pause, untilAborted, withTimeout } from "../src/time/wait.ts";
import { type Cells, closer, type OperatorContext, type RoleContext, type RoleParts, Wakes } from "./context.ts";
import { fleetFactorOf, pollerRole } from "./poller.ts";
import { relayRole } from "./relay.ts";
import { retentionRole } from "./retention.ts";
import { SharedStates } from "./sharedStates.ts";

/** The parts of a process that depend on its data: in one database, or in several cells. */

/** What the roles have in common, in whichever database they work. */
export type SharedParts = Pick<
  RoleContext,
  "configText" | "clock" | "secrets" | "redact" | "evaluator" | "tracing" | "bodies"
>;

type Registry = Pick<ReturnType<typeof createMetrics>, "metrics" | "ofCell" | "observePools">;

interface DataParts {
  /** Of the roles `ingest` and `admin`. */
  readonly context: OperatorContext;
  /** The store of `ingest` for messages. */
  readonly ingestInto: RoleContext | Cells;
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
  const store = shared.tracing.store(await createStore(config, log));
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
    ingestInto: context,
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
  const opened = await openStores(config, reached, log);
  const control = shared.tracing.store(opened.control);
  const stores = opened.stores.map((each) => ({ ...each, store: shared.tracing.store(each.store) }));
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
    ingestInto: cells,
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

/** The roles that work in one database: the whole installation, or a cell of it. @param roles those of the process */
async function workerRoles(context: RoleContext, roles: ReadonlySet<Role>): Promise<readonly RoleParts[]> {
  const parts: RoleParts[] = [];
  // Its libraries patch the file system module, so only this role loads them.
  const capture = roles.has("capture") ? await (await import("./capture.ts")).captureRole(context) : undefined;
  if (roles.has("poller")) parts.push(await pollerRole(context, capture?.pollIntervalMs));
  if (capture !== undefined) parts.push(capture);
  if (roles.has("relay")) parts.push(relayRole(context));
  if (roles.has("retention")) parts.push(retentionRole(context));
  return parts;
}

interface CellOptions {
  readonly identity: CellIdentity;
  /** With the configuration, store, log, metrics and wakes of the cell. */
  readonly context: RoleContext;
  /** Roles of the process. */
  readonly roles: readonly Role[];
  /** Whether relay, poller, capture and retention of this process work here; else it only receives and shows. */
  readonly isServed: boolean;
  /** Aborts at the stop of the process. */
  readonly stopping: AbortSignal;
}

/** One cell in this process. Its roles start once its database is ready, and wait for no other cell. */
export class RunningCell {
  readonly name: string;
  readonly context: RoleContext;
  readonly #options: CellOptions;
  #isOpen = false;
  #parts: readonly RoleParts[] = [];
  /** The attempt under way, or the last one. */
  #opening: Promise<void> = Promise.resolve();

  constructor(options: CellOptions) {
    this.name = options.identity.name;
    this.context = options.context;
    this.#options = options;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Prepares the database and starts the roles of this process in the cell.
   *
   * @throws ConfigError when the tables do not fit, StoreError or TimeoutError when no database answers in time
   */
  open(): Promise<void> {
    this.#opening = this.#open();
    return this.#opening;
  }

  /** Tries again until it is open, or the process stops. Never rejects. */
  async keepOpening(): Promise<void> {
    const { context, stopping } = this.#options;
    while (!this.#isOpen && !stopping.aborted) {
      try {
        await this.open();
      } catch (error) {
        if (stopping.aborted) return;
        context.log.error({ reason: errorText(error) }, "the cell cannot be opened, retrying");
        await pause(TRY_AGAIN_MS, stopping);
      }
    }
  }

  async #open(): Promise<void> {
    const { identity, context, roles, isServed, stopping } = this.#options;
    const { config, store, control, log } = context;
    const own = new Set(roles.filter((role) => isServed || !WORKERS.has(role)));
    const holds = store === control ? "everything" : "cell";
    const prepared = prepareStore(store, config, own, log, stopping, { cell: identity, holds });
    await prepared.catch((error: unknown) => {
      throw error instanceof ConfigError ? configErrorOf(this.name, error) : error;
    });
    const parts = await workerRoles(context, own);
    const workers = parts.flatMap((part) => part.workers ?? []);
    const closers = parts.flatMap((part) => part.closers ?? []);
    await startInOrder([...closers, ...workers], START_UNDO_MS, stopping, { log });
    this.#parts = parts;
    this.#isOpen = true;
    log.info({}, "the cell is open");
  }

  /** Its components; none decides alone whether the process is ready. */
  health(): readonly HealthComponent[] {
    const ping = async () => {
      if (!this.#isOpen) throw new Error("the cell has not been opened yet");
      await this.context.store.ping();
      await this.context.store.inbox.check();
    };
    const database: HealthComponent = { name: "database", decidesReadiness: true, check: ping };
    return [database, ...this.#parts.flatMap((part) => part.health ?? [])];
  }

  /** Stops what {@link open} started, in a phase of the shutdown. */
  stopper(which: "workers" | "closers"): Service {
    return {
      name: `${which} of ${this.name}`,
      start: async () => {},
      stop: async (cutoff) => {
        // An attempt under way gives up by itself, and is undone.
        await untilAborted(
          this.#opening.catch(() => {}),
          cutoff,
        );
        const services = this.#parts.flatMap((part) => part[which] ?? []);
        await Promise.all(services.map((service) => service.stop(cutoff)));
      },
    };
  }

  get pool(): Service {
    return closer(`database of ${this.name}`, () => this.context.store.close());
  }
}

/**
 * Opens the cells. A cell that is away is opened later: the others wait for it only a moment.
 *
 * @throws ConfigError for tables that do not fit, or the error of the first cell when none can be opened
 */
export async function openCells(cells: readonly RunningCell[]): Promise<void> {
  const errors: unknown[] = [];
  const attempts = cells.map(async (cell) => {
    await cell.open().catch((error: unknown) => {
      errors.push(error);
      throw error;
    });
  });
  await Promise.any(attempts).catch(() => {});
  await atMost(OTHERS_MS, Promise.allSettled(attempts));
  const fatal = errors.find((error) => error instanceof ConfigError) ?? errors[0];
  if (fatal instanceof ConfigError || cells.every(({ isOpen }) => !isOpen)) throw fatal;
  cells.forEach((cell, n) => {
    void attempts[n]?.catch(() => cell.keepOpening());
  });
}

/**
 * The components of all cells: each one by itself, for people and metrics, and one of the same name for all, which
 * decides whether the process is ready. The latter is up while the component is up in some cell: traffic for that cell
 * must continue.
 *
 * @param control the store that the cells share, if it is none of them
 */
export function healthOf(cells: readonly RunningCell[], control?: Pick<Store, "ping">): readonly HealthComponent[] {
  const byName = new Map<string, HealthComponent[]>();
  const each = cells.flatMap((cell) =>
    cell.health().map((component): HealthComponent => {
      const checked = withTimeout(LONGEST_CHECK_MS, "the check", (signal) => component.check(signal));
      checked.catch(() => {});
      byName.set(component.name, [...(byName.get(component.name) ?? []), { ...component, check: () => checked }]);
      // The hanging database of one cell must not make the probe of the process wait.
      const check = () => withTimeout(CHECK_MS, "the check", () => checked);
      return { name: `${component.name}.${cell.name}`, decidesReadiness: false, check };
    }),
  );
  const all = [...byName].map(
    ([name, components]): HealthComponent => ({
      name,
      decidesReadiness: components.some(({ decidesReadiness }) => decidesReadiness),
      check: async (signal) => {
        const checks = components.map(({ check }) => check(signal));
        await Promise.any(checks).catch(() => Promise.all(checks));
      },
    }),
  );
  if (control === undefined) return [...all, ...each];
  const check = () => withTimeout(CHECK_MS, "the check", () => control.ping());
  return [...all, ...each, { name: "database.control", decidesReadiness: false, check }];
}

/** Roles that work in the cells that a process serves. */
const WORKERS: ReadonlySet<Role> = new Set(["relay", "poller", "retention", "capture"]);
const START_UNDO_MS = 5000;
const TRY_AGAIN_MS = 5000;
/** How long a start waits for the other cells once the first one is open. */
const OTHERS_MS = 5000;
const CHECK_MS = 500;
/** A little less than a probe waits. */
const LONGEST_CHECK_MS = 2900;
