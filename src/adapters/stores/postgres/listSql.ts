import { deliveryId } from "../../../model/deliveries.ts";
import type { Expansion } from "../../../ports/store.ts";
import type { TableNames } from "../sql/names.ts";
import type { ListStatements } from "../sql/outboxClaims.ts";
import type { Values } from "../sql/rows.ts";
import { allWritten } from "./fragments.ts";
import { ENTRY_PARAMETERS, noteSettled } from "./historySql.ts";
import type { OutboxParts } from "./outboxParts.ts";
import { byIndex, type Statement, textArray, uuidArray } from "./statement.ts";

/** The statements that make the deliveries of messages; undefined for a table without the columns. */
export function listStatements(names: TableNames, parts: OutboxParts): ListStatements<Statement> | undefined {
  const { table, c, payload, hasLists, claimedColumns } = parts;
  const { messageSequence, expandedTo, destination, expiresAt } = c;
  if (!hasLists || messageSequence === null || expandedTo === null || destination === null) return undefined;
  const isWaiting = `(o.${c.state} || '') = 'pending' AND o.${destination} IS NULL`;
  const copied = [c.topic, c.key, c.maxAttempts, c.createdAt, ...(expiresAt === null ? [] : [expiresAt])];

  /**
   * Locks messages in the order of the sequence, skipping any that another process has locked. The deliveries of a
   * message that has failed, as a row of another route, are its retry: they are due at once.
   */
  const expand = (noted: string): string => `
WITH given AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[]) AS g(id, expanded_to)),
messages AS MATERIALIZED (
  SELECT o.${c.id} AS "its id", o.${c.sequence} AS "its sequence", ${copied.map((column) => `o.${column}`).join(", ")},
    CASE WHEN o.${c.attempt} > 0 THEN o.${c.createdAt} ELSE o.${c.scheduledAt} END AS "due at", now() AS "now"
  FROM ${table} o
  WHERE o.${c.id} = ANY ($1::uuid[]) AND ${isWaiting}
  FOR NO KEY UPDATE OF o SKIP LOCKED
),
made AS (
  INSERT INTO ${table} (${c.id}, ${messageSequence}, ${copied.join(", ")}, ${c.scheduledAt}, ${destination}, ${c.state}, ${c.lastError}, ${c.payload})
  SELECT d.id, m."its sequence", ${copied.map((column) => `m.${column}`).join(", ")}, m."due at", d.destination, d.state, d.reason, NULL
  FROM messages m JOIN unnest($3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[]) AS d(message, id, destination, state, reason) ON d.message = m."its id"
  ORDER BY m."its sequence"
  RETURNING 1
),
expanded AS (
  UPDATE ${table} o SET ${c.state} = 'sent', ${c.updatedAt} = m."now", ${expandedTo} = g.expanded_to
  FROM messages m JOIN given g ON g.id = m."its id"
  WHERE o.${c.id} = m."its id"
  RETURNING o.${c.id} AS id, o.${c.state} AS state
)${noted}
SELECT e.id, ${allWritten(`(SELECT count(*) FROM messages m JOIN unnest($3::uuid[]) d ON d = m."its id")`, "(SELECT count(*) FROM made)")} AS all_made,
  ${allWritten("(SELECT count(*) FROM messages)", "(SELECT count(*) FROM expanded WHERE state = 'sent')")} AS all_expanded
FROM (SELECT) one LEFT JOIN expanded e ON true`;
  const entries = noteSettled(names, "SELECT id FROM expanded", EXPAND_PARAMETERS.split(", ").length + 1);

  return {
    expand: {
      plain: byIndex(`outbox.expand(${EXPAND_PARAMETERS})`)(expand("")),
      noting: byIndex(`outbox.expand with history(${EXPAND_PARAMETERS}, ${ENTRY_PARAMETERS})`)(
        expand(`,\nnoted AS (${entries})`),
      ),
    },
    toExpand: byIndex("outbox.messages to expand(ids, maxBytes)")`
WITH found AS MATERIALIZED (
  SELECT o.*, ${payload.bytes} AS bytes FROM ${table} o WHERE o.${c.id} = ANY ($1::uuid[]) AND ${isWaiting}
),
o AS (
  SELECT f.*, sum(f.bytes) OVER (ORDER BY f.${c.sequence}) - f.bytes AS bytes_before FROM found f
)
SELECT ${claimedColumns.map(([name, value]) => `${value} AS ${name}`).join(", ")} FROM o WHERE o.bytes_before < $2::bigint ORDER BY sequence`,
    valuesOf,
  };
}

function valuesOf(expansions: readonly Expansion[]): Values {
  const deliveries = expansions.flatMap(({ id, deliveries }) =>
    deliveries.map((each) => ({ ...each, message: id, id: deliveryId(id, each.destination) })),
  );
  return {
    ids: uuidArray(expansions.map(({ id }) => id)),
    expandedTo: textArray(
      expansions.map((each) => JSON.stringify(each.deliveries.map(({ destination }) => destination))),
    ),
    messages: uuidArray(deliveries.map(({ message }) => message)),
    deliveryIds: uuidArray(deliveries.map(({ id }) => id)),
    destinations: textArray(deliveries.map(({ destination }) => destination)),
    states: textArray(deliveries.map(({ isDead }) => (isDead ? "dead" : "pending"))),
    reasons: textArray(deliveries.map(({ reason }) => reason)),
  };
}

const EXPAND_PARAMETERS = "ids, expandedTo, messages, deliveryIds, destinations, states, reasons";
