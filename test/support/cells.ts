import { severalCells } from "../../src/adapters/stores/cells/index.ts";
import type { Log } from "../../src/ports/runtime.ts";
import type { Store } from "../../src/ports/store.ts";
import { type Clock, systemClock } from "../../src/time/clock.ts";
import type { PostgresHarness } from "./postgresHarness.ts";
import { silentLog } from "./recorders.ts";

interface Further {
  /** By default the store of the first. */
  readonly control?: Store;
  /** Of the last. */
  readonly isReady?: () => boolean;
  readonly clock?: Clock;
  readonly log?: Log;
}

/** Cells called `a`, `b` and so on, as one. */
export function composed(stores: readonly [Store, ...Store[]], further: Further = {}) {
  const { control = stores[0], isReady, clock = systemClock, log = silentLog } = further;
  const cells = stores.map((store, n) => ({
    name: String.fromCharCode("a".charCodeAt(0) + n),
    store,
    isReady: n === stores.length - 1 ? isReady : undefined,
  }));
  return severalCells(cells, control, clock, log);
}

/** Runs work with two cells, `a` and `b`, each a database of its own. @param open see `postgresHarnesses` */
export const twoCells =
  (open: () => Promise<PostgresHarness>) =>
  async (
    work: (cells: { a: PostgresHarness; b: PostgresHarness; store: ReturnType<typeof composed> }) => Promise<void>,
  ): Promise<void> => {
    await using a = await open();
    await using b = await open();
    await work({ a, b, store: composed([a.store, b.store]) });
  };
