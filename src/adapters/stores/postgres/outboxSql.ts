import type { TableNames } from "../sql/names.ts";
import type { LabelStatements, OutboxStatements } from "../sql/outbox.ts";
import { claimStatements } from "./claimSql.ts";
import { labelOf, PARKED_AT } from "./fragments.ts";
import { markRead } from "./lowWater.ts";
import type { OutboxParts } from "./outboxParts.ts";
import { byIndex, type Statement, statement } from "./statement.ts";

/** States are literals: a parameter would defeat the partial indexes. */
export function outboxStatements(names: TableNames, parts: OutboxParts) {
  const {
    table,
    c,
    scheduledAtGivenBack,
    unclaimed,
    isDue,
    isParkedAgain,
    aboveLowWater,
    lowWaterOf,
    lowWaterPastParked,
  } = parts;
  const isPutOff = (row: string): string =>
    `${row}.${c.state} = 'pending' AND ${row}.${c.attempt} > 0 AND ${row}.${c.scheduledAt} > now()`;
  const isBlocking = (row: string): string => `${isPutOff(row)} AND ${row}.${c.key} IS NOT NULL`;

  const topicOfUnlabelled = `CASE WHEN ${labelOf(c, "o")} IS NULL THEN o.${c.topic}::text END`;

  /** The backlog of all. @param pending a query for the number of pending rows */
  const totals = (pending: string): string => `SELECT (${pending}) AS all_pending,
  (SELECT extract(epoch FROM now() - o.${c.createdAt}) * 1000 FROM ${table} o
   WHERE o.${c.state} = 'pending' AND ${isDue} AND isfinite(o.${c.createdAt}) AND ${aboveLowWater("o")} ORDER BY o.${c.sequence} LIMIT 1) AS all_oldest_ms,
  (SELECT count(DISTINCT o.${c.key}) FROM ${table} o WHERE ${isBlocking("o")}) AS blocked_keys,
  (SELECT count(*) FROM ${table} WHERE ${c.state} = 'pending' AND ${c.attempt} > 0 AND ${c.scheduledAt} = ${PARKED_AT}) AS parked`;

  return {
    ...claimStatements(names, parts),
    labels: labelStatements(names),

    /** The low-water mark: the lowest sequence that is unfinished and not parked; see `markRead`. */
    mark: byIndex("outbox.mark(lowWater, afterHighest, lastRead, awaited)", { takesTurns: true, onePlan: true })`
WITH${lowWaterPastParked("$1")}
${markRead(
  table,
  `least(
  (SELECT min(o.${c.sequence}) FROM ${table} o WHERE o.${c.state} = 'pending' AND NOT ${isParkedAgain("o")} AND ${aboveLowWater("o")}),
  (SELECT min(o.${c.sequence}) FROM ${table} o WHERE o.${c.state} = 'processing' AND ${aboveLowWater("o")}))`,
)}`,

    /** Skips locked rows: waiting would delay all renewals. Rows are found once, and then by id, as in `settle`. */
    // Far below the lease: a renewal that hangs must not keep the next one from being tried in time.
    renew: byIndex("outbox.renew(tokens, leaseMs, claimTimeoutMs, lowWater)", { timeoutMs: 4000 })`
WITH${lowWaterPastParked("$4")},
held AS MATERIALIZED (
  SELECT h.${c.id} AS id, least(now() + $2::bigint * interval '1 millisecond', h.${c.claimedAt} + $3::bigint * interval '1 millisecond') AS until
  FROM ${table} h
  WHERE h.${c.state} = 'processing' AND ${aboveLowWater("h")} AND h.${c.claimToken} = ANY ($1::uuid[])
  FOR NO KEY UPDATE OF h SKIP LOCKED
),
renewed AS (
  UPDATE ${table} o SET ${c.leaseExpiresAt} = h.until
  FROM held h
  WHERE o.${c.id} = h.id AND (o.${c.state} || '') = 'processing' AND o.${c.claimToken} = ANY ($1::uuid[])
  RETURNING o.${c.id} AS id, o.${c.leaseExpiresAt} AS lease_expires_at, h.until AS until
)
SELECT id FROM renewed WHERE lease_expires_at >= until - interval '1 second'`,

    expired: byIndex("outbox.expired(limit, claimTimeoutMs, lowWater)", { timeoutMs: 4000, takesTurns: true })`
WITH${lowWaterPastParked("$3")}
SELECT o.${c.id} AS id FROM ${table} o
WHERE o.${c.state} = 'processing' AND ${aboveLowWater("o")}
  AND (o.${c.leaseExpiresAt} < now() OR (o.${c.leaseExpiresAt} IS NULL
    AND coalesce(o.${c.claimedAt}, o.${c.updatedAt}, '-infinity') < now() - $2::bigint * interval '1 millisecond'))
LIMIT $1::int`,

    reclaim: byIndex("outbox.reclaim(ids)", { timeoutMs: 4000 })`
WITH moment AS MATERIALIZED (SELECT now() AS now),
chosen AS MATERIALIZED (
  SELECT o.${c.id} AS id FROM ${table} o
  WHERE o.${c.id} = ANY ($1::uuid[]) AND (o.${c.state} || '') = 'processing' AND coalesce(o.${c.leaseExpiresAt} < now(), true)
  FOR NO KEY UPDATE OF o SKIP LOCKED
),
reclaimed AS (
  UPDATE ${table} t
  SET ${c.state} = 'pending', ${c.updatedAt} = m.now, ${c.scheduledAt} = ${scheduledAtGivenBack("t", "m.now")}, ${unclaimed}
  FROM moment m
  WHERE (t.${c.state} || '') = 'processing' AND t.${c.id} = ANY (ARRAY(SELECT id FROM chosen))
  RETURNING t.${c.id} AS id, t.${c.state} AS state
)
SELECT id FROM reclaimed WHERE state = 'pending'`,

    /** On Citus that of the worker with the table, which gives the leases: so it looks there, for rows that never are. */
    clock: byIndex("outbox.clock", { timeoutMs: 4000, takesTurns: true })`
SELECT extract(epoch FROM now()) * 1000 AS ms,
  (SELECT true FROM ${table} o WHERE o.${c.state} = 'processing' AND o.${c.sequence} < 0 LIMIT 1) AS nothing`,

    backlogTotals: statement("outbox.backlog(lowWater)", { takesTurns: true })`
WITH${lowWaterOf("$1")}
${totals(`SELECT count(*) FROM ${table} o WHERE o.${c.state} = 'pending' AND ${aboveLowWater("o")}`)}`,

    /** At least one row: per destination with unfinished rows, or per topic without one; each has the totals. */
    backlog: statement("outbox.backlog by destination(lowWater)", { takesTurns: true })`
WITH${lowWaterOf("$1")},
unfinished AS MATERIALIZED (
  SELECT ${labelOf(c, "o")} AS destination, ${topicOfUnlabelled} AS topic, count(*) AS pending, 0 AS processing, 0 AS blocked, count(*) FILTER (WHERE ${isDue}) AS due, 0 AS parked_there,
    extract(epoch FROM now() - min(o.${c.createdAt}) FILTER (WHERE ${isDue} AND isfinite(o.${c.createdAt}))) * 1000 AS oldest_ms
  FROM ${table} o WHERE o.${c.state} = 'pending' AND ${aboveLowWater("o")} GROUP BY 1, 2
  UNION ALL
  SELECT ${labelOf(c, "o")}, ${topicOfUnlabelled}, 0, count(*), 0, 0, 0, NULL
  FROM ${table} o WHERE o.${c.state} = 'processing' AND ${aboveLowWater("o")} GROUP BY 1, 2
  UNION ALL
  SELECT ${labelOf(c, "o")}, ${topicOfUnlabelled}, 0, 0, count(DISTINCT o.${c.key}), 0, count(*) FILTER (WHERE o.${c.scheduledAt} = ${PARKED_AT}), NULL
  FROM ${table} o WHERE ${isPutOff("o")} GROUP BY 1, 2
),
destinations AS (
  SELECT destination, topic, sum(pending) AS pending, sum(due) AS due, max(oldest_ms) AS oldest_ms, sum(processing) AS processing, sum(blocked) AS blocked,
    sum(parked_there) AS parked_there
  FROM unfinished GROUP BY destination, topic
)
SELECT d.*, d.pending IS NOT NULL AS is_destination, a.* FROM (${totals("SELECT sum(pending) FROM unfinished")}
) a LEFT JOIN destinations d ON true`,
  } satisfies OutboxStatements<Statement> & { readonly mark: Statement };
}

