import type { ReplayScope } from "../../../ports/finishedRows.ts";

/** The part of a replay's scope that one cell has; undefined where the cell did not answer when it began. */
interface ScopePart {
  readonly name: string;
  readonly scope: ReplayScope | undefined;
}

/** The scopes of several cells in one. Its order numbers the cells in the positions of the replay. */
export function scopeText(parts: readonly ScopePart[]): ReplayScope {
  const texts = parts.map(({ name, scope }) => [name, scope?.finishedUntil ?? null, scope?.lastSequence ?? null]);
  return { finishedUntil: JSON.stringify(texts), lastSequence: OF_CELLS };
}

/** @param scope of {@link scopeText} */
export function readScope({ finishedUntil }: ReplayScope): readonly ScopePart[] {
  const texts = JSON.parse(finishedUntil) as readonly (readonly [string, string | null, string | null])[];
  return texts.map(([name, until, last]) => ({
    name,
    scope: until === null || last === null ? undefined : { finishedUntil: until, lastSequence: last },
  }));
}

export function isOfCells({ lastSequence }: ReplayScope): boolean {
  return lastSequence === OF_CELLS;
}

/** In place of the last sequence: no cell has one below 0. */
const OF_CELLS = "-1";
