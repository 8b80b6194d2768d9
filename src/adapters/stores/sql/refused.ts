import { StoreError } from "../../../model/errors.ts";
import { bisect } from "./bisect.ts";

/** What is stored where the database refuses the reason itself: an owner's column may be narrow. */
export const SHORT_REASON = "reason not storable";

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

/**
 * Rejects rows of a pull client's claim of which the database refuses some: the others are rejected. What it refuses
 * stays under the claim until its lease ends.
 *
 * @param ids oldest first
 * @param reject rejects a part of them in one transaction; whether it also gives back the rows behind them, which may be
 * the refused ones
 * @returns what became of the rows
 * @throws StoreError of a refused row when all are
 */
export async function rejectAroundRefusal<I, R>(
  ids: readonly I[],
  reject: (part: readonly I[], givesBackOthers: boolean) => Promise<readonly R[]>,
): Promise<readonly R[]> {
  const rows: R[] = [];
  // The last ones first: the rows behind a part are those that the client did not name, and those that were refused.
  const refused = await changeAroundRefusal(ids.toReversed(), async (part) => {
    const rejected = await reject(part, true).catch((error: unknown) => {
      if (!isRefused(error) || part.length > 1) throw error;
      return reject(part, false);
    });
    rows.push(...rejected);
  });
  const [refusal] = refused.values();
  if (rows.length === 0 && refusal !== undefined) throw refusal;
  return rows;
}
