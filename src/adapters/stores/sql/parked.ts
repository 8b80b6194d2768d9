import type { MessageId } from "../../../model/rows.ts";
import type { ParkedRow, ParkedStore } from "../../../ports/store.ts";
import { noteValues } from "./history.ts";
import { countChanged, dateOf, listedRow, type Named, type Row, type StatementRunner, type Values } from "./rows.ts";

/**
 * The statements on parked rows; changes answer `changed`. In the last error of a discarded row `before` goes before the
 * old one. `discardPending` discards any pending row.
 */
export type ParkedStatements<S> = Named<S, "list" | ParkedChange>;
type ParkedChange = "retry" | "hasten" | "discard" | "discardPending";

/** Parked rows in a SQL database. */
export function parkedStore<S>(runner: StatementRunner<S>, sql: ParkedStatements<S>): ParkedStore {
  const change = (which: ParkedChange, ids: readonly MessageId[], values: Values) =>
    countChanged(ids, (part) => runner.run(sql[which], { ...values, ids: part }));
  const discarding = (by: string, reason: string): Values => ({
    ...noteValues(by, reason),
    before: `discarded by ${by}: ${reason}`,
  });
  return {
    async list({ ids, key }, after, limit) {
      const values = { from: after ?? "0", limit, ids: ids ?? null, key: key ?? null };
      return (await runner.run(sql.list, values)).map(parkedRow);
    },

    retry: (ids, by) => change("retry", ids, noteValues(by, null)),
    hasten: (ids, by) => change("hasten", ids, noteValues(by, null)),
    discard: (ids, by, reason) => change("discard", ids, discarding(by, reason)),
    discardPending: (ids, by, reason) => change("discardPending", ids, discarding(by, reason)),
  };
}

function parkedRow(row: Row): ParkedRow {
  return { ...listedRow(row), parkedAt: dateOf(row.updated_at) };
}
