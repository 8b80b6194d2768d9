import { StoreError } from "../../../model/errors.ts";
import { bisect } from "./bisect.ts";

/** Whether the database refuses one row, for its data or by a rule of the owner: the same statement without that row would pass. */
export function isRefused(error: unknown): error is StoreError {
  return error instanceof StoreError && (error.code === "data" || error.code === "refused");
}

/**
 * Changes rows of which the database refuses some: the others are changed.
 *
 * @param items what names the rows: ids or tokens
 * @param change changes a part of them in one transaction
 * @returns what was refused, in order, with the error of each
 */
export async function changeAroundRefusal<T>(
  items: readonly T[],
  change: (part: readonly T[]) => Promise<void>,
): Promise<ReadonlyMap<T, StoreError>> {
  const refused = new Map<T, StoreError>();
  await bisect(items, async (part) => {
    try {
      await change(part);
      return "done";
    } catch (error) {
      if (!isRefused(error)) throw error;
      const [only] = part;
      if (part.length > 1 || only === undefined) return "split";
      refused.set(only, error);
      return "done";
    }
  });
  return refused;
}
