/** Which buckets go where, so that few move. */

export interface PlannedMove {
  readonly bucket: number;
  /** The name of the cell where it is open; undefined where no cell has it. */
  readonly from: string | undefined;
  readonly to: string;
  /** Of one that no cell has: under which it is opened, later than any that it had. */
  readonly epoch?: number | undefined;
}

/**
 * Equal shares for cells.
 *
 * @param owners the cell of each bucket; undefined where no cell has it
 * @param cells those that are to have buckets; others lose all of theirs
 */
export function equalShares(
  owners: ReadonlyMap<number, string | undefined>,
  cells: readonly string[],
): readonly PlannedMove[] {
  if (cells.length === 0) return [];
  const held = new Map(cells.map((cell) => [cell, [] as number[]]));
  const free: { bucket: number; from: string | undefined }[] = [];
  for (const [bucket, owner] of owners) {
    const own = owner === undefined ? undefined : held.get(owner);
    if (own === undefined) free.push({ bucket, from: owner });
    else own.push(bucket);
  }
  const least = Math.floor(owners.size / cells.length);
  // One more each where the number does not divide: for those that have the most already.
  const byCount = cells.toSorted((a, b) => (held.get(b)?.length ?? 0) - (held.get(a)?.length ?? 0));
  const shares = new Map(byCount.map((cell, n) => [cell, least + (n < owners.size % cells.length ? 1 : 0)]));
  for (const [cell, own] of held) {
    for (const bucket of own.slice(shares.get(cell) ?? 0)) free.push({ bucket, from: cell });
  }
  return cells.flatMap((cell) => {
    const missing = (shares.get(cell) ?? 0) - (held.get(cell)?.length ?? 0);
    return missing <= 0 ? [] : free.splice(0, missing).map(({ bucket, from }) => ({ bucket, from, to: cell }));
  });
}
