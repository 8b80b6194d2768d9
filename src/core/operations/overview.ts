import { groupBy } from "../../model/collections.ts";
import { withoutTable } from "../../model/errors.ts";
import { REFUSALS } from "../../model/refusals.ts";
import type { MessageId, RoutedRow } from "../../model/rows.ts";
import { type DestinationStore, RECENT_MINUTES } from "../../ports/destinationStore.ts";
import type { Counter, MinuteFigures, ProcessAlive, SourceBacklog } from "../../ports/operationsStore.ts";
import type { Cells, MissingCell, OperatorStore } from "../../ports/operatorStore.ts";
import type { OutboxBacklog, OutboxStore, ParkedStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import { resolvesWithin } from "../../time/wait.ts";
import { pullSourcesOf } from "../delivery/pull.ts";
import { destinationOverview } from "../destinations/control.ts";
import { WITHOUT_AGGREGATE_ID } from "./heartbeat.ts";
import { problemsOf } from "./problems.ts";
import { reasonGroup } from "./reasons.ts";
import type {
  BlockedKeyShown,
  CellShown,
  FailureGroup,
  FailuresShown,
  OperationsSettings,
  OverviewShown,
} from "./shown.ts";

interface OverviewOptions {
  readonly store: {
    readonly operations: OperatorStore["operations"];
    readonly destinations: Pick<DestinationStore, "isAvailable" | "states">;
    readonly outbox: Pick<OutboxStore, "backlog">;
    readonly parked: Pick<ParkedStore, "list">;
    readonly cells?: Pick<Cells, "names" | "watch"> | undefined;
  };
  readonly settings: OperationsSettings;
  readonly clock: Clock;
}

/** What operators see of the installation. Every read is bounded; a long count runs in the background. */
export class Overview {
  readonly #options: OverviewOptions;
  readonly #backlog: Backlog;

  constructor(options: OverviewOptions) {
    this.#options = options;
    this.#backlog = new Backlog(options);
  }

  /** @param minutes of figures @param longestWaitMs for a count in the background @throws StoreError */
  async read(minutes: number, longestWaitMs = 250): Promise<OverviewShown> {
    const { store, settings } = this.#options;
    const { operations, cells } = store;
    const leftOut = cells?.watch();
    // One after the other: deliveries and receipts need the other connections.
    const replicas = await operations.processes().catch(withoutTable);
    const figures = await operations.figures(minutes).catch(withoutTable);
    const recent = minutes === RECENT_MINUTES ? figures : await operations.figures(RECENT_MINUTES).catch(withoutTable);
    const shared = store.destinations.isAvailable ? await store.destinations.states() : [];
    // Nothing is counted for an overview that fails before.
    const counted = await this.#backlog.read(longestWaitMs);
    const sources = await operations.inboxBacklog(pullSourcesOf(settings.sources), MOST_PENDING).catch(withoutTable);
    const dead = await operations.deadRows(MOST_FAILED);
    const parkedRows = await store.parked.list({}, null, MOST_FAILED);
    // The newest row first. The routes decide for each row once.
    const deadOf = groupBy(dead, (row) => this.#destinationOf(row));
    const figuresOf = figures && groupBy(figures, ({ kind, name }) => `${kind} ${name}`);
    const shown = destinationOverview(settings.destinations, shared, counted?.value.byDestination, recent);
    const overview: Omit<OverviewShown, "problems"> = {
      at: new Date(this.#options.clock.now()),
      relayEnabled: settings.isRelayEnabled,
      roles: replicas === undefined ? null : rolesOf(replicas),
      replicas: replicas ?? null,
      sources: Object.entries(settings.sources).map(([name, { consumption }]) => ({
        name,
        consumption,
        ...backlogOf(sources, name),
        ...sourceFigures(figuresOf, name),
      })),
      destinations: shown.map((each) => ({
        ...each,
        dead: deadOf.get(each.name)?.length ?? 0,
        lastDiedAt: deadOf.get(each.name)?.[0]?.diedAt ?? null,
        minutes: minutesOf(figuresOf, `destination ${each.name}`, ["sent", "failed", "dead"]),
      })),
      unrouted: unroutedOf(
        dead.filter((row) => this.#isUnrouted(row)),
        parkedRows.filter((row) => this.#isUnrouted(row)),
      ),
      outbox:
        counted === undefined
          ? null
          : {
              pending: counted.value.pending,
              oldestAgeMs: counted.value.oldestPendingAgeMs,
              parked: counted.value.parked,
              blockedKeys: counted.value.blockedKeys,
              dead: dead.length,
              asOf: counted.at,
            },
      ...(cells === undefined || leftOut === undefined
        ? {}
        : { cells: cellsShown(cells.names, [...(counted?.leftOut ?? []), ...leftOut()]) }),
    };
    return { ...overview, problems: problemsOf(overview, minutes) };
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
    ]
      .toSorted((a, b) => Number(b.at) - Number(a.at))
      .map((row) => ({ ...row, destination: this.#destinationOf(row), reason: row.lastError }));
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
    return keys.slice(0, limit).map(({ isParked, isPinned, ...each }) => ({
      ...each,
      destination: this.#destinationOf({ ...each, isPinned }),
      state: isParked ? "parked" : "retry",
    }));
  }

  #isUnrouted(row: RoutedRow): boolean {
    const isListed = !row.isPinned && this.#options.settings.listOf(row.topic ?? "") !== undefined;
    return this.#destinationOf(row) === null && !isListed;
  }

  #destinationOf(row: RoutedRow): string | null {
    return this.#options.settings.destinationOf(row) ?? null;
  }
}

interface Counted {
  readonly value: OutboxBacklog;
  readonly at: Date;
  readonly leftOut: readonly MissingCell[];
}

/** The backlog, which takes long to count: counted in the background when somebody asks, at most a fiftieth of the time. */
class Backlog {
  readonly #options: OverviewOptions;
  #counted: Counted | undefined;
  #dueAt = Number.NEGATIVE_INFINITY;
  #loading: Promise<void> | undefined;

  constructor(options: OverviewOptions) {
    this.#options = options;
  }

  /** Waits a moment for a new count, else returns the last one. @throws the error of the read */
  async read(longestWaitMs: number): Promise<Counted | undefined> {
    const { clock } = this.#options;
    if (this.#loading === undefined && clock.monotonic() >= this.#dueAt) {
      this.#loading = this.#count().finally(() => {
        this.#loading = undefined;
      });
      // Who waits for it sees the error.
      this.#loading.catch(() => {});
    }
    if (this.#loading !== undefined) await resolvesWithin(longestWaitMs, this.#loading);
    return this.#counted;
  }

  async #count(): Promise<void> {
    const { store, clock } = this.#options;
    const missing = store.cells?.watch();
    const startedAt = clock.monotonic();
    const value = await store.outbox.backlog();
    const now = clock.monotonic();
    const leftOut = missing?.() ?? [];
    this.#counted = { value, at: new Date(clock.now()), leftOut };
    // Most of the time went into waiting for a cell, which may be back.
    const costMs = leftOut.length > 0 ? 0 : COST_FACTOR * (now - startedAt);
    this.#dueAt = now + Math.max(LEAST_REST_MS, costMs);
  }
}

function cellsShown(names: readonly string[], leftOut: readonly MissingCell[]): readonly CellShown[] {
  const missing = new Map(leftOut.map((each) => [each.name, each]));
  return names.map((name) => {
    const { since = null, reason = null } = missing.get(name) ?? {};
    return { name, awaySince: since, reason };
  });
}

const LEAST_REST_MS = 1000;
const COST_FACTOR = 50;
const MOST_PENDING = 50_000;
/** Dead rows that are read, the newest, and parked ones. */
export const MOST_FAILED = 2000;
/** Rows behind a blocked key that are counted. */
const MOST_BEHIND = 1000;

function rolesOf(replicas: readonly ProcessAlive[]): Record<string, { replicas: number }> {
  const byRole = groupBy(
    replicas.flatMap(({ roles }) => roles),
    (role) => role,
  );
  return Object.fromEntries([...byRole].map(([role, each]) => [role, { replicas: each.length }]));
}

function backlogOf(sources: readonly SourceBacklog[] | undefined, name: string) {
  if (sources === undefined) return { pending: null, oldestAgeMs: null };
  const found = sources.find(({ source }) => source === name);
  return { pending: found?.pending ?? 0, oldestAgeMs: found?.oldestAgeMs ?? null };
}

const SOURCE_COUNTERS = ["received", "duplicate", "filtered", "dead"] as const;

/** @param figures by kind and name */
function sourceFigures(figures: ReadonlyMap<string, readonly MinuteFigures[]> | undefined, name: string) {
  if (figures === undefined) return { refusals: null, withoutAggregateId: null, minutes: null };
  const remarks = (word: string) => figures.get(`remark ${word} ${name}`) ?? [];
  const own = minutesOf(figures, `source ${name}`, SOURCE_COUNTERS) ?? [];
  const byMinute = new Map(own.map((each) => [each.at.getTime(), { ...each, refused: 0 }]));
  for (const { minute: at, received } of REFUSALS.flatMap(remarks)) {
    const minute = byMinute.get(at.getTime()) ?? { at, received: 0, duplicate: 0, filtered: 0, dead: 0, refused: 0 };
    byMinute.set(at.getTime(), { ...minute, refused: minute.refused + received });
  }
  const total = (word: string) => remarks(word).reduce((sum, { received }) => sum + received, 0);
  return {
    refusals: Object.fromEntries(REFUSALS.map((word) => [word, total(word)] as const).filter(([, count]) => count > 0)),
    withoutAggregateId: total(WITHOUT_AGGREGATE_ID),
    minutes: [...byMinute.values()].toSorted((a, b) => a.at.getTime() - b.at.getTime()),
  };
}

/** @param dead rows without a destination, newest first. @param parked such rows */
function unroutedOf(
  dead: readonly (RoutedRow & { readonly diedAt: Date | null })[],
  parked: readonly RoutedRow[],
): OverviewShown["unrouted"] {
  const topics = new Set([...dead, ...parked].flatMap(({ topic }) => topic ?? []));
  return {
    dead: dead.length,
    parked: parked.length,
    lastDiedAt: dead[0]?.diedAt ?? null,
    topics: [...topics].slice(0, MOST_TOPICS),
  };
}

const MOST_TOPICS = 3;

/** @param figures by kind and name */
function minutesOf<C extends Counter>(
  figures: ReadonlyMap<string, readonly MinuteFigures[]> | undefined,
  of: string,
  counters: readonly C[],
): readonly ({ readonly at: Date } & Readonly<Record<C, number>>)[] | null {
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
    JSON.stringify([state, destination, reason === null ? null : reasonGroup(reason)]),
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
