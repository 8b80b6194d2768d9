import type { TableNames } from "../sql/names.ts";
import { msOf } from "./fragments.ts";
import type { Statement } from "./statement.ts";

/** Every statement of a replay, with the configured names woven in once. */
export function replayStatements(names: TableNames) {
  const table = names.outboxTable;
  const c = names.outbox;
  const finished = `o.${c.state} IN ('sent', 'dead')`;
  /** Compared as an expression, so that the rows are found by their ids and not by walking an index of everything that is finished. */
  const finishedById = `(o.${c.state} || '') IN ('sent', 'dead')`;
  const columns = `o.${c.id} AS id, o.${c.sequence}::bigint AS sequence, o.${c.topic}::text AS topic, o.${c.key}::text AS key, o.${c.state}::text AS state,
    o.${c.attempt} AS attempt, left(o.${c.lastError}, 200) AS last_error`;

  /** $1 end of the scope, $2 topics, $3 created after, $4 created before, $5 state; null for what is not asked. */
  const matches = (topic: string, createdAt: string, updatedAt: string, state: string): string => `
  ${updatedAt} <= $1::timestamptz
  AND ($2::text[] IS NULL OR ${topic} = ANY ($2::text[]))
  AND ($3::timestamptz IS NULL OR ${createdAt} > $3::timestamptz)
  AND ($4::timestamptz IS NULL OR ${createdAt} < $4::timestamptz)
  AND ($5::text IS NULL OR ${state} = $5::text)`;

  return {
    begin: {
      byIndex: true,
      name: "replay.begin",
      text: `
SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS finished_until,
  coalesce((SELECT max(o.${c.sequence})::bigint FROM ${table} o WHERE ${finished}), 0) AS last_sequence`,
    },

    /**
     * $1 to $5 the filter, $6 sequence to begin after, $7 last sequence, $8 limit. The limit bounds the rows looked at, not those that match.
     * Answers with at least one row, which is all null beside `looked_at` and `last` when nothing matches.
     */
    page: {
      byIndex: true,
      name: "replay.page",
      text: `
WITH walked AS MATERIALIZED (
  SELECT ${columns}, o.${c.createdAt} AS created, o.${c.updatedAt} AS updated
  FROM ${table} o
  WHERE ${finished} AND o.${c.sequence} > $6::bigint AND o.${c.sequence} <= $7::bigint
  ORDER BY o.${c.sequence}
  LIMIT $8::int
)
SELECT n.looked_at, n.last, w.*, ${msOf("w.created")} AS created_at
FROM (SELECT count(*)::int AS looked_at, max(sequence) AS last FROM walked) n
LEFT JOIN walked w ON ${matches("w.topic", "w.created", "w.updated", "w.state")}
ORDER BY w.sequence`,
    },

    /** $1 to $5 the filter, $6 ids */
    find: {
      byIndex: true,
      name: "replay.find",
      text: `
SELECT ${columns}, ${msOf(`o.${c.createdAt}`)} AS created_at
FROM ${table} o
WHERE o.${c.id} = ANY ($6::uuid[]) AND ${finishedById}
  AND ${matches(`o.${c.topic}::text`, `o.${c.createdAt}`, `o.${c.updatedAt}`, `o.${c.state}::text`)}
ORDER BY o.${c.sequence}`,
    },

    /**
     * $1 end of the scope, $2 ids. Rows are locked in the order of their sequence, so that two replays of the same rows wait for each other
     * instead of deadlocking; the one that comes second finds the rows pending, or finished after its scope, and leaves them.
     *
     * `scheduled_at` must be later than the moment of any claim whose snapshot is older than this transaction: such a claim may meet the
     * row when it locks it, and leaves it because it is not due by its own clock. It must also differ from `created_at`, by which claims find what is
     * back below their mark: NULL, which an owner's table may allow, differs from nothing.
     */
    move: {
      byIndex: true,
      name: "replay.move",
      text: `
WITH still_finished AS MATERIALIZED (
  SELECT o.${c.id} AS id
  FROM ${table} o
  WHERE o.${c.id} = ANY ($2::uuid[]) AND ${finishedById} AND o.${c.updatedAt} <= $1::timestamptz
  ORDER BY o.${c.sequence}
  FOR NO KEY UPDATE OF o
),
moved AS (
  UPDATE ${table} o
  SET ${c.state} = 'pending', ${c.attempt} = 0, ${c.scheduledAt} = now(), ${c.updatedAt} = now(), ${c.lastError} = NULL,
      ${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL, ${c.createdAt} = coalesce(o.${c.createdAt}, '-infinity')
  FROM still_finished f
  WHERE o.${c.id} = f.id
  RETURNING 1
)
SELECT count(*)::int AS moved FROM moved`,
    },

    /** $1 ids */
    untried: {
      byIndex: true,
      name: "replay.untried",
      text: `
SELECT count(*)::int AS untried FROM ${table} o
WHERE o.${c.id} = ANY ($1::uuid[]) AND (o.${c.state} || '') = 'pending' AND o.${c.attempt} = 0`,
    },
  } as const satisfies Record<string, Statement>;
}

export type ReplayStatements = ReturnType<typeof replayStatements>;
