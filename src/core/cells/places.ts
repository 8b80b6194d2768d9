import { BUCKETS } from "../../model/cells.ts";
import { groupBy } from "../../model/groups.ts";
import type { ClaimToken } from "../../model/rows.ts";
import { type BucketAt, type BucketRow, type BucketStore, SUPERSEDED } from "../../ports/bucketStore.ts";

/** Where buckets are, by the tables of all cells: each cell knows only what is, or was, in it. */

export interface Cell {
  readonly name: string;
  readonly store: { readonly buckets: BucketStore };
}

/** The cell that takes the rows of a bucket, with the server that said so, or why none does now. */
export type Place = { readonly cell: string; readonly server?: string | undefined } | { readonly reason: string };

/** What is known of a cell. */
export interface KnownCell {
  readonly name: string;
  /** Of `BucketTable`. */
  readonly server?: string | undefined;
  /** By bucket; undefined before its first answer. */
  readonly rows: ReadonlyMap<number, BucketRow> | undefined;
}

interface Latest {
  readonly cell: KnownCell;
  readonly row: BucketRow;
}

/**
 * What was written last of a bucket: the row of the highest epoch, as each move raises it. Where two cells have it open
 * under one epoch, after an operator's mistake, the first by name counts. What arrives somewhere has not left yet, or
 * the row of the other cell says that it has.
 */
function latestOf(bucket: number, cells: readonly KnownCell[]): Latest | undefined {
  let latest: Latest | undefined;
  for (const cell of cells) {
    const row = cell.rows?.get(bucket);
    if (row === undefined || row.state === "arriving") continue;
    if (latest === undefined || isLater({ cell, row }, latest)) latest = { cell, row };
  }
  return latest;
}

function isLater(one: Latest, other: Latest): boolean {
  if (one.row.epoch !== other.row.epoch) return one.row.epoch > other.row.epoch;
  const [rank, otherRank] = [RANKS[one.row.state], RANKS[other.row.state]];
  if (rank !== otherRank) return rank > otherRank;
  // The cell that the bucket really left has all of its rows.
  const isMarked = one.row.token === SUPERSEDED;
  return isMarked === (other.row.token === SUPERSEDED) ? one.cell.name < other.cell.name : !isMarked;
}

/** A bucket leaves a cell under the epoch under which it is open in the next one, and moves on from there. */
const RANKS = { arriving: -1, left: 0, moving: 1, open: 2 };

export function placeOf(bucket: number, cells: readonly KnownCell[]): Place {
  const latest = latestOf(bucket, cells);
  const orphan = orphanOf(bucket, cells, latest?.row);
  if (orphan !== undefined)
    return {
      reason: `the bucket ${bucket} was to arrive in the cell ${orphan.to} from ${orphan.from}, which ${lostText(bucket, orphan.to)}`,
    };
  if (latest === undefined) {
    const silent = cells.find(({ rows }) => rows === undefined);
    const why =
      silent === undefined
        ? `no cell has it: run svc cells move --bucket ${bucket} --to the one that had it`
        : `the cell ${silent.name} has not answered yet`;
    return { reason: `where the bucket ${bucket} is, is unknown: ${why}` };
  }
  const { cell, row } = latest;
  const { name, server } = cell;
  if (row.state === "open") return { cell: name, server };
  const target = row.otherCell ?? "another cell";
  if (row.state === "moving") return { reason: `the bucket ${bucket} is moving from the cell ${name} to ${target}` };
  const known = cells.find((each) => each.name === row.otherCell);
  let where = "which is not among the cells here";
  if (known?.rows === undefined) where = known === undefined ? where : "which has not answered yet";
  else if (!hasLost(known.rows, row)) where = "where it is not open yet";
  else where = `which ${lostText(bucket, name)}`;
  return { reason: `the bucket ${bucket} has left the cell ${name} for ${target}, ${where}` };
}

const lostText = (bucket: number, keeper: string): string =>
  `knows nothing of it: if that is the right database, run svc cells move --bucket ${bucket} --to ${keeper}`;

/** A bucket between two cells. */
interface MovedRow {
  readonly from: string;
  readonly to: string;
  readonly row: BucketRow;
}

/**
 * What only arrives in a cell, from one that has gone back to before it had that: with its copies the new one has all
 * rows.
 *
 * @param latest its row of {@link latestOf}
 */
function orphanOf(bucket: number, cells: readonly KnownCell[], latest: BucketRow | undefined): MovedRow | undefined {
  let orphan: MovedRow | undefined;
  for (const { name: to, rows } of cells) {
    const row = rows?.get(bucket);
    if (row?.state !== "arriving" || row.epoch <= (orphan?.row.epoch ?? 0)) continue;
    // While it leaves, the other cell has the epoch before, and has not left yet. What a third one was told of that proves
    // nothing: it is the latest only where the other cell has lost it.
    const hasLeft = latest?.state === "left" && (latest.otherCell === to || latest.token === SUPERSEDED);
    if (row.epoch <= (latest?.epoch ?? 0) + (hasLeft ? 0 : 1)) continue;
    const from = cells.find(({ name }) => name === row.otherCell);
    if (from?.rows !== undefined) orphan = { from: from.name, to, row };
  }
  return orphan;
}

/** The cell that has all rows of a bucket, of which the cell that had it, or was to have it, knows nothing. */
export function keptBy(bucket: number, cells: readonly KnownCell[]): string | undefined {
  const latest = latestOf(bucket, cells);
  const orphan = orphanOf(bucket, cells, latest?.row);
  if (orphan !== undefined) return orphan.to;
  if (latest?.row.state !== "left") return undefined;
  const { cell, row } = latest;
  const rows = cells.find(({ name }) => name === row.otherCell)?.rows;
  return rows !== undefined && hasLost(rows, row) ? cell.name : undefined;
}

