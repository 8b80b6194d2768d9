import { isRefused } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type { OnLeft } from "../../../ports/finishedRows.ts";
import type { ParkedRow, ParkedStore } from "../../../ports/store.ts";
import { type Changes, changing, countChanged } from "./changes.ts";
import { noteValues, type SqlHistory, type WithHistory } from "./history.ts";
import { dateOf, listedRow, type Named, type Row, SHORT_REASON, type StatementRunner } from "./rows.ts";

/**
 * The statements on parked rows. In the last error of a discarded row `before` goes before the old one; where it is null,
 * `whole` replaces it. `discardPending` discards any pending row.
 */
export type ParkedStatements<S> = Named<S, "list"> & Changes<S, ParkedChange>;
export type ParkedChange = "retry" | "hasten" | "discard" | "discardPending";

/** Parked rows in a SQL database. */
export function parkedStore<S>(
  runner: StatementRunner<S>,
  statements: WithHistory<ParkedStatements<S>>,
  history: SqlHistory<S>,
): ParkedStore {
  const changes = (which: ParkedChange) => changing(runner, history, statements, which);
  const retry = async (
    which: "retry" | "hasten",
    ids: readonly MessageId[],
    by: string,
    onLeft: OnLeft | undefined,
  ): Promise<number> => {
    const change = changes(which);
    return await countChanged(ids, (part) => change({ ids: part, ...noteValues(by, null) }), onLeft);
  };
  const discard = async (
    which: "discard" | "discardPending",
    ids: readonly MessageId[],
    by: string,
    reason: string,
    onLeft: OnLeft | undefined,
  ): Promise<number> => {
    const note = noteValues(by, reason);
    const change = changes(which);
    const discardPart = async (part: readonly MessageId[]): Promise<readonly Row[]> => {
      const values = { ids: part, ...note };
      try {
        return await change({ ...values, before: `discarded by ${by}: ${reason}`, whole: null });
      } catch (error) {
        if (!isRefused(error) || part.length > 1) throw error;
        // An owner's column may be too narrow for the reason.
        return await change({ ...values, before: null, whole: SHORT_REASON });
      }
    };
    return await countChanged(ids, discardPart, onLeft);
  };
  return {
    async list({ ids, key }, after, limit) {
      const values = { from: after ?? "0", limit, ids: ids ?? null, key: key ?? null };
      return (await runner.run(statements.plain.list, values)).map(parkedRow);
    },

    retry: (ids, by, onLeft) => retry("retry", ids, by, onLeft),
    hasten: (ids, by, onLeft) => retry("hasten", ids, by, onLeft),

    discard: (ids, by, reason, onLeft) => discard("discard", ids, by, reason, onLeft),
    discardPending: (ids, by, reason, onLeft) => discard("discardPending", ids, by, reason, onLeft),
  };
}

function parkedRow(row: Row): ParkedRow {
  return { ...listedRow(row), parkedAt: dateOf(row.updated_at) };
}
