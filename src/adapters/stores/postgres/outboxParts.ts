import type { TableNames } from "../sql/names.ts";
import { expiresInMs, hashOf, labelOf, msOf, PARKED_AT } from "./fragments.ts";
import { markBound } from "./lowWater.ts";
import { payloadParts } from "./payloadParts.ts";

/** Conditions and expressions that the statements on the outbox share. */
export function outboxParts(names: TableNames, payloadType: string) {
  const table = names.outboxTable;
  const c = names.outbox;
  const payload = payloadParts("o", c, payloadType);
  /** An owner's table may allow NULL, which counts as due. */
  const scheduledAtOf = (row: string): string => `coalesce(${row}.${c.scheduledAt}, '-infinity')`;
  const scheduledAt = scheduledAtOf("o");
  /**
   * `scheduled_at` of a claimed row that is released. Its time had come when it was claimed; after a clock set back it
   * is now: a time ahead of `updated_at` would pass for scheduled ahead, and later rows of its key would go first.
   */
  const scheduledAtGivenBack = (row: string, now: string): string =>
    `CASE WHEN ${row}.${c.scheduledAt} > ${now} THEN ${now} ELSE ${row}.${c.scheduledAt} END`;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;

  /**
   * Of a pending row: it is due. One that was not scheduled ahead is due from its insert, whatever the clock: `now()`
   * is when this transaction began, and its snapshot, taken after a wait for a lock, also holds rows of later
   * transactions; and a clock may be set back. The attempt excludes retries, which are not due by their age.
   */
  const isDue = `(${scheduledAt} <= now() OR (coalesce(o.${c.attempt}, 0) = 0 AND o.${c.scheduledAt} <= o.${c.createdAt}))`;
  /**
   * Of a pending row that is not a candidate: it is not scheduled ahead, so the later rows of its key wait for it. It
   * was due when inserted or replayed, or is due by a clock read after the snapshot.
   */
  const holdsBackAs = (row: string): string =>
    `(${row}.${c.attempt} > 0 OR ${scheduledAtOf(row)} <= greatest(${row}.${c.createdAt}, ${row}.${c.updatedAt}, clock_timestamp()))`;

  /** Whether a row is among those found below a mark. */
  const isAgain = (row: string): string =>
    `${row}.${c.state} IN ('pending', 'processing') AND ${row}.${c.scheduledAt} <> ${row}.${c.createdAt}`;
  /** Whether a pending row is parked, and found below a mark: one without `created_at` would not be. */
  const isParkedAgain = (row: string): string =>
    `coalesce(${row}.${c.state} = 'pending' AND ${row}.${c.attempt} > 0 AND ${row}.${c.scheduledAt} = ${PARKED_AT} AND ${row}.${c.createdAt} <> ${PARKED_AT}, false)`;

  /**
   * The lowest unfinished row below the first sequence, or null. The mark is up to a second old, and a replay may have
   * set rows below it back to pending. Such a row has `scheduled_at <> created_at`, so this is one probe of a small
   * index: 0.01 of the 4 ms of a claim with 200,000 rows pending. While an old snapshot keeps the index entries of
   * finished rows alive, it reads those retried or replayed since: 0.4 s for 200,000, as long as refreshing the mark.
   *
   * @param from the parameter that holds the first sequence
   */
  const againBelow = (from: string): string => `
  SELECT min(o.${c.sequence}) AS sequence FROM ${table} o
  WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint`;
  /**
   * The same without parked rows, which stay unfinished for days: only checks of their keys' order begin below the
   * mark. Beyond a limit of parked rows it passes no more.
   */
  const unparkedBelow = (from: string): string => `
  SELECT coalesce(min(a.sequence) FILTER (WHERE NOT a.is_parked), CASE WHEN count(*) = ${PARKED_PASSED} THEN max(a.sequence) END) AS sequence
  FROM (SELECT o.${c.sequence} AS sequence, ${isParkedAgain("o")} AS is_parked FROM ${table} o
    WHERE ${isAgain("o")} AND o.${c.sequence} < ${from}::bigint ORDER BY o.${c.sequence} LIMIT ${PARKED_PASSED}) a`;

  /** The CTE `low_water`: the first sequence at which anything unfinished can be, below the mark too. */
  const lowWaterOf = (lowWater: string, below = againBelow): string => `
known AS MATERIALIZED (SELECT ${markBound(lowWater)} AS sequence),
low_water AS MATERIALIZED (
  SELECT least((SELECT sequence FROM known), (${below("(SELECT sequence FROM known)")})) AS sequence
)`;
  /** The same of rows that are not parked. */
  const lowWaterPastParked = (lowWater: string): string => lowWaterOf(lowWater, unparkedBelow);
  const aboveLowWater = (alias: string): string => `${alias}.${c.sequence} >= (SELECT sequence FROM low_water)`;

  /**
   * Of an unfinished row: the later rows of its key wait for it.
   *
   * @param heldTokens the parameter with the tokens of claims that this process holds
   * @param destination of the later rows; undefined if it does not count
   */
  const stops = (row: string, heldTokens: string, destination?: string): string =>
    `(${row}.${c.state} = 'processing' OR ${holdsBackAs(row)})
      AND NOT (${row}.${c.state} = 'processing' AND coalesce(${row}.${c.claimToken} = ANY (${heldTokens}::uuid[]), false)${
        destination === undefined ? "" : ` AND coalesce(${row}.${c.destination} = ${destination}, true)`
      })`;
  /** The columns of a claimed row `o`, by the names that `claimedRow` reads. */
  const claimedColumns = [
    ["id", `o.${c.id}`],
    ["sequence", `o.${c.sequence}::bigint`],
    ["topic", `o.${c.topic}::text`],
    ["key", `o.${c.key}::text`],
    ["aggregate_type", `o.${c.aggregateType}::text`],
    ...payload.columns,
    ["attempt", `o.${c.attempt}`],
    ["max_attempts", `o.${c.maxAttempts}`],
    ["created_at", msOf(`o.${c.createdAt}`)],
    ["destination", labelOf(c, "o")],
    ["routes", hashOf(c, "o")],
    ["expires_in_ms", expiresInMs(c.expiresAt, "o")],
  ] as const;

  return {
    table,
    c,
    payload,
    scheduledAtGivenBack,
    unclaimed,
    isDue,
    holdsBackAs,
    isParkedAgain,
    againBelow,
    unparkedBelow,
    aboveLowWater,
    lowWaterOf,
    lowWaterPastParked,
    stops,
    claimedColumns,
  };
}

export type OutboxParts = ReturnType<typeof outboxParts>;

/** Parked rows that a mark passes: finding them takes half a millisecond. */
const PARKED_PASSED = 1000;
