import { BUCKETS } from "../../model/cells.ts";
import { groupBy } from "../../model/groups.ts";
import type { BucketRow } from "../../ports/bucketStore.ts";
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
  return rowsOf(bucket, cells).every((row) => row.state === "arriving" || hasGone(row, cells));
}

/** Buckets of a plan that no cell has, by the cell that is not configured for which they have left; undefined for none. */
export const takenAlong = (plan: readonly PlannedMove[], cells: readonly CellOverview[]) =>
  groupBy(
    plan.filter(({ from }) => from === undefined),
    ({ bucket }) => rowsOf(bucket, cells).find((row) => hasGone(row, cells))?.otherCell ?? undefined,
  );

const rowsOf = (bucket: number, cells: readonly CellOverview[]): readonly BucketRow[] =>
  cells.flatMap(({ rows }) => rows?.get(bucket) ?? []);

const hasGone = ({ state, otherCell }: BucketRow, cells: readonly CellOverview[]): boolean =>
  state === "left" && !cells.some(({ name }) => name === otherCell);

/** With the epoch of those that no cell has. */
export const withEpochs = (plan: readonly PlannedMove[], cells: readonly CellOverview[]): readonly PlannedMove[] =>
  plan.map((move) => (move.from === undefined ? { ...move, epoch: nextEpoch(move.bucket, cells) } : move));
