import type { MessageId } from "../../../model/rows.ts";
import { BEHIND_HELD, type LeftRow, type OnLeft } from "../../../ports/finishedRows.ts";
import type { SqlHistory, WithHistory } from "./history.ts";
import { changeInParts, countOf, type Named, type Row, type StatementRunner, type Values } from "./rows.ts";

/** Changes of outbox rows on request: of parked and of finished ones. */

/** Statements that change the rows `ids` and answer as {@link ChangeAnswer} has it. */
export type Changes<S, Name extends string> = Named<S, Name> & {
  /** For a database whose changes wait for locked rows only so long. */
  readonly whenLocked?: {
    /** Of the rows that no other transaction holds; where order counts, without those of `heldKeys`. */
    readonly free: Named<S, Name>;
    /** Whether a statement has given up waiting for a lock. */
    hasGivenUp(error: unknown): boolean;
  };
};

/** The one row that a change answers. */
interface ChangeAnswer {
  readonly changed: number;
  /** Rows that were to be changed and are not, without an error. Absent where the database cannot tell. */
  readonly skipped?: readonly MessageId[];
  /** Of a statement `free`: rows that another transaction holds. */
  readonly held?: readonly MessageId[];
  /** Of one whose order counts: rows behind such a row in its key, and the keys of the rows held. */
  readonly behind?: readonly MessageId[];
  readonly held_keys?: readonly string[];
}

/**
 * Changes rows, part by part, and notes it in their history. A row that another transaction keeps locked is left: else
 * all of its part would wait for it.
 *
 * @returns a function that runs the statement with values, among them the `ids` of a part, and returns its answer
 * @throws StoreError
 */
export function changing<S, Name extends string>(
  runner: Pick<StatementRunner<S>, "run">,
  history: SqlHistory<S>,
  { plain, noting }: WithHistory<Changes<S, Name>>,
  name: Name,
): (values: Values) => Promise<readonly Row[]> {
  const [whenLocked, notingWhenLocked] = [plain.whenLocked, noting.whenLocked];
  const heldKeys: string[] = [];
  let waits = true;
  return async (values) => {
    const run = (statements: Named<S, Name>): Promise<readonly Row[]> =>
      runner.run(statements[name], { ...values, heldKeys });
    if (whenLocked === undefined || notingWhenLocked === undefined) return await history.noting({ plain, noting }, run);
    if (waits) {
      try {
        return await history.noting({ plain, noting }, run, true);
      } catch (error) {
        if (!whenLocked.hasGivenUp(error)) throw error;
        waits = false;
      }
    }
    const rows = await history.noting({ plain: whenLocked.free, noting: notingWhenLocked.free }, run);
    heldKeys.push(...((rows[0] as ChangeAnswer & Row).held_keys ?? []));
    return rows;
  };
}

/**
 * {@link changeInParts}, for changes on request.
 *
 * @param change changes a part of the rows, in a statement that answers as {@link ChangeAnswer}
 * @param onLeft told of the rows that stay as they are: refused by the database, left by a trigger, or held by another
 *   transaction
 * @returns how many rows were changed
 */
export async function countChanged(
  ids: readonly MessageId[],
  change: (part: readonly MessageId[]) => Promise<readonly Row[]>,
  onLeft: OnLeft = () => {},
): Promise<number> {
  const { results, refused } = await changeInParts(ids, change);
  const left: LeftRow[] = [...refused].map(([id, { message }]) => ({ id, reason: message }));
  for (const [row] of results as readonly (readonly (Row & ChangeAnswer)[])[]) {
    for (const id of row?.skipped ?? []) left.push({ id, reason: LEFT_REASON });
    for (const id of row?.held ?? []) left.push({ id, reason: HELD_REASON, isHeld: true });
    for (const id of row?.behind ?? []) left.push({ id, reason: BEHIND_HELD, isHeld: true });
  }
  if (left.length > 0) onLeft(left);
  return results.reduce((sum, rows) => sum + countOf(rows, "changed"), 0);
}

const LEFT_REASON = "a trigger on the table returns NULL or OLD, or keeps the old values";
const HELD_REASON = "another transaction holds a lock on the row: repeat this when that has ended";
