import { severalCells } from "../../src/adapters/stores/cells/index.ts";
import type { Cell } from "../../src/adapters/stores/cells/link.ts";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import type { StoreHarness } from "../conformance/store/harness.ts";
import type { PostgresHarness } from "./postgresHarness.ts";
import { silentLog } from "./recorders.ts";

/** Cells called `a`, `b` and so on. */
export function cellsOf(stores: readonly Store[]): readonly Cell[] {
  return stores.map((store, n) => ({ name: String.fromCharCode("a".charCodeAt(0) + n), store }));
}

/** The same of harnesses, composed. */
export const composed = (harnesses: readonly StoreHarness[]) =>
  severalCells(cellsOf(harnesses.map(({ store }) => store)), systemClock, silentLog);

/** Runs work with two cells, `a` and `b`, each a database of its own. @param open see `postgresHarnesses` */
export const twoCells =
  (open: () => Promise<PostgresHarness>) =>
  async (
    work: (cells: { a: PostgresHarness; b: PostgresHarness; store: ReturnType<typeof composed> }) => Promise<void>,
  ): Promise<void> => {
    await using a = await open();
    await using b = await open();
    await work({ a, b, store: composed([a, b]) });
  };
