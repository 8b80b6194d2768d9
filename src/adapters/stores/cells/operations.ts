import type { BlockedKey } from "../../../ports/operationsStore.ts";
import type { OperatorStore } from "../../../ports/operatorStore.ts";
import { readAll, readLists } from "./asking.ts";
import type { CellLink } from "./link.ts";

/** What operators see of the installation: processes, figures and the audit log are in the control store. */
export function cellOperations(cells: readonly CellLink[], control: CellLink): OperatorStore["operations"] {
  return {
    processes: () => control.ask(({ operations }) => operations.processes()),
    figures: (minutes) => control.ask(({ operations }) => operations.figures(minutes)),
    addAudit: (entry) => control.ask(({ operations }) => operations.addAudit(entry)),
    audit: (before, limit) => control.ask(({ operations }) => operations.audit(before, limit)),

    async deadRows(limit) {
      const rows = await readLists(cells, ({ operations }) => operations.deadRows(limit));
      return rows.toSorted(newestFirst(({ diedAt }) => diedAt)).slice(0, limit);
    },

    async blockedKeys(limit, behindLimit) {
      const keys = await readLists(cells, ({ operations }) => operations.blockedKeys(limit, behindLimit));
      return keys.toSorted(nextDueFirst).slice(0, limit);
    },

    async inboxBacklog(pullSources, limit) {
      const { answers } = await readAll(cells, ({ operations }) => operations.inboxBacklog(pullSources, limit));
      const bySource = answers.flatMap(({ value }) => value.map((each) => [each.source, each] as const));
      return [...addedByName(bySource).values()];
    },
  };
}

/** The backlogs of the outboxes of all cells. */
export function cellBacklog(cells: readonly CellLink[]): OperatorStore["outbox"] {
  return {
    async backlog(request) {
      const { answers } = await readAll(cells, ({ outbox }) => outbox.backlog(request));
      const backlogs = answers.map(({ value }) => value);
      const byDestination = addedByName(backlogs.flatMap((each) => [...each.byDestination]));
      return { ...backlogs.reduce(added), byDestination };
    },
  };
}

/** What the journals of all cells have. A duplicate is noted in the cell of its message. */
export function cellJournal(cells: readonly CellLink[]): OperatorStore["journal"] {
  return {
    async duplicatesOf(id, limit) {
      const { answers } = await readAll(cells, ({ journal }) => journal.duplicatesOf(id, limit));
      const own = answers.find(({ value }) => value.count > 0);
      const entries = own?.value.entries.map((entry) => ({ ...entry, cell: own.cell.name }));
      return { entries: entries ?? [], count: own?.value.count ?? 0 };
    },

    async find(search, limit) {
      const entries = await readLists(cells, ({ journal }) => journal.find(search, limit));
      return entries.toSorted(newestFirst(({ at }) => at)).slice(0, limit);
    },
  };
}

/** Those without a time last. */
function newestFirst<T>(timeOf: (row: T) => Date | null): (a: T, b: T) => number {
  return (a, b) => Number(timeOf(b)) - Number(timeOf(a));
}

/** A parked row has no due time, and comes last. */
function nextDueFirst(a: BlockedKey, b: BlockedKey): number {
  const at = ({ dueAt }: BlockedKey) => dueAt?.getTime() ?? Number.MAX_SAFE_INTEGER;
  return at(a) - at(b);
}

function addedByName<T extends object>(named: readonly (readonly [string, T])[]): ReadonlyMap<string, T> {
  const sums = new Map<string, T>();
  for (const [name, each] of named) {
    const sum = sums.get(name);
    sums.set(name, sum === undefined ? each : added(sum, each));
  }
  return sums;
}

/** Adds what two cells counted; of ages, the greater one counts. Null for nothing. */
function added<T extends object>(a: T, b: T): T {
  const others = new Map<string, unknown>(Object.entries(b));
  const sums = Object.entries(a).map(([name, value]) => {
    const other = others.get(name);
    if (typeof value !== "number" || typeof other !== "number") return [name, value ?? other];
    return [name, name.endsWith("AgeMs") ? Math.max(value, other) : value + other];
  });
  return Object.fromEntries(sums) as T;
}
