import { ConfigError, configErrorOf } from "../../../model/errors.ts";
import type { Cells, OperatorStore } from "../../../ports/operatorStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { CheckedTables, Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { atMost, linked } from "../../../time/wait.ts";
import { askEach, failed, readAll } from "./asking.ts";
import { type Cell, CellLink } from "./link.ts";
import { cellMessages } from "./messages.ts";
import { cellBacklog, cellJournal, cellOperations } from "./operations.ts";
import { cellPull } from "./pull.ts";
import { cellJobs, cellParked, cellReplay } from "./rows.ts";

/**
 * The cells of an installation as one, for operators and pull clients. What the installation has once is in the control
 * store: without it this fails, and the rest works.
 *
 * `waitUntilReady` waits for the first that answers, and a moment for the others. `close` closes every store.
 *
 * @param all one at least, in the order of the configuration
 * @param control that of `database.url`, which may be the store of a cell
 */
export function severalCells(
  all: readonly Cell[],
  control: Store,
  clock: Clock,
  log: Log,
): OperatorStore & { readonly cells: Cells } {
  const cells = all.map((cell, place) => new CellLink(cell, place, clock, log));
  const own = cells.find(({ store }) => store === control);
  const shared = own ?? new CellLink({ name: "control", store: control }, -1, clock, log);
  const links = own === undefined ? [shared, ...cells] : cells;
  /** Nobody knows what a control store has that was away when the tables were checked: it is asked. */
  let isChecked = true;
  return {
    messages: cellMessages(cells),
    operations: cellOperations(cells, shared),
    jobs: cellJobs(shared),
    parked: cellParked(cells),
    replay: cellReplay(cells),
    journal: cellJournal(cells),
    pull: cellPull(cells),
    outbox: cellBacklog(cells),

    destinations: {
      get isAvailable() {
        return !isChecked || control.destinations.isAvailable;
      },
      states: () => shared.ask(({ destinations }) => destinations.states()),
      pause: (name, pause) => shared.ask(({ destinations }) => destinations.pause(name, pause)),
      resume: (name) => shared.ask(({ destinations }) => destinations.resume(name)),
    },

    history: {
      async of(id, limit) {
        const { answers } = await readAll(cells, ({ history }) => history.of(id, limit));
        return answers.flatMap(({ cell, value }) => value.map((entry) => ({ ...entry, cell: cell.name })));
      },
    },
    histories: cells.map((cell) => ({
      async since(after, limit) {
        const entries = await cell.ask(({ history }) => history.since(after, limit));
        return entries.map((entry) => ({ ...entry, cell: cell.name }));
      },
    })),

    schema: {
      async migrate() {
        const { answers, failures } = await askEach(links, ({ schema }) => schema.migrate());
        const applied = answers.flatMap(({ cell, value }) => value.map((file) => `${cell.name}: ${file}`));
        if (failures.length === 0) return applied;
        throw failed(failures, `the others are up to date, applied: ${applied.join(", ") || "nothing"}`);
      },

      async checkColumns(tables = ALL_TABLES, needs) {
        const problems: ConfigError["problems"][number][] = [];
        const { failures } = await readAll(links, async ({ schema }, cell) => {
          const has = (table: CheckedTables[number]) => (table === "destinations" ? cell === shared : cell.place >= 0);
          try {
            await schema.checkColumns(tables.filter(has), needs);
          } catch (error) {
            if (!(error instanceof ConfigError)) throw error;
            problems.push(...configErrorOf(cell.name, error).problems);
          }
        });
        isChecked = !failures.some(({ cell }) => cell === shared);
        if (problems.length > 0) throw new ConfigError(problems);
      },
    },

    cells: {
      names: cells.map(({ name }) => name),
      watch() {
        const missingOf = links.map((link) => link.watch());
        return () => missingOf.flatMap((missing) => missing() ?? []);
      },
    },

    announceOutbox() {
      for (const { store } of cells) store.announceOutbox();
    },

    async waitUntilReady(timeoutMs, signal) {
      using waiting = linked(signal);
      const waits = links.map(({ store }) => store.waitUntilReady(timeoutMs, waiting.signal));
      const settled = Promise.allSettled(waits);
      await Promise.any(waits).catch((error: AggregateError) => {
        throw error.errors[0];
      });
      await atMost(LATE_CELL_MS, settled);
      // One that stays away is left out.
      waiting.abort();
    },

    async close() {
      await Promise.all(links.map(({ store }) => store.close()));
    },
  };
}

const ALL_TABLES: CheckedTables = ["inbox", "outbox", "destinations", "history"];
/** For how long the others wait for the last cell. */
const LATE_CELL_MS = 2000;
