import type { TableNames } from "../sql/names.ts";
import type { ParkedStatements } from "../sql/parked.ts";
import { allLocked, CHANGE_WAIT, msOf, PARKED_AT, routedColumns } from "./fragments.ts";
import { noteAction } from "./historySql.ts";
import { byIndex, type Statement } from "./statement.ts";

/** Every statement on parked rows. @param isNoting whether changes add to the history */
export function parkedStatements(names: TableNames, isNoting: boolean): ParkedStatements<Statement> {
  const table = names.outboxTable;
  const c = names.outbox;
  const isParked = `o.${c.state} = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;
  /** Found by id, whatever the number of parked rows. */
  const isParkedById = `(o.${c.state} || '') = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;

  /**
   * Rows are locked in the order of their sequence; a second statement finds them changed, and leaves them.
   *
   * @param isChanged over a row as written: a trigger of the owner may leave it as it was
   */
  const change = (declaration: string, set: string, isChanged: string, noted: string, condition: string): Statement =>
    byIndex(declaration, CHANGE_WAIT)`
WITH chosen AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.scheduledAt} AS scheduled_at, now() AS now
  FROM ${table} o
  WHERE o.${c.id} = ANY ($1::uuid[]) AND ${condition}
  ORDER BY o.${c.sequence}
  FOR NO KEY UPDATE OF o
),
written AS (
  UPDATE ${table} o
  SET ${c.updatedAt} = p.now, ${unclaimed}, ${set}
  FROM chosen p, ${allLocked("chosen")}
  WHERE o.${c.id} = p.id
  RETURNING o.${c.id} AS id, o.${c.state} AS state, o.${c.scheduledAt} AS scheduled_at, p.scheduled_at AS was_scheduled_at
),
changed AS (SELECT id FROM written WHERE ${isChanged})${isNoting ? noted : ""}
SELECT count(*)::int AS changed FROM changed`;
  const retry = (name: string, set: string, condition: string): Statement =>
    change(
      `${name}(ids${isNoting ? ", by" : ""})`,
      `${c.scheduledAt} = p.now${set}`,
      "scheduled_at <> was_scheduled_at",
      noteAction(names, "retried", "changed", "$2", "NULL"),
      condition,
    );
  const discard = (name: string, condition: string): Statement =>
    change(
      `${name}(ids, before${isNoting ? ", by, note" : ""})`,
      `${c.state} = 'dead', ${c.lastError} = $2::text || coalesce(': ' || o.${c.lastError}, '')`,
      "state = 'dead'",
      noteAction(names, "discarded", "changed", "$3", "$4"),
      condition,
    );
  const isPending = `(o.${c.state} || '') = 'pending'`;
  const waits = `o.${c.attempt} > 0 AND o.${c.scheduledAt} > now() AND o.${c.scheduledAt} <> ${PARKED_AT}`;

  return {
    /** Null means any. */
    list: byIndex("parked.list(from, limit, ids, key)")`
WITH parked AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.sequence} AS sequence
  FROM ${table} o
  WHERE ${isParked} AND o.${c.sequence} > $1::bigint
    AND ($3::uuid[] IS NULL OR o.${c.id} = ANY ($3::uuid[])) AND ($4::text IS NULL OR o.${c.key}::text = $4::text)
),
first AS MATERIALIZED (SELECT id FROM parked ORDER BY sequence LIMIT $2::int)
SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, ${routedColumns(c, "o")}, o.${c.key}::text AS key, o.${c.attempt} AS attempt,
  ${msOf(`o.${c.updatedAt}`)} AS updated_at, left(o.${c.lastError}, 200) AS last_error
FROM first f JOIN ${table} o ON o.${c.id} = f.id
ORDER BY o.${c.sequence}`,

    /** See `replay.move` for why it sets each of these columns. */
    retry: retry(
      "parked.retry",
      `, ${c.attempt} = 0, ${c.createdAt} = coalesce(o.${c.createdAt}, '-infinity')`,
      isParkedById,
    ),
    hasten: retry("parked.hasten", "", `${isPending} AND ${waits}`),
    discard: discard("parked.discard", isParkedById),
    discardPending: discard("parked.discard pending", isPending),
  };
}
