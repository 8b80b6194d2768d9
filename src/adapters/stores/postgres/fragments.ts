import pg from "pg";
import { PARKED_UNTIL } from "../../../model/rows.ts";
import type { SetBack, TableNames } from "../sql/names.ts";
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

/**
 * A time as whole ms since 1970 (`bigint`): the driver reads times as text in one date style only, and a database or a
 * user may set another. NULL for NULL and `infinity`. In floating point, a third of the cost of `numeric`; half a
 * microsecond compensates its rounding.
 *
 * @param time an expression of a time type
 */
export function msOf(time: string): string {
  return `CASE WHEN isfinite(${time}) THEN floor(date_part('epoch', (${time})::timestamptz) * 1000 + 0.0005)::bigint END`;
}

/** An expression (boolean): the server is a node of Citus. */
export const IS_CITUS = "to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";

/**
 * The only table of a query that orders by its columns. Citus writes a query anew, and a column of an only table without
 * it: `ORDER BY t.id` becomes `ORDER BY id`, which is a result of that name where there is one.
 */
export const ordered = (table: string): string => `${table} CROSS JOIN (SELECT) beside`;

/**
 * A table of one row that is there once all rows of a CTE are locked. In an `UPDATE`, what waits for a lock then throws
 * away no work of triggers.
 */
export const allLocked = (locked: string): string => `(SELECT count(*) FROM ${locked}) AS locked`;

/**
 * A query for `now`, by a clock that is read once the rows of a CTE are locked. `now()` is when the transaction began,
 * which may have waited for a lock since.
 *
 * @param locked the CTE
 */
export const clockBehind = (locked: string): string => `SELECT clock_timestamp() AS now FROM ${allLocked(locked)}`;

/**
 * How long a statement waits for a locked row, where others are to be written with it: it keeps them, and those behind
 * them, from that.
 */
export const ROW_WAIT = { lockTimeoutMs: 500 };

/** `scheduled_at` of a parked row. A column without a time zone holds it in the session's. */
export const PARKED_AT = `timestamptz '${PARKED_UNTIL}'`;

/**
 * An expression that fails the statement unless it has updated all that it should. A trigger of the owner that returns
 * NULL or OLD leaves a row as it is, without an error. Read by `toStoreError`.
 *
 * @param should how many rows, as an expression @param updated how many were
 */
export const unlessSkipped = (should: string, updated: string): string =>
  `substr('', 1, (${updated} >= ${should})::int - 1)`;
/** As `unlessSkipped`, of rows to be inserted. */
export const unlessNotInserted = (should: string, inserted: string): string => `ln((${inserted} >= ${should})::int)`;

export const setBack: SetBack = (table, c, which, newestFirst, more = "") => `
UPDATE ${table} SET ${c.state} = 'pending'${more} WHERE ${c.id} = (
  SELECT f.${c.id} FROM ${table} f WHERE ${which} ORDER BY ${newestFirst} LIMIT 1 FOR UPDATE OF f SKIP LOCKED)
RETURNING ${c.id} AS id`;

/** An expression (jsonb): `SkippedRow`s, of those chosen but not changed; NULL for none. @param changed a query for ids */
export const skippedOf = (chosen: string, key: string, changed: string): string =>
  `(SELECT jsonb_agg(jsonb_build_object('id', s.id, 'key', s.${key}::text)) FROM ${chosen} s WHERE s.id NOT IN (${changed}))`;

/** The same as an expression (`text[]`) of their ids alone. */
export const skippedIds = (chosen: string, changed: string): string =>
  `ARRAY(SELECT s.id::text FROM ${chosen} s WHERE s.id NOT IN (${changed}))`;

/**
 * An expression for a text, without the collation of its column: an owner's columns may have different ones, and two of
 * these in one expression are an error.
 */
export const uncollated = (text: string): string => `(to_jsonb(${text}::text) #>> '{}')`;

/** An expression for the override of a row: an empty one counts as none. */
export function overrideOf({ destinationOverride }: TableNames["outbox"], row: string): string {
  return destinationOverride === null ? "NULL::text" : `nullif(${row}.${destinationOverride}::text, '')`;
}

/** A condition: the row has expired. @param expiresAt the column; null where the table has none */
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
