import { BUCKETS } from "../../model/cells.ts";
import { groupBy } from "../../model/groups.ts";
import type { CellOverview } from "./cellMap.ts";
import { keptBy, nextEpoch, placeOf } from "./places.ts";
import type { PlannedMove } from "./shares.ts";

/** Where buckets are now, for plans. */

interface Owners {
  /** The cell of each bucket that may be moved; undefined where no cell has it, nor will. */
  readonly owners: ReadonlyMap<number, string | undefined>;
  /** Buckets that move just now, with the reason. */
  readonly moving: ReadonlyMap<number, string>;
}

export function ownersOf(cells: readonly CellOverview[]): Owners {
  const owners = new Map<number, string | undefined>();
  const moving = new Map<number, string>();
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    const place = placeOf(bucket, cells);
    if ("cell" in place) owners.set(bucket, place.cell);
    else if (keptBy(bucket, cells) === undefined && isLost(bucket, cells)) owners.set(bucket, undefined);
    else moving.set(bucket, place.reason);
  }
  return { owners, moving };
}

/** Nothing that runs will open it: no cell has it, or it has left for one that is not configured. */
function isLost(bucket: number, cells: readonly CellOverview[]): boolean {
  const rows = cells.flatMap(({ rows }) => rows?.get(bucket) ?? []);
  const names = cells.map(({ name }) => name);
  return rows.every(
    ({ state, otherCell }) => state === "arriving" || (state === "left" && !names.includes(otherCell ?? "")),
  );
}

/** Those of a plan that have left for a cell that is not configured, by its name. */
export function takenAlong(
  plan: readonly PlannedMove[],
  cells: readonly CellOverview[],
): ReadonlyMap<string, readonly PlannedMove[]> {
  const lost = plan.filter(({ from }) => from === undefined);
  const leftFor = ({ bucket }: PlannedMove) =>
    cells.flatMap(({ rows }) => rows?.get(bucket) ?? []).find(({ state }) => state === "left")?.otherCell ?? "";
  const configured = ["", ...cells.map(({ name }) => name)];
  return new Map([...groupBy(lost, leftFor)].filter(([cell]) => !configured.includes(cell)));
}

/** With the epoch of those that no cell has. */
export const withEpochs = (plan: readonly PlannedMove[], cells: readonly CellOverview[]): readonly PlannedMove[] =>
  plan.map((move) => (move.from === undefined ? { ...move, epoch: nextEpoch(move.bucket, cells) } : move));