function labelStatements({ outboxTable, outbox: c }: TableNames): LabelStatements<Statement> | undefined {
  const { destination, routes } = c;
  if (destination === null || routes === null) return undefined;
  const first = (from: string) => `
    SELECT o.${destination}::text AS name FROM ${outboxTable} o
    WHERE o.${c.state} = 'pending' AND o.${destination} ${from} ORDER BY o.${destination}, o.${c.sequence} LIMIT 1`;
  return {
    /**
     * Pages by destination and sequence, whatever the labels: each reads a bounded number of rows. The first page
     * includes rows in delivery, which may become pending again behind their page.
     */
    relabel: byIndex("outbox.relabel(keep, fromDestination, fromSequence, isFirst, limit)")`
WITH page AS MATERIALIZED (
  SELECT o.${c.id} AS id, o.${destination}::text AS label, o.${c.sequence} AS place, o.${routes}::text AS hash
  FROM ${outboxTable} o
  WHERE o.${c.state} = 'pending' AND (o.${destination}, o.${c.sequence}) > ($2::text, $3::bigint)
  ORDER BY o.${destination}, o.${c.sequence} LIMIT $5::int
),
stale AS MATERIALIZED (
  SELECT id FROM page WHERE hash <> ALL ($1::text[])
  UNION ALL
  SELECT o.${c.id} FROM ${outboxTable} o WHERE $4::boolean AND o.${c.state} = 'processing' AND o.${routes}::text <> ALL ($1::text[])
),
locked AS MATERIALIZED (
  SELECT o.${c.id} AS id FROM ${outboxTable} o
  WHERE o.${c.id} = ANY (ARRAY(SELECT id FROM stale)) AND (o.${c.state} || '') IN ('pending', 'processing') AND o.${routes}::text <> ALL ($1::text[])
  FOR NO KEY UPDATE OF o SKIP LOCKED
),
changed AS (
  UPDATE ${outboxTable} o SET ${destination} = NULL, ${routes} = NULL WHERE o.${c.id} = ANY (ARRAY(SELECT id FROM locked)) RETURNING 1
)
SELECT n.looked_at, n.found, l.label AS last_destination, l.place::text AS last_sequence
FROM (SELECT (SELECT count(*) FROM page)::int AS looked_at, (SELECT count(*) FROM stale)::int AS found) n
LEFT JOIN (SELECT label, place FROM page OFFSET greatest((SELECT count(*) FROM page) - 1, 0) LIMIT 1) l ON true`,

    /** One probe of the index for each name. */
    waiting: byIndex("outbox.destinations waiting(limit)")`
WITH RECURSIVE d AS (
  (${first("> ''")})
  UNION ALL
  SELECT (${first("> d.name")}) FROM d WHERE d.name IS NOT NULL
)
SELECT name FROM d WHERE name IS NOT NULL LIMIT $1::int`,
  };
}
