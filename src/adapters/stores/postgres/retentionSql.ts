import type { TableNames } from "../sql/names.ts";
import { COUNT_TIMEOUT_MS, finishedWalks, type Walk } from "../sql/walks.ts";
import type { Statement } from "./statement.ts";

/** Every statement of retention, with the configured names woven in once. */
export function retentionStatements(names: TableNames) {
  const { sent, dead, inbox } = finishedWalks(names, { text: (literal) => `'${literal}'`, uuidType: "uuid" });

  return {
    /** The newest row of each state that is too old. $1 age (ms) */
    outboxByAge: {
      byIndex: true,
      name: "retention.outbox by age",
      text: `${newest("'sent'", sent, olderThan(sent), "")} UNION ALL ${newest("'dead'", dead, olderThan(dead), "")}`,
    },

    /** The newest row of each state with as many newer ones as are kept. $1 rows to keep */
    outboxByCount: {
      byIndex: true,
      timeoutMs: COUNT_TIMEOUT_MS,
      name: "retention.outbox by count",
      text: `${newest("'sent'", sent, "", KEPT)} UNION ALL ${newest("'dead'", dead, "", KEPT)}`,
    },

    /** $1 age (ms) */
    inboxByAge: {
      byIndex: true,
      name: "retention.inbox by age",
      text: newest("NULL", inbox, olderThan(inbox), ""),
    },

    deleteSent: { byIndex: true, name: "retention.delete sent", text: deleteBatch(sent) },
    deleteDead: { byIndex: true, name: "retention.delete dead", text: deleteBatch(dead) },
    deleteInbox: { byIndex: true, name: "retention.delete from the inbox", text: deleteBatch(inbox) },

    nextSent: { byIndex: true, name: "retention.next sent", text: next(sent) },
    nextDead: { byIndex: true, name: "retention.next dead", text: next(dead) },
    nextInbox: { byIndex: true, name: "retention.next of the inbox", text: next(inbox) },
  } as const satisfies Record<string, Statement>;
}

export type RetentionStatements = ReturnType<typeof retentionStatements>;

const KEPT = " OFFSET $1::bigint";

function olderThan(walk: Walk): string {
  return ` AND r.${walk.time} < now() - $1::bigint * interval '1 millisecond'`;
}

/** The position of the newest row that a condition leaves. As JSON a time has its microseconds, whatever the session's date style. */
function newest(state: string, walk: Walk, condition: string, offset: string): string {
  return `
(SELECT ${state} AS state, to_jsonb(r.${walk.time}) #>> '{}' AS time, r.${walk.tie}::text AS tie
 FROM ${walk.table} r
 WHERE r.${walk.state} IN ${walk.states}${condition}
 ORDER BY r.${walk.time} DESC, r.${walk.tie} DESC
 LIMIT 1${offset})`;
}

/** The position of the first row after $1 and $2, up to $3 and $4. */
function next(walk: Walk): string {
  const position = `(r.${walk.time}, r.${walk.tie})`;
  return `
SELECT to_jsonb(r.${walk.time}) #>> '{}' AS time, r.${walk.tie}::text AS tie
FROM ${walk.table} r
WHERE r.${walk.state} IN ${walk.states}
  AND ${position} > ($1::timestamptz, $2::${walk.tieType}) AND ${position} <= ($3::timestamptz, $4::${walk.tieType})
ORDER BY r.${walk.time}, r.${walk.tie}
LIMIT 1`;
}

/**
 * Deletes the oldest rows of a walk. $1 limit, $2 and $3 position after which it starts, $4 and $5 last position.
 *
 * A row that a replay or another replica holds at this moment is left out, not waited for. One that has changed since the statement began
 * has its state and position checked again when it is locked, and from then on nobody else can change it.
 */
function deleteBatch(walk: Walk): string {
  const position = `(r.${walk.time}, r.${walk.tie})`;
  return `
WITH batch AS MATERIALIZED (
  SELECT r.${walk.id} AS id, r.${walk.time} AS time, r.${walk.tie} AS tie
  FROM ${walk.table} r
  WHERE r.${walk.state} IN ${walk.states}
    AND ${position} > ($2::timestamptz, $3::${walk.tieType}) AND ${position} <= ($4::timestamptz, $5::${walk.tieType})
  ORDER BY r.${walk.time}, r.${walk.tie}
  LIMIT $1::bigint
  FOR UPDATE SKIP LOCKED
),
deleted AS (
  DELETE FROM ${walk.table} r WHERE r.${walk.id} = ANY (ARRAY(SELECT id FROM batch)) RETURNING 1
)
SELECT (SELECT count(*) FROM batch)::int AS found, (SELECT count(*) FROM deleted)::int AS deleted,
  to_jsonb(last.time) #>> '{}' AS time, last.tie::text AS tie
FROM (SELECT time, tie FROM batch ORDER BY time DESC, tie DESC LIMIT 1) last`;
}
