/**
 * The low-water marks of the outbox, remembered by one process: where statements start, to skip index entries of finished
 * rows that an old transaction keeps alive. They only save work: without them every statement is right, only slower.
 */
export interface LowWater {
  /** The lowest unfinished `sequence` that is not parked, up to a second old. */
  readonly newest: string;
  /** A statement has found an unfinished row at this position. */
  saw(position: string): void;
  /** Reads the next mark. @param intervalMs since the last one; about a second by default */
  refreshIfDue(intervalMs?: number): Promise<void>;
  /** The parameter `lowWater` of a statement: nothing is unfinished below it. */
  bound(): readonly string[];
}

/** For a database in which finished rows leave the indexes with their commit. */
export const NO_LOW_WATER: LowWater = {
  newest: "0",
  saw: () => {},
  refreshIfDue: async () => {},
  bound: () => [],
};

/** Positions are decimal numbers of any length. */
export function lower(a: string, b: string): string {
  return BigInt(a) < BigInt(b) ? a : b;
}

export function higher(a: string, b: string): string {
  return BigInt(a) > BigInt(b) ? a : b;
}
