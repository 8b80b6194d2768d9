import { type CellPositions, cellSequence, DONE, decodePositions } from "../../../model/cellPositions.ts";
import {
  type AuditEntry,
  type BlockedKey,
  COUNTERS,
  type MinuteFigures,
  type ProcessAlive,
  type SourceBacklog,
} from "../../../ports/operationsStore.ts";
import type { OperatorStore } from "../../../ports/operatorStore.ts";
import type { DestinationBacklog, OutboxBacklog } from "../../../ports/store.ts";
import { askFirst, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";
import { mergeLists, mergePages, newestFirst, type Order } from "./merge.ts";

/** What operators see of the installation, of all cells together. */
export function cellOperations(cells: readonly CellLink[]): OperatorStore["operations"] {
  return {
    async processes() {
      const { answers } = await readAll(cells, ({ operations }) => operations.processes());
      return latestByName(answers.flatMap(({ value }) => value));
    },

    async figures(minutes) {
      const { answers } = await readAll(cells, ({ operations }) => operations.figures(minutes));
      return addedFigures(answers.flatMap(({ value }) => value));
    },

    async addAudit(entry) {
      await askFirst(cells, ({ operations }) => operations.addAudit(entry));
    },

    async audit(before, limit) {
      const begin: CellPositions = (before === null ? undefined : decodePositions(before)) ?? {};
      const open = cells.filter(({ name }) => begin[name] !== DONE);
      const read = (store: OperatorStore, { name }: CellLink) => store.operations.audit(begin[name] ?? null, limit);
      const { answers } = await readAll(open, read);
      const parts = answers.map(({ cell, value }) => ({
        cell: cell.name,
        // Cells number their entries alike.
        rows: value.map((entry) => ({ entry, id: cellSequence(cells.indexOf(cell), entry.id) })),
        next: value.length < limit ? null : (value.at(-1)?.id ?? null),
      }));
      // As every part has `limit` entries or ends, so does the page.
      const { rows } = mergePages(parts, begin, limit, AUDIT_ORDER);
      return rows.map(({ row: { entry, id }, position }) => ({ ...entry, id, position }));
    },

    async deadRows(limit) {
      const { answers } = await readAll(cells, ({ operations }) => operations.deadRows(limit));
      const lists = answers.map(({ value }) => value);
      return mergeLists(
        lists,
        newestFirst(({ diedAt }) => diedAt),
        limit,
      );
    },

    async blockedKeys(limit, behindLimit) {
      const { answers } = await readAll(cells, ({ operations }) => operations.blockedKeys(limit, behindLimit));
      const lists = answers.map(({ cell, value }) => value.map((each) => ({ ...each, cell: cell.name })));
      return mergeLists(lists, nextDueFirst, limit);
    },

    async inboxBacklog(pullSources, limit) {
      const { answers } = await readAll(cells, ({ operations }) => operations.inboxBacklog(pullSources, limit));
      return addedBySource(answers.flatMap(({ value }) => value));
    },
  };
}

const AUDIT_ORDER: Order<{ readonly entry: AuditEntry; readonly id: string }> = {
  keyOf: ({ entry: { at }, id }) =>
    at === null ? undefined : { time: BigInt(at.getTime()), tie: id.padStart(25, "0") },
  keyOfPlace: () => undefined,
  positionOf: ({ entry }) => entry.id,
  idOf: ({ id }) => id,
};

/** A process that serves several cells reports to each. */
function latestByName(processes: readonly ProcessAlive[]): readonly ProcessAlive[] {
  const latest = new Map<string, ProcessAlive>();
  for (const each of processes) {
    const known = latest.get(each.name);
    if (known === undefined || (each.seenAt?.getTime() ?? 0) > (known.seenAt?.getTime() ?? 0))
      latest.set(each.name, each);
  }
  return [...latest.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function addedFigures(figures: readonly MinuteFigures[]): readonly MinuteFigures[] {
  const sums = new Map<string, MinuteFigures>();
  for (const each of figures) {
    const key = `${each.minute.getTime()} ${each.kind} ${each.name}`;
    const sum = sums.get(key);
    const counts = COUNTERS.map((counter) => [counter, (sum?.[counter] ?? 0) + each[counter]]);
    sums.set(key, { ...each, ...Object.fromEntries(counts) });
  }
  return [...sums.values()].toSorted((a, b) => a.minute.getTime() - b.minute.getTime());
}

/** A parked row has no due time, and comes last. */
function nextDueFirst(a: BlockedKey, b: BlockedKey): number {
  const at = ({ dueAt }: BlockedKey) => dueAt?.getTime() ?? Number.MAX_SAFE_INTEGER;
  return at(a) - at(b);
}

function addedBySource(backlogs: readonly SourceBacklog[]): readonly SourceBacklog[] {
  const sums = new Map<string, SourceBacklog>();
  for (const each of backlogs) {
    const sum = sums.get(each.source);
    const pending = (sum?.pending ?? 0) + each.pending;
    sums.set(each.source, { ...each, pending, oldestAgeMs: oldest(sum?.oldestAgeMs, each.oldestAgeMs) });
  }
  return [...sums.values()];
}

/** The backlogs of the outboxes of all cells. */
export function cellBacklog(cells: readonly CellLink[]): OperatorStore["outbox"] {
  return {
    async backlog(request) {
      const { answers } = await readAll(cells, ({ outbox }) => outbox.backlog(request));
      return answers.map(({ value }) => value).reduce(addedBacklogs);
    },
  };
}

function addedBacklogs(a: OutboxBacklog, b: OutboxBacklog): OutboxBacklog {
  const byDestination = new Map(a.byDestination);
  for (const [name, each] of b.byDestination) {
    const sum = byDestination.get(name);
    byDestination.set(name, sum === undefined ? each : addedDestinations(sum, each));
  }
  return {
    pending: a.pending + b.pending,
    oldestPendingAgeMs: oldest(a.oldestPendingAgeMs, b.oldestPendingAgeMs),
    blockedKeys: a.blockedKeys + b.blockedKeys,
    byDestination,
    parked: a.parked + b.parked,
  };
}

function addedDestinations(a: DestinationBacklog, b: DestinationBacklog): DestinationBacklog {
  return {
    pending: a.pending + b.pending,
    oldestPendingAgeMs: oldest(a.oldestPendingAgeMs, b.oldestPendingAgeMs),
    processing: a.processing + b.processing,
    blockedKeys: a.blockedKeys + b.blockedKeys,
  };
}

function oldest(a: number | null | undefined, b: number | null): number | null {
  return a === null || a === undefined ? b : Math.max(a, b ?? a);
}
