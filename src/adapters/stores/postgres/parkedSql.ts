import type { TableNames } from "../sql/names.ts";
import { msOf, PARKED_AT } from "./fragments.ts";
import type { Statement } from "./statement.ts";

/** Every statement on parked rows, with the configured names woven in once. */
export function parkedStatements(names: TableNames) {
  const table = names.outboxTable;
  const c = names.outbox;
  /** The index of rows in backoff finds them. */
  const isParked = `o.${c.state} = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;
  /** Found by their ids, whatever the number of parked rows. */
  const isParkedById = `(o.${c.state} || '') = 'pending' AND o.${c.attempt} > 0 AND o.${c.scheduledAt} = ${PARKED_AT}`;
  const unclaimed = `${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL`;

  /** $1 ids. Rows are locked in the order of their sequence; whoever comes second finds them changed, and leaves them. */
  const change = (set: string): string => `
WITH still_parked AS MATERIALIZED (
  SELECT o.${c.id} AS id
  FROM ${table} o
  WHERE o.${c.id} = ANY ($1::uuid[]) AND ${isParkedById}
  ORDER BY o.${c.sequence}
  FOR NO KEY UPDATE OF o
),
changed AS (
  UPDATE ${table} o
  SET ${c.updatedAt} = now(), ${unclaimed}, ${set}
  FROM still_parked p
  WHERE o.${c.id} = p.id
  RETURNING 1
)
SELECT count(*)::int AS changed FROM changed`;

  return {
    /** $1 sequence to begin after, $2 limit, $3 ids, $4 key; null for what is not asked. */
    list: {
      byIndex: true,
      name: "parked.list",
      text: `
WITH parked AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${c.sequence} AS sequence
  FROM ${table} o
  WHERE ${isParked} AND o.${c.sequence} > $1::bigint
    AND ($3::uuid[] IS NULL OR o.${c.id} = ANY ($3::uuid[])) AND ($4::text IS NULL OR o.${c.key}::text = $4::text)
),
first AS MATERIALIZED (SELECT id FROM parked ORDER BY sequence LIMIT $2::int)
SELECT o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, o.${c.key}::text AS key, o.${c.attempt} AS attempt,
  ${msOf(`o.${c.updatedAt}`)} AS updated_at, left(o.${c.lastError}, 200) AS last_error
FROM first f JOIN ${table} o ON o.${c.id} = f.id
ORDER BY o.${c.sequence}`,
    },

    /** As a replay sets rows back, which says why each of these columns is set. */
    retry: {
      byIndex: true,
      name: "parked.retry",
      text: change(
        `${c.attempt} = 0, ${c.scheduledAt} = now(), ${c.createdAt} = coalesce(o.${c.createdAt}, '-infinity')`,
      ),
    },

    /** $2 what stands in front of the last error; null where that is $3 alone. */
    discard: {
      byIndex: true,
      name: "parked.discard",
      text: change(
        `${c.state} = 'dead', ${c.lastError} = CASE WHEN $2::text IS NULL THEN $3::text ELSE concat($2::text, ': ' || o.${c.lastError}) END`,
      ),
    },
  } as const satisfies Record<string, Statement>;
}

export type ParkedStatements = ReturnType<typeof parkedStatements>;
