import pg from "pg";
import type { TableNames } from "../sql/names.ts";
import {
  destinationExpression,
  dotsIn,
  hasAny,
  hasSegment,
  isStorable,
  likePattern,
  type PatternPart,
  type Routing,
  type RoutingDialect,
} from "../sql/routing.ts";
import { history, markBound } from "./lowWater.ts";
import { PARKED_AT } from "./values.ts";

/** Conditions and expressions that the statements on the outbox share. */
export function outboxParts(names: TableNames, payloadType: string, routing: Routing) {
  const table = names.outboxTable;
  const c = names.outbox;
  const payloadText = payloadType === "text" ? `o.${c.payload}` : `o.${c.payload}::text`;
  /** An owner's table may allow NULL, which counts as due. */
  const scheduledAtOf = (row: string): string => `coalesce(${row}.${c.scheduledAt}, '-infinity')`;
  const scheduledAt = scheduledAtOf("o");
  const destinationIn = (row: string): string => destinationOf(routing, c, row);
  /**
   * `scheduled_at` of a claimed row that is released. Its time had come when it was claimed; after a clock set back it
   * is now: a time ahead of `updated_at` would pass for scheduled ahead, and later rows of its key would go first.
   */
  const scheduledAtGivenBack = (row: string): string =>
    `CASE WHEN ${row}.${c.scheduledAt} > now() THEN now() ELSE ${row}.${c.scheduledAt} END`;
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
  };
}

export type OutboxParts = ReturnType<typeof outboxParts>;

/** Parked rows that a mark passes: finding them takes half a millisecond. */
const PARKED_PASSED = 1000;

/** An expression for the override of a row: an empty one counts as none. */
export function overrideOf({ destinationOverride }: TableNames["outbox"], row: string): string {
  return destinationOverride === null ? "NULL::text" : `nullif(${row}.${destinationOverride}::text, '')`;
}

/** A condition: it is no longer to be delivered. @param expiresAt the column; null where the table has none */
export const isExpired = (expiresAt: string | null, row: string): string =>
  expiresAt === null ? "false" : `coalesce(${row}.${expiresAt} <= now(), false)`;

/** An expression: how long it may still be delivered, 0 for no longer, NULL for ever. @param expiresAt as above */
export const expiresInMs = (expiresAt: string | null, row: string): string =>
  expiresAt === null
    ? "NULL::bigint"
    : `CASE WHEN ${isExpired(expiresAt, row)} THEN 0
    WHEN isfinite(${row}.${expiresAt}) THEN floor(date_part('epoch', (${row}.${expiresAt})::timestamptz - now()) * 1000)::bigint END`;

/** An expression for the destination of a row; exact for every pattern. The topic may have any type. */
export function destinationOf(routing: Routing, c: TableNames["outbox"], row: string): string {
  const override = c.destinationOverride === null ? null : `(${overrideOf(c, row)} COLLATE "C")`;
  return destinationExpression(routing, `(${row}.${c.topic}::text COLLATE "C")`, override, POSTGRES);
}

const literal = (text: string): string => pg.escapeLiteral(text).trim();

/** Cheap tests where possible: a claim may test some thousand rows. */
const POSTGRES: RoutingDialect = {
  literal,
  test(topic, parts) {
    return { condition: conditionOf(topic, parts), isExact: true };
  },
};

function conditionOf(topic: string, parts: readonly PatternPart[]): string {
  const [first, second] = parts;
  const isExpressible = parts.every((part) => part.kind !== "text" || isStorable(part.text));
  if (first === undefined) return `${topic} = ''`;
  if (isExpressible && first.kind === "text" && second === undefined) return `${topic} = ${literal(first.text)}`;
  if (first.kind === "any" && second === undefined) return `${topic} IS NOT NULL`;
  if (isExpressible && first.kind === "text" && second?.kind === "any" && parts.length === 2) {
    return `starts_with(${topic}, ${literal(first.text)})`;
  }
  const like = `${topic} LIKE ${literal(likePattern(parts, (text) => text.replace(/[\\%_]/g, "\\$&")))}`;
  if (!hasSegment(parts) || !isExpressible) return like;
  if (!hasAny(parts)) return `${like} AND length(${topic}) - length(replace(${topic}, '.', '')) = ${dotsIn(parts)}`;
  return `${like} AND ${topic} ~ ${literal(`^${parts.map(regularExpressionOf).join("")}$`)}`;
}

/** By default `.` and brackets match line breaks too, and `$` the end of the text alone. */
function regularExpressionOf(part: PatternPart): string {
  if (part.kind === "text")
    return part.text.replace(/[^\p{L}\p{N}\s]/gu, (character) =>
      character.charCodeAt(0) < 128 ? `\\${character}` : character,
    );
  return part.kind === "any" ? ".*" : "[^.]+";
}
