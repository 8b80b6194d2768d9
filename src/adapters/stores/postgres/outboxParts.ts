import type { TableNames } from "../sql/names.ts";
import type { TopicRoute } from "../sql/routing.ts";
import { history, markBound } from "./lowWater.ts";
import { destinationOf } from "./routing.ts";
import { PARKED_AT } from "./values.ts";

/** Conditions and expressions that the statements on the outbox share, with the configured names woven in once. */
export function outboxParts(names: TableNames, payloadType: string, routes: readonly TopicRoute[]) {
  const table = names.outboxTable;
  const c = names.outbox;
  const payloadText = payloadType === "text" ? `o.${c.payload}` : `o.${c.payload}::text`;
  /** An owner's table may let NULL in, which counts as due. */
  const scheduledAtOf = (row: string): string => `coalesce(${row}.${c.scheduledAt}, '-infinity')`;
  const scheduledAt = scheduledAtOf("o");
  const destinationIn = (row: string): string => destinationOf(routes, `${row}.${c.topic}`);
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;

  /**
   * Of a pending row: its time has come. One that was not scheduled ahead is due from its insert on, whatever the clock
   * says: `now()` is the time at which this transaction began, and its snapshot, taken behind a wait for a lock, also
   * holds rows of transactions that began later. A clock that has been set back makes no difference either. The attempt
   * keeps a retry from being due for its age.
   */
  const isDue = `(${scheduledAt} <= now() OR (coalesce(o.${c.attempt}, 0) = 0 AND o.${c.scheduledAt} <= o.${c.createdAt}))`;
  /**
   * Of a pending row that is not a candidate: it is not scheduled ahead, so the later rows of its key wait for it. When it
   * was inserted, or replayed, its time had come; or it has come by now, by a clock that is read after the snapshot was
   * taken.
   */
  const holdsBackAs = (row: string): string =>
    `(${row}.${c.attempt} > 0 OR ${scheduledAtOf(row)} <= greatest(${row}.${c.createdAt}, ${row}.${c.updatedAt}, clock_timestamp()))`;

  /** Whether a row is among those that statements find below a mark. */
  const isAgain = (row: string): string =>
    `${row}.${c.state} IN ('pending', 'processing') AND ${row}.${c.scheduledAt} <> ${row}.${c.createdAt}`;
  /** Whether a pending row is parked, and found below a mark: one without `created_at` would not be. */
  const isParkedAgain = (row: string): string =>
    `coalesce(${row}.${c.state} = 'pending' AND ${row}.${c.attempt} > 0 AND ${row}.${c.scheduledAt} = ${PARKED_AT} AND ${row}.${c.createdAt} <> ${PARKED_AT}, false)`;

  /**
   * The lowest unfinished row below the first sequence, null when there is none. The mark is up to a second old, and a replay may have set
   * rows below it back to pending since. Such a row has `scheduled_at <> created_at`, which a fresh one has not, so this is one probe of a
   * small index of its own: 0.01 of the 4 ms that a claim takes with 200,000 rows pending. While an old snapshot keeps the index
   * entries of finished rows alive, it reads those that were retried or replayed since: 0.4 s for 200,000, as long as
   * refreshing the mark takes then.
   *
   * @param from the parameter that holds the first sequence
   */
  const againBelow = (from: string): string => `
  SELECT min(o.${c.sequence}) AS sequence FROM ${table} o
  WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint`;
  /**
   * The same without parked rows. They stay unfinished for days: a mark passes them, so that only checks of the order of their keys begin there, which
   * read no more than the rows of one key. Of very many parked rows some are not passed: finding out what they are takes as long as reading them.
   */
  const unparkedBelow = (from: string): string => `
  SELECT coalesce(min(a.sequence) FILTER (WHERE NOT a.is_parked), CASE WHEN count(*) = ${PARKED_PASSED} THEN max(a.sequence) END) AS sequence
  FROM (SELECT o.${c.sequence} AS sequence, ${isParkedAgain("o")} AS is_parked FROM ${table} o
    WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint ORDER BY o.${c.sequence} LIMIT ${PARKED_PASSED}) a`;

  /**
   * The first sequence at which anything unfinished can be, also what is back below the mark, as the CTE `low_water`.
   */
  const lowWaterOf = (lowWater: string, below = againBelow): string => `${history(lowWater)},
known AS MATERIALIZED (SELECT ${markBound(lowWater)} AS sequence),
low_water AS MATERIALIZED (
  SELECT least((SELECT sequence FROM known), (${below("(SELECT sequence FROM known)")})) AS sequence
)`;
  /** The same of rows that are not parked. */
  const lowWaterPastParked = (lowWater: string): string => lowWaterOf(lowWater, unparkedBelow);
  const aboveLowWater = (alias: string): string => `${alias}.${c.sequence} >= (SELECT sequence FROM low_water)`;

  return {
    table,
    c,
    payloadText,
    destinationIn,
    unclaimed,
    isDue,
    holdsBackAs,
    isParkedAgain,
    againBelow,
    unparkedBelow,
    aboveLowWater,
    lowWaterOf,
    lowWaterPastParked,
  };
}

export type OutboxParts = ReturnType<typeof outboxParts>;

/** Parked rows that a mark passes: finding them takes half a millisecond. */
const PARKED_PASSED = 1000;
