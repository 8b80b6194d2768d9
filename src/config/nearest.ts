import { distance } from "fastest-levenshtein";

/**
 * The known name that somebody probably meant.
 *
 * @param name as it was written
 * @param known the names there are
 * @returns the nearest one, letter case and underscores aside; undefined when none is near
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const plain = (text: string) => text.toLowerCase().replaceAll(/[_-]/g, "");
  let best: string | undefined;
  // A third of the letters may be wrong: more makes a suggestion that puzzles rather than helps.
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const found = distance(plain(name), plain(candidate));
    if (found < bestDistance) {
      best = candidate;
      bestDistance = found;
    }
  }
  return best;
}

/** The nearest name as the end of a sentence: `; did you mean "orders"?`, or nothing when none is near. */
export function didYouMean(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? "" : `; did you mean "${nearest}"?`;
}
