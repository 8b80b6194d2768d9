import type { TableNames } from "../sql/names.ts";
import type { LabelStatements } from "../sql/outbox.ts";
import { byIndex, type Statement } from "./statement.ts";

/** The statements on the labels of waiting rows; undefined for a table without the columns. */
export function labelStatements({ outboxTable, outbox: c }: TableNames): LabelStatements<Statement> | undefined {
  const { destination, routes } = c;
  if (destination === null || routes === null) return undefined;
  const first = (from: string) => `
    SELECT o.${destination}::text AS name FROM ${outboxTable} o
    WHERE o.${c.state} = 'pending' AND o.${destination} ${from} ORDER BY o.${destination}, o.${c.sequence} LIMIT 1`;
  return {
    /**
     * Pages by destination and sequence, whatever the labels: each reads a bounded number of rows. The first page takes
     * those in delivery too, which may be pending again behind the page where they would have been.
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
