import { cellSequence, splitSequence } from "../../../model/cellPositions.ts";
import type { HistoryEntry } from "../../../ports/historyStore.ts";
import { MOST_COUNTED } from "../../../ports/journalStore.ts";
import type { CellHistory, OperatorStore } from "../../../ports/operatorStore.ts";
import { readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";
import { mergeLists, newestFirst } from "./merge.ts";

/** The history of all cells; in sequence, that of the first cell comes first. */
export function cellHistory(cells: readonly CellLink[]): OperatorStore["history"] {
  const ofCell = (cell: CellLink) => (entry: HistoryEntry) => ({
    ...entry,
    cell: cell.name,
    sequence: cellSequence(cells.indexOf(cell), entry.sequence),
  });
  return {
    get isAvailable() {
      return cells.some(({ store }) => store.history.isAvailable);
    },

    async of(id, limit) {
      const { answers } = await readAll(cells, ({ history }) => history.of(id, limit));
      const lists = answers.map(({ cell, value }) => value.map(ofCell(cell)).toReversed());
      return mergeLists(
        lists,
        newestFirst(({ at }) => at),
        limit,
      ).toReversed();
    },

    async since(after, limit) {
      const from = after === null ? undefined : splitSequence(after);
      const { answers } = await readAll(cells.slice(from?.index ?? 0), ({ history }, cell) => {
        if (from === undefined) return history.since(null, limit);
        return history.since(cells.indexOf(cell) === from.index ? from.sequence : "0", limit);
      });
      const entries = answers.flatMap(({ cell, value }) => value.map(ofCell(cell)));
      if (from !== undefined) return entries.slice(0, limit);
      const newest = new Set(
        mergeLists(
          [entries],
          newestFirst(({ at }) => at),
          limit,
        ),
      );
      return entries.filter((entry) => newest.has(entry));
    },
  };
}

/** The history of each cell by itself, as it is followed. */
export function histories(cells: readonly CellLink[]): readonly CellHistory[] {
  return cells.map((cell) => ({
    cell: cell.name,
    history: {
      since: (after, limit) =>
        cell.ask(async ({ history }) => {
          const entries = await history.since(after, limit);
          return entries.map((entry) => ({ ...entry, cell: cell.name }));
        }),
    },
  }));
}

/** What the journals of all cells have. */
export function cellJournal(cells: readonly CellLink[]): OperatorStore["journal"] {
  return {
    async duplicatesOf(id, limit) {
      const { answers } = await readAll(cells, ({ journal }) => journal.duplicatesOf(id, limit));
      const lists = answers.map(({ cell, value }) => value.entries.map((entry) => ({ ...entry, cell: cell.name })));
      const count = answers.reduce((sum, { value }) => sum + value.count, 0);
      return {
        entries: mergeLists(
          lists,
          newestFirst(({ at }) => at),
          limit,
        ),
        count: Math.min(count, MOST_COUNTED),
      };
    },

    async find(search, limit) {
      const { answers } = await readAll(cells, ({ journal }) => journal.find(search, limit));
      const lists = answers.map(({ cell, value }) => value.map((entry) => ({ ...entry, cell: cell.name })));
      return mergeLists(
        lists,
        newestFirst(({ at }) => at),
        limit,
      );
    },
  };
}
