import { BUCKETS } from "../../model/cells.ts";
import type { BucketAt, BucketRow, BucketStore } from "../../ports/bucketStore.ts";

/** Where buckets are, by the tables of all cells: each cell knows only what is, or was, in it. */

export interface Cell {
  readonly name: string;
  readonly store: { readonly buckets: BucketStore };
}

/** The cell that takes the rows of a bucket, or why none does now. */
export type Place = { readonly cell: string } | { readonly reason: string };

/** What is known of a cell. */
export interface KnownCell {
  readonly name: string;
  /** By bucket; undefined before its first answer. */
  readonly rows: ReadonlyMap<number, BucketRow> | undefined;
}

interface Latest {
  readonly name: string;
  readonly row: BucketRow;
}

/**
 * What was written last of a bucket: the row of the highest epoch, as each move raises it. Where two cells have it open
 * under one epoch, after an operator's mistake, the first by name counts.
 */
function latestOf(bucket: number, cells: readonly KnownCell[]): Latest | undefined {
  let latest: Latest | undefined;
  for (const { name, rows } of cells) {
    const row = rows?.get(bucket);
    if (row !== undefined && (latest === undefined || isLater({ name, row }, latest))) latest = { name, row };
  }
  return latest;
}

function isLater(one: Latest, other: Latest): boolean {
  if (one.row.epoch !== other.row.epoch) return one.row.epoch > other.row.epoch;
  const [rank, otherRank] = [RANKS[one.row.state], RANKS[other.row.state]];
  return rank === otherRank ? one.name < other.name : rank > otherRank;
}

/** A bucket leaves a cell under the epoch under which it is open in the next one, and moves on from there. */
const RANKS = { left: 0, moving: 1, open: 2 };

export function placeOf(bucket: number, cells: readonly KnownCell[]): Place {
  const latest = latestOf(bucket, cells);
  if (latest === undefined) {
    const silent = cells.find(({ rows }) => rows === undefined);
    const why = silent === undefined ? "no cell has it" : `the cell ${silent.name} has not answered yet`;
    return { reason: `where the bucket ${bucket} is, is unknown: ${why}` };
  }
  const { name, row } = latest;
  if (row.state === "open") return { cell: name };
  const target = row.otherCell ?? "another cell";
  if (row.state === "moving") return { reason: `the bucket ${bucket} is moving from the cell ${name} to ${target}` };
  const known = cells.find((cell) => cell.name === row.otherCell);
  let where = "which is not among the cells here";
  if (known !== undefined) where = known.rows === undefined ? "which has not answered yet" : "where it is not open yet";
  return { reason: `the bucket ${bucket} has left the cell ${name} for ${target}, ${where}` };
}

/** Moves that ended between the two cells: what is to be opened, by the name of the new cell. */
export function halfMoved(cells: readonly KnownCell[]): ReadonlyMap<string, readonly BucketAt[]> {
  const found = new Map<string, BucketAt[]>();
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    const row = latestOf(bucket, cells)?.row;
    if (row?.state !== "left" || row.otherCell === null) continue;
    const buckets = found.get(row.otherCell) ?? [];
    buckets.push({ bucket, epoch: row.epoch });
    found.set(row.otherCell, buckets);
  }
  return found;
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
  return [...one].every(([bucket, { state, epoch, otherCell }]) => {
    const its = other.get(bucket);
    return its?.state === state && its.epoch === epoch && its.otherCell === otherCell;
  });
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
  (latestOf(bucket, cells)?.row.epoch ?? 0) + 1;
