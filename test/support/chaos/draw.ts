/** A number between two, as far from the first one as `drawn` in [0, 1] says. */
export function between([low, high]: readonly [number, number], drawn: number): number {
  return low + drawn * (high - low);
}
