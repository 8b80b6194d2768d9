import { SUPERSEDED } from "../../../src/ports/bucketStore.ts";
import type { Receiving } from "./actors.ts";
import type { Database } from "./database.ts";
import type { Tables } from "./memoryCell.ts";

/** Where docs/cells.md promises nothing to an installation of which a cell goes back in time. */

/** Whether all processes have read what a cell says. */
export function areHeard(processes: readonly Receiving[], { name, now }: Database): boolean {
  const texts = [...now.buckets.values()].map(({ leaseUntil: _, ...row }) => JSON.stringify(row));
  return processes.every(({ map }) => {
    const rows = map.cells().find((cell) => cell.name === name)?.rows;
    const known = new Set([...(rows?.values() ?? [])].map(({ hasLeaseEnded: _, ...row }) => JSON.stringify(row)));
    return rows !== undefined && known.size === texts.length && texts.every((text) => known.has(text));
  });
}

/** Whether all processes have read something of all cells. */
export function haveHeardAll(processes: readonly Receiving[]): boolean {
  return processes.every(({ map }) => map.cells().every(({ rows }) => rows !== undefined));
}

/**
 * Whether a cell goes back to before another one, which had gone back, was told that it has a bucket: their tables do not
 * tell which of them has more rows then.
 */
export function isUntold(name: string, { buckets }: Tables, databases: readonly Database[]): boolean {
  const rows = databases.flatMap(({ now }) => [...now.buckets.values()]);
  const marks = rows.filter(({ token, otherCell }) => token === SUPERSEDED && otherCell === name);
  // Where it knows of no bucket an operator is told of the cell that has the rows: of one that was told so alone.
  if (buckets.size === 0) return new Set(marks.map(({ bucket }) => bucket)).size < marks.length;
  return marks.some(({ bucket, epoch }) => {
    const its = buckets.get(bucket);
    return its === undefined || its.epoch < epoch || its.state === "arriving";
  });
}

/** Whether a bucket has left a cell, and is not open in the next one. */
export function hasHalfMoves({ name, now }: Database, databases: readonly Database[]): boolean {
  const rows = databases.flatMap(({ now: { buckets } }) => [...buckets.values()]);
  return rows.some((row) => {
    const its = now.buckets.get(row.bucket);
    return row.state === "arriving" && row.otherCell === name && its?.state === "left" && its.epoch === row.epoch;
  });
}
