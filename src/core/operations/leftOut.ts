import type { Cells } from "../../ports/operatorStore.ts";

/**
 * Call it before reads whose answer is to name the cells that it is without.
 *
 * @param cells undefined without cells
 * @returns tells the names of those left out since, or now; see {@link Cells.watch}
 */
export function watchNames(cells: Pick<Cells, "names" | "watch"> | undefined): () => readonly string[] {
  const leftOut = cells?.watch();
  return () => cells?.names.filter((cell) => leftOut?.().some(({ name }) => name === cell)) ?? [];
}
