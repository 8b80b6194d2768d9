import type { MessageId } from "../../../model/rows.ts";
import { changeAroundRefusal, isRefused, SHORT_REASON } from "./refused.ts";

/**
 * Changes parked rows of which the database refuses some: the others are changed.
 *
 * @param change changes a part of them in one transaction; gives their number
 * @returns how many were changed
 * @throws StoreError when all are refused: whoever asked has to be told why
 */
export async function changeParked(
  ids: readonly MessageId[],
  change: (part: readonly MessageId[]) => Promise<number>,
): Promise<number> {
  let changed = 0;
  const refused = await changeAroundRefusal(ids, async (part) => {
    changed += await change(part);
  });
  const [refusal] = refused.values();
  if (refusal !== undefined && refused.size === ids.length) throw refusal;
  return changed;
}

/**
 * The same for rows that become dead, with a short reason where the database refuses the note: an owner's column may be narrow.
 *
 * @param discard `before` is to stand in front of the last error; where it is null, `whole` takes its place
 */
export async function discardParked(
  ids: readonly MessageId[],
  note: string,
  discard: (part: readonly MessageId[], before: string | null, whole: string | null) => Promise<number>,
): Promise<number> {
  return await changeParked(ids, async (part) => {
    try {
      return await discard(part, note, null);
    } catch (error) {
      if (!isRefused(error) || part.length > 1) throw error;
      return await discard(part, null, SHORT_REASON);
    }
  });
}
