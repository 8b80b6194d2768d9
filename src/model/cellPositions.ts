/** Positions over several cells, in one text: sequences and places of a cell mean nothing in another one. */

/** In place of a position: the list has no more. */
export const DONE = "done";

/** @param positions by cell, in the order of the cells; null: at the first row @returns the place in a list, one text */
export function positionsText(positions: readonly (string | null)[]): string {
  return JSON.stringify(positions);
}

/** @returns undefined for a position in one database. @throws SyntaxError for a text that somebody changed */
export function readPositions(text: string): readonly (string | null)[] | undefined {
  return text.startsWith("[") ? JSON.parse(text) : undefined;
}

/** More than any sequence of a cell. */
const SEQUENCES = 2n ** 64n;

/**
 * Orders the rows of several cells: by cell, then by the sequence within it.
 *
 * @param place of the cell; 0 leaves the sequence unchanged
 * @param sequence decimal text, from 0 to 2^64 - 1
 */
export function cellSequence(place: number, sequence: string): string {
  return place === 0 ? sequence : String(BigInt(place) * SEQUENCES + BigInt(sequence));
}

/** @returns what {@link cellSequence} was given */
export function splitSequence(sequence: string): { readonly place: number; readonly sequence: string } {
  const value = BigInt(sequence);
  if (value < SEQUENCES) return { place: 0, sequence };
  return { place: Number(value / SEQUENCES), sequence: String(value % SEQUENCES) };
}
