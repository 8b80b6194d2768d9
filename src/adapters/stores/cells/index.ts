import { ConfigError, configErrorOf } from "../../../model/errors.ts";
import type { Cells, OperatorStore } from "../../../ports/operatorStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { atMost, linked } from "../../../time/wait.ts";
import { askEach, failed, readAll } from "./asking.ts";
import { cellDestinations } from "./destinations.ts";
import { cellHistory, cellJournal, histories } from "./history.ts";
import { cellJobs } from "./jobs.ts";
import { type Cell, CellLink } from "./link.ts";
import { cellMessages } from "./messages.ts";
import { cellBacklog, cellOperations } from "./operations.ts";
import { cellPull } from "./pull.ts";
import { cellParked, cellReplay, Homes } from "./rows.ts";

/**
 * The cells of an installation as one, for operators and pull clients.
 *
 * `waitUntilReady` waits for the first that answers, and a moment for the others. `close` closes every store.
 *
 * @param all one at least, in the order of the configuration
 */
export function severalCells(all: readonly Cell[], clock: Clock, log: Log): OperatorStore & { readonly cells: Cells } {
  const links = all.map((cell) => new CellLink(cell, clock, log));
  const homes = new Homes(links);
  return {
    messages: cellMessages(links),
    operations: cellOperations(links),
    jobs: cellJobs(links),
    parked: cellParked(links, homes),
    replay: cellReplay(links, homes),
    history: cellHistory(links),
    journal: cellJournal(links),
    destinations: cellDestinations(links),
    pull: cellPull(links, clock),
    outbox: cellBacklog(links),
    schema: schemaOf(links),
    cells: {
      names: links.map(({ name }) => name),
      watch() {
        const missingOf = links.map((link) => link.watch());
        return () => missingOf.flatMap((missing) => missing() ?? []);
      },
      histories: histories(links),
    },

    async ping() {
      await readAll(links, (store) => store.ping());
    },

    poolUsage() {
      const sum = (of: "used" | "idle" | "waiting") =>
        links.reduce((total, { store }) => total + store.poolUsage()[of], 0);
      return { used: sum("used"), idle: sum("idle"), waiting: sum("waiting") };
    },

    announceOutbox() {
      for (const { store } of links) store.announceOutbox();
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

/** For how long the others wait for the last cell. */
const LATE_CELL_MS = 2000;

function schemaOf(links: readonly CellLink[]): OperatorStore["schema"] {
  return {
    async migrate() {
      const migrated = await askEach(links, ({ schema }) => schema.migrate(), { insists: true });
      const applied = migrated.answers.flatMap(({ cell, value }) => value.map((file) => `${cell.name}: ${file}`));
      if (migrated.failures.length === 0) return applied;
      throw failed(migrated.failures, `the others are up to date, applied: ${applied.join(", ") || "nothing"}`);
    },

    async checkColumns(tables, needs) {
      const problems: ConfigError["problems"][number][] = [];
      const { failures } = await readAll(links, async ({ schema }, cell) => {
        try {
          await schema.checkColumns(tables, needs);
          cell.isChecked = true;
        } catch (error) {
          if (!(error instanceof ConfigError)) throw error;
          problems.push(...configErrorOf(cell.name, error).problems);
        }
      });
      for (const { cell } of failures) cell.isChecked = false;
      if (problems.length > 0) throw new ConfigError(problems);
    },
  };
}
