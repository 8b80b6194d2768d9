import type { TableNames } from "../sql/names.ts";
import type { ColumnTypes } from "./columns.ts";
import { allWritten, uncollated } from "./fragments.ts";
import type { OutboxParts } from "./outboxParts.ts";
import type { RelayParts } from "./relaySql.ts";
import { byIndex, type Statement } from "./statement.ts";

/**
 * The statement of a receipt that relays what it stores, and claims up to `limit` of it. It does the work of three: one
 * version of each row is written instead of two or three, and each index is written once.
 *
 * The client renders topic and headers: in the statement they cost the database a sixth of all that it does for a message.
 *
 * @returns a statement that answers with one row: `all_stored`; and `relayed`, the ids of the rows that were relayed, or
 *   null for all. The claimed rows follow, in the order of their sequence, with the columns that `claimedRow` reads.
 */
export function relayedReceiptStatement(
  names: TableNames,
  types: ColumnTypes,
  inboxParts: RelayParts,
  outboxParts: OutboxParts,
): Statement {
  const inbox = names.inboxTable;
  const outbox = names.outboxTable;
  const c = names.inbox;
  const o = names.outbox;
  const { ORDINARY, PUT_OFF, hasCome, lowWaterOf, waitsIn, keyOf } = inboxParts;
  const ownKeys = "$9::jsonb -> 'ownKeySources'";
  const outboxKey = `(${keyOf("s", ownKeys)})::${types.outboxKey}`;

  /**
   * Keys of which an earlier row waits for the relay. Rows are compared with one time: a clock that is read for each row
   * would let no index stop at it, and each receipt would read all rows that are scheduled ahead.
   */
  const waitingKeys = (front: RelayParts["ORDINARY"]): string => `(
  SELECT ${keyOf("i", ownKeys)} AS key FROM ${inbox} i
  WHERE ${waitsIn(front)}${hasCome(front, "(SELECT at FROM received)")} AND i.${c.source} = ANY ($10::text[]) AND i.${c.aggregateId} IS NOT NULL
  ORDER BY ${front.position} LIMIT ${MOST_WAITING_KEYS + 1})`;
  const given = [c.id, c.idempotencyKey, c.aggregateId, c.eventType, c.payload, c.correlationId, c.headers, c.source];
  const label = o.destination === null || o.routes === null ? "" : `, ${o.destination}, ${o.routes}`;
  const { lowWaterOf: outboxLowWaterOf, aboveLowWater, stops, claimedColumns } = outboxParts;

  /*
   * A row is born `processed`, with its outbox row; but `pending` if an earlier row of its key waits in this snapshot,
   * which holds everything that was acknowledged before, or if its topic is empty. `stored` returns what the table holds,
   * as a relay pass reads it.
   *
   * An outbox row is born `processing` if its key waits for nothing in the outbox (`blocked`). Whatever a claim would find
   * in front of it is in this snapshot too, but for rows of transactions that are still open: these are unacknowledged.
   *
   * `all_made` as in the relay.
   */
  return byIndex(`inbox.insert, relay and claim(${PARAMETERS})`, { lockTimeoutMs: LOCK_TIMEOUT_MS })`
WITH${lowWaterOf("$14")},
received AS MATERIALIZED (SELECT clock_timestamp() AS at),
waiting AS MATERIALIZED (SELECT w.key FROM (${waitingKeys(ORDINARY)} UNION ALL ${waitingKeys(PUT_OFF)}) w),
given AS MATERIALIZED (
  SELECT r.*, r."its topic" <> '' AND (SELECT count(*) FROM waiting) <= ${String(MOST_WAITING_KEYS)}
    AND (r.${c.aggregateId} IS NULL OR ${keyOf("r", ownKeys)} NOT IN (SELECT key FROM waiting)) AS "is relayed"
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $12::text[], $13::text[], $21::text[])
    AS r(${given.join(", ")}, "its topic", "its headers", "its destination")
),
stored AS (
  INSERT INTO ${inbox} (${given.join(", ")}, ${c.state}, ${c.consumption}, ${c.processedAt}, ${c.createdAt}, ${c.scheduledAt})
  SELECT g.${c.id}, g.${c.idempotencyKey}, g.${c.aggregateId}, g.${c.eventType}, g.${c.payload}::${types.inboxPayload}, g.${c.correlationId},
    g.${c.headers}::${types.inboxHeaders}, g.${c.source}, CASE WHEN g."is relayed" THEN 'processed' ELSE 'pending' END, 'push',
    CASE WHEN g."is relayed" THEN r.at END, r.at, r.at
  FROM given g CROSS JOIN received r
  ON CONFLICT (${c.source}, ${c.idempotencyKey}) DO NOTHING
  RETURNING ${c.id}, ${c.aggregateId}, ${c.payload}, ${c.source}, ${c.state}
),
lease AS MATERIALIZED (SELECT now() AS began_at, now() + least($17::bigint, $18::bigint) * interval '1 millisecond' AS ends_at),
blocked AS MATERIALIZED (
  WITH ${outboxLowWaterOf("$20")}
  SELECT k.key FROM (SELECT DISTINCT ${uncollated(keyOf("s", ownKeys))}::${types.outboxKey} AS key, g."its destination" AS destination
    FROM stored s JOIN given g ON g.${c.id} = s.${c.id} WHERE s.${c.aggregateId} IS NOT NULL) k
  WHERE (SELECT o.${o.sequence} FROM ${outbox} o
    WHERE o.${o.key} = k.key AND o.${o.key} IS NOT NULL AND o.${o.state} IN ('pending', 'processing')
      AND ${aboveLowWater("o")} AND ${stops("o", "$19", label === "" ? undefined : "k.destination")}
    ORDER BY o.${o.sequence} LIMIT 1) IS NOT NULL
),
made AS (
  INSERT INTO ${outbox} AS o (${o.id}, ${o.topic}, ${o.key}, ${o.payload}, ${o.headers}, ${o.maxAttempts},
    ${o.createdAt}, ${o.scheduledAt}, ${o.updatedAt}, ${o.state}, ${o.claimToken}, ${o.claimedAt}, ${o.leaseExpiresAt}${label})
  SELECT r.id, r.topic, r.key, r.payload, r.headers, $11::int, t.at, t.at, t.at,
    CASE WHEN r.is_claimed THEN 'processing' ELSE 'pending' END, CASE WHEN r.is_claimed THEN $16::uuid END,
    CASE WHEN r.is_claimed THEN l.began_at END, CASE WHEN r.is_claimed THEN l.ends_at END${label === "" ? "" : LABEL}
  FROM (SELECT s.${c.id} AS id, g."its topic"::${types.outboxTopic} AS topic, ${outboxKey} AS key,
      s.${c.payload}::${types.outboxPayload} AS payload, g."its headers"::${types.outboxHeaders} AS headers, g."its destination" AS destination,
      row_number() OVER (ORDER BY s.${c.id}) <= $15::int
        AND (s.${c.aggregateId} IS NULL OR ${outboxKey} NOT IN (SELECT key FROM blocked)) AS is_claimed
    FROM stored s JOIN given g ON g.${c.id} = s.${c.id} WHERE ${likely(`s.${c.state} = 'processed'`)}) r
  CROSS JOIN received t CROSS JOIN lease l
  ORDER BY r.id
  RETURNING o.${o.state} AS "made as", ${claimedColumns.map(([name, value]) => `${value} AS ${name}`).join(", ")}
)
SELECT (SELECT count(*) FROM stored) = cardinality($1::uuid[]) AS all_stored,
  CASE WHEN count(*) < cardinality($1::uuid[]) THEN coalesce(array_agg(s.${c.id}::text), '{}') END AS relayed,
  ${allWritten("count(*)", "(SELECT count(*) FROM made)")} AS all_made, ${claimedColumns.map(([name]) => `NULL AS ${name}`).join(", ")}
FROM stored s WHERE s.${c.state} = 'processed'
UNION ALL
SELECT NULL, NULL, NULL, ${claimedColumns.map(([name]) => `m.${name}`).join(", ")} FROM made m WHERE m."made as" = 'processing'
ORDER BY sequence NULLS FIRST`;
}

/** A condition of which the planner does not expect that hardly a row meets it: else it joins by nested loops. */
const likely = (condition: string): string => `coalesce(${condition}, false)`;

/** Of rows that wait for the relay: more of them are a backlog, which the relay moves first. */
const MOST_WAITING_KEYS = 1000;

/** A receipt does not wait for the outbox table. */
const LOCK_TIMEOUT_MS = 100;

const PARAMETERS = `ids, idempotencyKeys, aggregateIds, eventTypes, payloads, correlationIds, headers, sources,
  rules, relayedSources, maxAttempts, topics, outboxHeaders, lowWater, limit, token,
  leaseMs, claimTimeoutMs, heldTokens, outboxLowWater, destinations`;

/** The hash of the routes only beside a destination. */
const LABEL = ", r.destination, CASE WHEN r.destination IS NOT NULL THEN $9::jsonb ->> 'routes' END";
