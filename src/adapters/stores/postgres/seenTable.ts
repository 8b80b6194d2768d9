import type { TableNames } from "../sql/names.ts";
import { literal, positionOf, unquoted, XMAX } from "./lowWater.ts";

/**
 * An expression (`bigint[]` as text): what the snapshot of a statement sees, to be told from what a later one sees. It is the transaction before which all
 * have ended that ever wrote anything on this server, and the time. Null while one runs that began before another which has ended: of its end a snapshot
 * would tell, but not when it gives back a savepoint, and with it the locks on rows that a claim has passed over.
 */
export const SEEN = `(SELECT CASE WHEN pg_snapshot_xmin(s.now) = pg_snapshot_xmax(s.now)
  THEN ARRAY[${XMAX}, ${positionOf("now()")}]::text END FROM (SELECT pg_current_snapshot() AS now) s)`;

/**
 * An expression (boolean): rows of the outbox may be due, or keys free, that were not when a statement saw what {@link SEEN} told.
 *
 * As long as no transaction that wrote has ended since, here or in another database of the server, every row is as it was, none has appeared and none is locked
 * that was free. Only time has gone on: rows that had yet to fall due are among those with `scheduled_at <> created_at`, which have an index. Where they are many,
 * or where that index leaves rows without `created_at` out, nobody looks.
 *
 * @param names already quoted
 * @param seen the text of a parameter that holds what `SEEN` gave
 */
export function mayHaveChanged({ outboxTable: table, outbox: c }: TableNames, seen: string): string {
  const transaction = `(${seen}::bigint[])[1]`;
  const time = `(timestamptz 'epoch' + (${seen}::bigint[])[2] * interval '1 microsecond')`;
  return `
CASE WHEN ${XMAX} <> ${transaction} THEN true
  WHEN NOT (SELECT a.attnotnull FROM pg_attribute a
    WHERE a.attrelid = '${literal(table)}'::regclass AND a.attname = '${literal(unquoted(c.createdAt))}') THEN true
  ELSE (SELECT count(*) > ${MOST_LOOKED_AT} OR coalesce(bool_or(a.scheduled_at > ${time} AND a.scheduled_at <= now()), false)
    FROM (SELECT o.${c.scheduledAt} AS scheduled_at FROM ${table} o
      WHERE o.${c.state} IN ('pending', 'processing') AND o.${c.scheduledAt} <> o.${c.createdAt}
      ORDER BY o.${c.sequence} LIMIT ${MOST_LOOKED_AT + 1}) a) END`;
}

/** Of rows that were retried, replayed or scheduled ahead: takes a millisecond. */
const MOST_LOOKED_AT = 1000;
