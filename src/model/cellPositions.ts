/**
 * Positions over several cells. Each cell counts for itself: its sequences and places mean nothing in another one. Texts
 * that core and HTTP pass on as they are carry those of every cell.
 */

/** Where a list goes on, by the name of the cell; a cell that is not named begins at its first row. */
export type CellPositions = Readonly<Record<string, string>>;

/** In place of a position: the list has no more. */
export const DONE = "done";

/** Positions as one text for an address: `cells.` and Base64. */
export function encodePositions(positions: CellPositions): string {
  return PREFIX + Buffer.from(JSON.stringify(Object.entries(positions))).toString("base64url");
}

/** @returns undefined for any other text, one that somebody changed included. */
export function decodePositions(text: string): CellPositions | undefined {
  if (!text.startsWith(PREFIX)) return undefined;
  try {
    const entries: unknown = JSON.parse(Buffer.from(text.slice(PREFIX.length), "base64url").toString());
    return Array.isArray(entries) && entries.every(isPosition) ? Object.fromEntries(entries) : undefined;
  } catch {
    return undefined;
  }
}

const PREFIX = "cells.";
/** What {@link encodePositions} returns, as a regular expression. */
export const POSITIONS_PATTERN = "cells\\.[A-Za-z0-9_-]{2,20000}";

function isPosition(entry: unknown): entry is [string, string] {
  return Array.isArray(entry) && entry.length === 2 && entry.every((part) => typeof part === "string");
}

/** More than any sequence of a cell. */
const SEQUENCES = 2n ** 64n;

/**
 * A sequence that orders the rows of several cells: by cell, then by the sequence within it.
 *
 * @param index of the cell; that of the first one leaves its sequences as they are
 * @param sequence decimal text, from 0 to 2^64 - 1
 */
export function cellSequence(index: number, sequence: string): string {
  return index === 0 ? sequence : String(BigInt(index) * SEQUENCES + BigInt(sequence));
}

/** @returns what {@link cellSequence} was given */
export function splitSequence(sequence: string): { readonly index: number; readonly sequence: string } {
  const value = BigInt(sequence);
  if (value < SEQUENCES) return { index: 0, sequence };
  return { index: Number(value / SEQUENCES), sequence: String(value % SEQUENCES) };
}