/** Whether a cell knows nothing of a bucket that has left for it. @param left its row in the old cell */
function hasLost(
  rows: ReadonlyMap<number, BucketRow>,
  { bucket, epoch, token }: Pick<BucketRow, "bucket" | "epoch" | "token">,
): boolean {
  if (token === null) return false;
  const row = rows.get(bucket);
  if (row === undefined || row.epoch < epoch) return true;
  return row.epoch === epoch && row.state === "arriving" && row.token !== token && token !== SUPERSEDED;
}

/** Buckets that have left a cell, and are not open in the next one. */
export interface HalfMove {
  readonly from: string;
  readonly to: string;
  /** Of the move; null for one by an earlier version, which left no note of its copies in the next cell. */
  readonly token: ClaimToken | null;
  readonly buckets: readonly BucketAt[];
}

/** Moves that ended between the two cells, and those of which the new cell knows no more. */
export function halfMoves(cells: readonly KnownCell[]): readonly HalfMove[] {
  return movesOf((bucket) => {
    const latest = latestOf(bucket, cells);
    if (latest?.row.state !== "left" || latest.row.otherCell === null) return undefined;
    return { from: latest.cell.name, to: latest.row.otherCell, row: latest.row };
  });
}

/**
 * Moves whose old cell has gone back to before it had the buckets: the new one may open them. As in {@link lostBy}, not
 * where the old one has none.
 */
export function orphaned(cells: readonly KnownCell[]): readonly HalfMove[] {
  const empty = new Set(cells.filter(({ rows }) => rows?.size === 0).map(({ name }) => name));
  return movesOf((bucket) => {
    const orphan = orphanOf(bucket, cells, latestOf(bucket, cells)?.row);
    return orphan === undefined || empty.has(orphan.from) ? undefined : orphan;
  });
}

/** The buckets of each move together. */
function movesOf(partOf: (bucket: number) => MovedRow | undefined): readonly HalfMove[] {
  const parts: MovedRow[] = [];
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    const part = partOf(bucket);
    if (part !== undefined) parts.push(part);
  }
  const byMove = groupBy(parts, ({ from, to, row }) => JSON.stringify([from, to, row.token]));
  return [...byMove.values()].flatMap((of) =>
    of.slice(0, 1).map(({ from, to, row: { token } }) => ({
      from,
      to,
      token,
      buckets: of.map(({ row: { bucket, epoch } }) => ({ bucket, epoch })),
    })),
  );
}

/** What a cell has, though another one has had it since: a table that has gone back to before a move. */
export function superseded(
  { name, rows }: KnownCell,
  cells: readonly KnownCell[],
): readonly (BucketAt & { readonly cell: string })[] {
  return [...(rows?.values() ?? [])].flatMap(({ bucket, state, epoch }) => {
    if (state !== "open" && state !== "moving") return [];
    const latest = latestOf(bucket, cells);
    if (latest === undefined || latest.row.epoch <= epoch) return [];
    const { row } = latest;
    const cell = row.state === "left" && row.otherCell !== null ? row.otherCell : latest.cell.name;
    return cell === name ? [] : [{ bucket, epoch: row.epoch, cell }];
  });
}

/**
 * Of buckets that have left for a cell, those of which it knows nothing: it has gone back to before they came, and with
 * them went the copies of their rows. A table without any bucket may be that of a wrong database: an operator decides.
 */
export function lostBy(
  { rows }: KnownCell,
  { buckets, token }: Pick<HalfMove, "buckets" | "token">,
): readonly BucketAt[] {
  if (rows === undefined || rows.size === 0) return [];
  return buckets.filter((each) => hasLost(rows, { ...each, token }));
}

/**
 * Two cells whose tables say the same of every bucket. Each move writes something else into the two cells, so one of them
 * is the other under a second name, or a copy of its database. A move between them would end in neither.
 */
export function twinsOf(cells: readonly KnownCell[]): readonly [one: string, other: string] | undefined {
  for (const [n, one] of cells.entries()) {
    const other = cells.slice(n + 1).find(({ rows }) => areAlike(one.rows, rows));
    if (other !== undefined) return [one.name, other.name];
  }
  return undefined;
}

function areAlike(one: KnownCell["rows"], other: KnownCell["rows"]): boolean {
  if (one === undefined || other === undefined || one.size === 0 || one.size !== other.size) return false;
  const areSame = [...one].every(([bucket, { state, epoch, otherCell, token }]) => {
    const its = other.get(bucket);
    return its?.state === state && its.epoch === epoch && its.otherCell === otherCell && its.token === token;
  });
  // Cells that went back are all marked alike: marks alone do not show that two of them are one database.
  return areSame && [...one.values()].some(({ token }) => token !== SUPERSEDED);
}

export const twinsText = ([one, other]: readonly [string, string]): string =>
  `the cells ${one} and ${other} have the same buckets: they are one database under two names, or one is a copy of the other`;

/** Buckets that no mover holds any more. */
export const abandoned = ({ rows }: KnownCell): readonly number[] =>
  [...(rows?.values() ?? [])]
    .filter(({ state, hasLeaseEnded }) => state === "moving" && hasLeaseEnded)
    .map(({ bucket }) => bucket);

/** The epoch for a bucket that no cell has any more: what it left for is not configured, or was deleted. */
export const nextEpoch = (bucket: number, cells: readonly KnownCell[]): number =>
  Math.max(0, ...cells.map(({ rows }) => rows?.get(bucket)?.epoch ?? 0)) + 1;
