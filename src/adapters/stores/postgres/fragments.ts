import { PARKED_UNTIL } from "../../../model/rows.ts";
import { listParts } from "../sql/lists.ts";
import type { SetBack, TableNames } from "../sql/names.ts";

/**
 * A time as whole ms since 1970 (`bigint`): the driver reads times as text in one date style only. NULL for NULL and
 * `infinity`. Floating point costs a third of `numeric`; half a microsecond compensates its rounding.
 */
export function msOf(time: string): string {
  return `CASE WHEN isfinite(${time}) THEN floor(date_part('epoch', (${time})::timestamptz) * 1000 + 0.0005)::bigint END`;
}

/** An expression (boolean): the server is a node of Citus. */
export const IS_CITUS = "to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";

/**
 * The join keeps Citus from rewriting `ORDER BY t.id` of an only table to `ORDER BY id`, which is a result of that name
 * if there is one.
 */
export const ordered = (table: string): string => `${table} CROSS JOIN (SELECT) beside`;

/** A table of one row, once all rows of a CTE are locked: a wait for a lock then throws away no work of triggers. */
export const allLocked = (locked: string): string => `(SELECT count(*) FROM ${locked}) AS locked`;

/** A query for `now` after all rows of a CTE are locked: `now()` is from before a wait for a lock. */
export const clockBehind = (locked: string): string => `SELECT clock_timestamp() AS now FROM ${allLocked(locked)}`;

/** How long a statement waits for a locked row: the other rows of the batch, and those behind them, wait meanwhile. */
export const ROW_WAIT = { lockTimeoutMs: 500 };

/** How long a change of rows on request waits for a locked one, before it fails and is repeated. */
export const CHANGE_WAIT = { lockTimeoutMs: 2000 };

/** `scheduled_at` of a parked row. A column without a time zone holds it in the session's. */
export const PARKED_AT = `timestamptz '${PARKED_UNTIL}'`;

/**
 * An expression that fails the statement, as `skipped`, unless it has written every row that it chose: a trigger of the
 * owner that returns NULL or OLD leaves a row unchanged without an error. `toStoreError` reads it.
 */
export const allWritten = (chosen: string, written: string): string =>
  `substr('', 1, (${written} >= ${chosen})::int - 1)`;

export const setBack: SetBack = (table, c, which, newestFirst, more = "") => `
UPDATE ${table} SET ${c.state} = 'pending'${more} WHERE ${c.id} = (
  SELECT f.${c.id} FROM ${table} f WHERE ${which} ORDER BY ${newestFirst} LIMIT 1 FOR UPDATE OF f SKIP LOCKED)
RETURNING ${c.id} AS id`;

/** A text without its column's collation: two different ones of an owner's columns in one expression are an error. */
export const uncollated = (text: string): string => `(to_jsonb(${text}::text) #>> '{}')`;

/** An expression for the destination that a row has: an empty one counts as none. */
export function labelOf({ destination }: TableNames["outbox"], row: string): string {
  return destination === null ? "NULL::text" : `nullif(${row}.${destination}::text, '')`;
}

export function hashOf({ routes }: TableNames["outbox"], row: string): string {
  return routes === null ? "NULL::text" : `${row}.${routes}::text`;
}

/** Both, by the names that `routedRow` reads. */
export const routedColumns = (c: TableNames["outbox"], row: string): string =>
  `${labelOf(c, row)} AS destination, ${hashOf(c, row)} AS routes`;

/** An expression for the destinations of a message row; NULL for any other row. */
export function listOf({ expandedTo }: Pick<TableNames["outbox"], "expandedTo">, row: string): string {
  return expandedTo === null ? "NULL::text" : `${row}.${expandedTo}::text`;
}

export const listsOf = (names: TableNames) =>
  listParts(names, {
    word: (text) => `'${text}'`,
    hasNoDestination: `${labelOf(names.outbox, "o")} IS NULL`,
    goesTo: (destination) => `o.${names.outbox.destination}::text = ${destination}`,
    one: (column, where) => `(SELECT ${column} FROM ${names.outboxTable} m WHERE ${where} LIMIT 1)`,
  });

/** A condition: the row has expired. @param expiresAt the column; null if the table has none */
export const isExpired = (expiresAt: string | null, row: string): string =>
  expiresAt === null ? "false" : `coalesce(${row}.${expiresAt} <= now(), false)`;

/** An expression: how long it may still be delivered, 0 for no longer, NULL for ever. @param expiresAt as above */
export const expiresInMs = (expiresAt: string | null, row: string): string =>
  expiresAt === null
    ? "NULL::bigint"
    : `CASE WHEN ${isExpired(expiresAt, row)} THEN 0
    WHEN isfinite(${row}.${expiresAt}) THEN floor(date_part('epoch', (${row}.${expiresAt})::timestamptz - now()) * 1000)::bigint END`;
