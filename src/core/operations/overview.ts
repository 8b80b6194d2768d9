import { withoutTable } from "../../model/errors.ts";
import { groupBy } from "../../model/groups.ts";
import type { DestinationOf, MessageId, RoutedRow } from "../../model/rows.ts";
import type { DestinationStore } from "../../ports/destinationStore.ts";
import type {
  Counter,
  MinuteFigures,
  OperationsStore,
  ProcessAlive,
  SourceBacklog,
} from "../../ports/operationsStore.ts";
import type { Cells, MissingCell } from "../../ports/operatorStore.ts";
import type { OutboxBacklog, OutboxStore, ParkedStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import { resolvesWithin } from "../../time/wait.ts";
import { destinationOverview } from "../destinations/control.ts";
import type { BlockedKeyShown, CellShown, FailureGroup, FailuresShown, Minute, OverviewShown } from "./shown.ts";

interface OverviewOptions {
  readonly store: {
    readonly operations: Omit<OperationsStore, "beat" | "leave">;
    readonly destinations: Pick<DestinationStore, "isAvailable" | "states">;
    readonly outbox: Pick<OutboxStore, "backlog">;
    readonly parked: Pick<ParkedStore, "list">;
    readonly cells?: Pick<Cells, "names" | "watch"> | undefined;
  };
  readonly settings: OverviewSettings;
  /** Longest wait for a count that runs in the background, in ms; default 250. */
  readonly longestWaitMs?: number | undefined;
  readonly clock: Clock;
}

interface OverviewSettings {
  readonly destinations: Parameters<typeof destinationOverview>[0];
  readonly sources: Readonly<Record<string, { readonly consumption: "push" | "pull" }>>;
  readonly destinationOf: DestinationOf;
  readonly isRelayEnabled: boolean;
}

/** What operators see of the installation. Every read is bounded; a long count runs in the background. */
export class Overview {
  readonly #options: OverviewOptions;
  readonly #totals: Cached<OutboxBacklog>;
  readonly #byDestination: Cached<OutboxBacklog["byDestination"]>;

  constructor(options: OverviewOptions) {
    const { store } = options;
    this.#options = options;
    this.#totals = new Cached(() => store.outbox.backlog({ totalsOnly: true }), options);
    this.#byDestination = new Cached(async () => (await store.outbox.backlog()).byDestination, options);
  }

  /**
   * @param minutes of figures
   * @throws StoreError
   */
  async read(minutes: number): Promise<OverviewShown> {
    const { store, settings } = this.#options;
    const { operations, cells } = store;
    const leftOut = cells?.watch();
    const pullSources = Object.entries(settings.sources).flatMap(([name, { consumption }]) =>
      consumption === "pull" ? [name] : [],
    );
    const [totals, byDestination] = await Promise.all([this.#totals.read(), this.#byDestination.read()]);
    // One after the other: deliveries and receipts need the other connections.
    const replicas = await operations.processes().catch(withoutTable);
    const figures = await operations.figures(minutes).catch(withoutTable);
    const shared = store.destinations.isAvailable ? await store.destinations.states() : [];
    const sources = await operations.inboxBacklog(pullSources, MOST_PENDING).catch(withoutTable);
    const dead = await operations.deadRows(MOST_FAILED);
    const parked = await store.parked.list({}, null, MOST_FAILED);
    const deadOf = countBy(dead, (row) => this.#destinationOf(row));
    const parkedOf = countBy(parked, (row) => this.#destinationOf(row));
    const figuresOf = figures && groupBy(figures, ({ kind, name }) => `${kind} ${name}`);
    const shown = destinationOverview(settings.destinations, shared, byDestination?.value ?? new Map());
    return {
      at: new Date(this.#options.clock.now()),
      relayEnabled: settings.isRelayEnabled,
      roles: replicas === undefined ? null : rolesOf(replicas),
      replicas: replicas?.map(({ knowsCells: _, ...replica }) => replica) ?? null,
      sources: Object.entries(settings.sources).map(([name, { consumption }]) => ({
        name,
        consumption,
        ...backlogOf(sources, name),
        minutes: minutesOf(figuresOf, `source ${name}`, ["received", "duplicate", "filtered", "dead"]),
      })),
      destinations: shown.map(({ backlog, inFlight, blockedKeys, ...each }) => ({
        ...each,
        backlog: byDestination === undefined ? null : backlog,
        inFlight: byDestination === undefined ? null : inFlight,
        blockedKeys: byDestination === undefined ? null : blockedKeys,
        dead: deadOf.get(each.name) ?? 0,
        parked: parkedOf.get(each.name) ?? 0,
        minutes: minutesOf(figuresOf, `destination ${each.name}`, ["sent", "failed", "dead"]),
      })),
      outbox:
        totals === undefined
          ? null
          : {
              pending: totals.value.pending,
              oldestAgeMs: totals.value.oldestPendingAgeMs,
              parked: totals.value.parked,
              blockedKeys: totals.value.blockedKeys,
              dead: dead.length,
              asOf: totals.at,
              destinationsAsOf: byDestination?.at ?? null,
            },
      ...(cells === undefined || leftOut === undefined
        ? {}
        : { cells: this.#cells(cells.names, [totals, byDestination], leftOut()) }),
    };
  }

  /** The newest dead rows, and the first parked ones, by reason. @throws StoreError */
  async failures(filter: {
    readonly state?: "dead" | "parked" | undefined;
    readonly destination?: string | undefined;
  }): Promise<FailuresShown> {
    const { store } = this.#options;
    const dead = filter.state === "parked" ? [] : await store.operations.deadRows(MOST_FAILED);
    const parked = filter.state === "dead" ? [] : await store.parked.list({}, null, MOST_FAILED);
    const rows = [
      ...dead.map((row) => ({ ...row, state: "dead" as const, at: row.diedAt })),
      ...parked.map((row) => ({ ...row, state: "parked" as const, at: row.parkedAt })),
    ].map((row) => ({ ...row, destination: this.#destinationOf(row), reason: row.lastError }));
    const wanted = rows.filter((row) => filter.destination === undefined || row.destination === filter.destination);
    return {
      groups: groupFailures(wanted),
      rowsRead: rows.length,
      isComplete: dead.length < MOST_FAILED && parked.length < MOST_FAILED,
    };
  }

  /** Keys whose first row waits for its retry or is parked. @throws StoreError */
  async blockedKeys(limit: number): Promise<readonly BlockedKeyShown[]> {
    const keys = await this.#options.store.operations.blockedKeys(limit, MOST_BEHIND);
    return keys.slice(0, limit).map(({ isParked, destinationOverride, ...each }) => ({
      ...each,
      destination: this.#destinationOf({ ...each, destinationOverride }),
      state: isParked ? "parked" : "retry",
    }));
  }

  /** With those that the overview is without. @param counts also these, which may be older */
  #cells(
    names: readonly string[],
    counts: readonly (Pick<Found<unknown>, "leftOut"> | undefined)[],
    leftOut: readonly MissingCell[],
  ): readonly CellShown[] {
    const all = [...counts.flatMap((count) => count?.leftOut ?? []), ...leftOut];
    const missing = new Map(all.map((each) => [each.name, each]));
    return names.map((name) => {
      const { since = null, reason = null } = missing.get(name) ?? {};
      return { name, awaySince: since, reason };
    });
  }

  #destinationOf(row: RoutedRow): string | null {
    return this.#options.settings.destinationOf(row) ?? null;
  }
}

interface Found<T> {
  readonly value: T;
  readonly at: Date;
  /** Cells that it is without. */
  readonly leftOut: readonly MissingCell[];
}

/** A value that takes long to read: read again in the background when somebody asks, at most a fiftieth of the time. */
class Cached<T> {
  readonly #load: () => Promise<T>;
  readonly #options: OverviewOptions;
  #found: Found<T> | undefined;
  #dueAt = Number.NEGATIVE_INFINITY;
  #loading: Promise<void> | undefined;

  constructor(load: () => Promise<T>, options: OverviewOptions) {
    this.#load = load;
    this.#options = options;
  }

  /**
   * Waits a moment for a new value, else returns the last one.
   *
   * @throws the error of the read
   */
  async read(): Promise<Found<T> | undefined> {
    const { longestWaitMs = LONGEST_WAIT_MS, clock } = this.#options;
    if (this.#loading === undefined && clock.monotonic() >= this.#dueAt) {
      this.#loading = this.#reload().finally(() => {
        this.#loading = undefined;
      });
      // Who waits for it sees the error.
      this.#loading.catch(() => {});
    }
    if (this.#loading !== undefined) await resolvesWithin(longestWaitMs, this.#loading);
    return this.#found;
  }

  async #reload(): Promise<void> {
    const { store, clock } = this.#options;
    const missing = store.cells?.watch();
    const startedAt = clock.monotonic();
    const value = await this.#load();
    const now = clock.monotonic();
    const leftOut = missing?.() ?? [];
    this.#found = { value, at: new Date(clock.now()), leftOut };
    // Most of the time went into waiting for a cell, which may be back.
    const costMs = leftOut.length > 0 ? 0 : COST_FACTOR * (now - startedAt);
    this.#dueAt = now + Math.max(LEAST_REST_MS, costMs);
  }
}

const LONGEST_WAIT_MS = 250;
const LEAST_REST_MS = 1000;
const COST_FACTOR = 50;
const MOST_PENDING = 50_000;
/** Dead rows that are read, the newest, and parked ones. */
export const MOST_FAILED = 2000;
/** Rows behind a blocked key that are counted. */
const MOST_BEHIND = 1000;

function rolesOf(replicas: readonly ProcessAlive[]): Record<string, { replicas: number }> {
  const counts = countBy(
    replicas.flatMap(({ roles }) => roles),
    (role) => role,
  );
  return Object.fromEntries([...counts].map(([role, count]) => [role, { replicas: count }]));
}

function backlogOf(sources: readonly SourceBacklog[] | undefined, name: string) {
  if (sources === undefined) return { pending: null, oldestAgeMs: null };
  const found = sources.find(({ source }) => source === name);
  return { pending: found?.pending ?? 0, oldestAgeMs: found?.oldestAgeMs ?? null };
}

function countBy<T>(items: readonly T[], nameOf: (item: T) => string | null): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const item of items) {
    const name = nameOf(item);
    if (name !== null) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

/** @param figures by kind and name */
function minutesOf<C extends Counter>(
  figures: ReadonlyMap<string, readonly MinuteFigures[]> | undefined,
  of: string,
  counters: readonly C[],
): readonly Minute<C>[] | null {
  if (figures === undefined) return null;
  return (figures.get(of) ?? []).map((each) => {
    const counts = Object.fromEntries(counters.map((counter) => [counter, each[counter]])) as Record<C, number>;
    return { at: each.minute, ...counts };
  });
}

type FailedRow = Pick<FailureGroup, "state" | "destination" | "reason"> & {
  readonly id: MessageId;
  readonly at: Date | null;
};

/** @param rows newest first. @returns the largest group first */
function groupFailures(rows: readonly FailedRow[]): readonly FailureGroup[] {
  const groups = groupBy(rows, ({ state, destination, reason }) =>
    JSON.stringify([state, destination, reason === null ? null : withoutDetails(reason)]),
  );
  return [...groups.values()]
    .toSorted((a, b) => b.length - a.length)
    .map((group) => {
      const [{ state, destination, reason, at: newestAt }] = group as readonly [FailedRow, ...FailedRow[]];
      const oldestAt = group.at(-1)?.at ?? null;
      const ids = group.slice(0, MOST_IDS).map(({ id }) => id);
      return { state, destination, reason, count: group.length, newestAt, oldestAt, ids };
    });
}

const MOST_IDS = 5;

/**
 * The words of a reason: without ids, numbers and times, and without what a receiver answered behind the first line.
 */
function withoutDetails(reason: string): string {
  const [line = ""] = reason.split("\n", 1);
  return line
    .replaceAll(/\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b/gi, "#")
    .replaceAll(/(?<!answered )\b[0-9a-f]*\d[0-9a-f.:]*\b/gi, "#")
    .slice(0, COMPARED);
}

/** The answer of a receiver may differ from row to row further on. */
const COMPARED = 120;
