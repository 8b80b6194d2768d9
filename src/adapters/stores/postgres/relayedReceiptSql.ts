import type { TableNames } from "../sql/names.ts";
import type { ColumnTypes } from "./columns.ts";
import { allWritten, uncollated } from "./fragments.ts";
import type { OutboxParts } from "./outboxParts.ts";
import { type RelayQueue, relayOrder } from "./relayOrder.ts";
import { byIndex, type Statement } from "./statement.ts";

/** The statements of receipts that relay: for messages with one destination each, and if some have a list. */
export function relayedReceiptStatements(names: TableNames, types: ColumnTypes, parts: OutboxParts) {
  return { plain: receipt(names, types, parts, false), ofLists: receipt(names, types, parts, parts.hasLists) };
}

/**
 * Stores, relays and claims up to `limit` rows in one statement: one version of each row is written, not two or three,
 * and each index once. The client renders topic and headers: in the statement they cost a sixth of the database's work
 * for a message.
 *
 * @returns a statement that answers with one row: `all_stored`; and `relayed`, the ids of the relayed rows, or null for
 *   all. The claimed rows follow, in the order of their sequence, with the columns that `claimedRow` reads
 */
function receipt(names: TableNames, types: ColumnTypes, parts: OutboxParts, ofLists: boolean): Statement {
  const inbox = names.inboxTable;
  const outbox = names.outboxTable;
  const c = names.inbox;
  const o = names.outbox;
  const { ORDINARY, DEFERRED, hasCome, waitsIn, keyOf } = relayOrder(names);
  const { lowWaterOf, stopsOf, claimedColumns, carriedNames } = parts;
  const ownKeys = "$9::jsonb -> 'ownKeySources'";
  const outboxKey = `(${keyOf("s", ownKeys)})::${types.outboxKey}`;

  /**
   * Keys with an earlier row that waits for the relay. One time for all rows: a clock read per row would let no index
   * stop at it, and each receipt would read all rows that are scheduled ahead.
   */
  const waitingKeys = (queue: RelayQueue): string => `(
  SELECT ${keyOf("i", ownKeys)} AS key FROM ${inbox} i
  WHERE ${waitsIn(queue, "$14")}${hasCome(queue, "(SELECT at FROM received)")} AND i.${c.source} = ANY ($10::text[]) AND i.${c.aggregateId} IS NOT NULL
  ORDER BY ${queue.position} LIMIT ${MOST_WAITING_KEYS + 1})`;
  const given = [c.id, c.idempotencyKey, c.aggregateId, c.eventType, c.payload, c.correlationId, c.headers, c.source];
  const hasLabel = o.destination !== null && o.routes !== null;
  const label = hasLabel ? `, ${o.destination}, ${o.routes}` : "";
  const name = ofLists
    ? `inbox.insert, relay, expand and claim(${RECEIPT_PARAMETERS}, ${LIST_PARAMETERS})`
    : `inbox.insert, relay and claim(${RECEIPT_PARAMETERS})`;
  const ofStored = `FROM stored s JOIN given g ON g.${c.id} = s.${c.id}`;
  const key = `${uncollated(keyOf("s", ownKeys))}::${types.outboxKey}`;
  const deliveries = `unnest($23::uuid[], $24::uuid[], $25::text[]) AS d(message, id, destination)`;
  const ofRows = `${key} AS key, '' AS lane, g."its destination" AS destination ${ofStored} WHERE s.${c.aggregateId} IS NOT NULL`;
  const lanes = ofLists
    ? `${ofRows} AND g."its list" IS NULL UNION SELECT ${key}, d.destination, d.destination ${ofStored} JOIN ${deliveries} ON d.message = s.${c.id} WHERE s.${c.aggregateId} IS NOT NULL`
    : ofRows;
  // Keys of rows in several lanes, or of messages that the poller expands: they are claimed later.
  const mixed = ofLists
    ? `
mixed AS MATERIALIZED (
  SELECT ${key} AS key ${ofStored} WHERE s.${c.aggregateId} IS NOT NULL
  GROUP BY 1 HAVING bool_or(g."its list" IS NULL) AND bool_or(g."its list" IS NOT NULL) OR bool_or(g."its list" = '')
),`
    : "";
  const notBlocked = (row: string, lane: string): string =>
    `${row} NOT IN (SELECT key FROM blocked WHERE lane = ${lane})`;
  const hasRoom = ofLists ? "y.is_ready" : `row_number() OVER (ORDER BY s.${c.id}) <= $15::int`;
  const isClaimed = `${hasRoom}${ofLists ? ` AND g."its list" IS NULL` : ""}
      AND (s.${c.aggregateId} IS NULL OR ${notBlocked(outboxKey, "''")})`;
  /** A message claims all its deliveries that are free in their lanes, or none. */
  const ready = ofLists
    ? `
ready AS MATERIALIZED (
  SELECT s.${c.id} AS id, g."its list" IS DISTINCT FROM '' AND (s.${c.aggregateId} IS NULL OR ${outboxKey} NOT IN (SELECT key FROM mixed))
  AND sum(CASE g."its list" WHEN '' THEN 0 ELSE coalesce(jsonb_array_length(g."its list"::jsonb), 1) END) OVER (ORDER BY s.${c.id}) <= $15::int AS is_ready
  ${ofStored} WHERE s.${c.state} = 'processed'
),`
    : "";
  const delivered = ofLists
    ? `,
delivered AS (
  INSERT INTO ${outbox} AS o (${o.id}, ${o.messageSequence}, ${o.destination}, ${o.topic}, ${o.key}, ${o.payload}, ${o.maxAttempts},
  ${o.createdAt}, ${o.scheduledAt}, ${o.updatedAt}, ${o.state}, ${o.claimToken}, ${o.claimedAt}, ${o.leaseExpiresAt})
  SELECT r.id, r.place, r.destination, r.topic, r.key, NULL, $11::int, t.at, t.at, t.at,
  CASE WHEN r.is_claimed THEN 'processing' ELSE 'pending' END, CASE WHEN r.is_claimed THEN $16::uuid END,
  CASE WHEN r.is_claimed THEN l.began_at END, CASE WHEN r.is_claimed THEN l.ends_at END
  FROM (SELECT d.id, m.place, d.destination, m.topic::${types.outboxTopic} AS topic, m.key::${types.outboxKey} AS key,
    y.is_ready AND (m.key IS NULL OR ${notBlocked(`m.key::${types.outboxKey}`, "d.destination")}) AS is_claimed
  FROM made m JOIN ready y ON y.id = m.id JOIN ${deliveries} ON d.message = m.id WHERE m."made as" = 'sent') r
  CROSS JOIN received t CROSS JOIN lease l
  ORDER BY r.place
  RETURNING o.${o.state} AS "made as", ${claimedColumns.map(([name, value]) => `${value} AS ${name}`).join(", ")}
)`
    : "";
  const ofDelivery = (name: string): string =>
    name === "message_id" ? "m.id" : carriedNames.some((carried) => carried === name) ? `m.${name}` : `d.${name}`;
  const claimedDeliveries = ofLists
    ? `
UNION ALL
SELECT NULL, NULL, NULL, ${claimedColumns.map(([name]) => ofDelivery(name)).join(", ")}
FROM delivered d JOIN made m ON m.place = d.place WHERE d."made as" = 'processing'`
    : "";
  const allMade = ofLists
    ? allWritten(
        `count(*) + (SELECT count(*) FROM made m JOIN ${deliveries} ON d.message = m.id)`,
        "(SELECT count(*) FROM made) + (SELECT count(*) FROM delivered)",
      )
    : allWritten("count(*)", "(SELECT count(*) FROM made)");

  /*
   * A row is born `processed`, with its outbox row; but `pending` if an earlier row of its key waits in this snapshot,
   * which holds everything that was acknowledged before, or if its topic is empty. `stored` returns what the table
   * holds, as a relay pass reads it.
   *
   * An outbox row is born `processing` if its key waits for nothing in the outbox (`blocked`): this snapshot holds all
   * rows in front of it but those of open transactions, which are unacknowledged. `all_made` as in the relay.
   */
  return byIndex(name, { lockTimeoutMs: LOCK_TIMEOUT_MS, use: "receipt" })`
WITH received AS MATERIALIZED (SELECT clock_timestamp() AS at),
waiting AS MATERIALIZED (SELECT w.key FROM (${waitingKeys(ORDINARY)} UNION ALL ${waitingKeys(DEFERRED)}) w),
given AS MATERIALIZED (
  SELECT r.*, r."its topic" <> '' AND (SELECT count(*) FROM waiting) <= ${String(MOST_WAITING_KEYS)}
  AND (r.${c.aggregateId} IS NULL OR ${keyOf("r", ownKeys)} NOT IN (SELECT key FROM waiting)) AS "is relayed"
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $12::text[], $13::text[], $21::text[]${ofLists ? ", $22::text[]" : ""})
  AS r(${given.join(", ")}, "its topic", "its headers", "its destination"${ofLists ? `, "its list"` : ""})
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
  WITH ${lowWaterOf("$20")}
  SELECT k.key, k.lane FROM (SELECT DISTINCT ${lanes}) k
  WHERE (SELECT s.place FROM (${stopsOf("$19", !hasLabel, ofLists, "$9::jsonb ->> 'routes'")}) s LIMIT 1) IS NOT NULL
),${mixed}${ready}
made AS (
  INSERT INTO ${outbox} AS o (${o.id}, ${o.topic}, ${o.key}, ${o.payload}, ${o.headers}, ${o.maxAttempts},
  ${o.createdAt}, ${o.scheduledAt}, ${o.updatedAt}, ${o.state}, ${o.claimToken}, ${o.claimedAt}, ${o.leaseExpiresAt}${label}${ofLists ? `, ${o.expandedTo}` : ""})
  SELECT r.id, r.topic, r.key, r.payload, r.headers, $11::int, t.at, t.at, t.at,
  ${ofLists ? "CASE WHEN r.list <> '' THEN 'sent' " : "CASE "}WHEN r.is_claimed THEN 'processing' ELSE 'pending' END, CASE WHEN r.is_claimed THEN $16::uuid END,
  CASE WHEN r.is_claimed THEN l.began_at END, CASE WHEN r.is_claimed THEN l.ends_at END${label === "" ? "" : LABEL}${ofLists ? ", nullif(r.list, '')" : ""}
  FROM (SELECT s.${c.id} AS id, g."its topic"::${types.outboxTopic} AS topic, ${outboxKey} AS key,
    s.${c.payload}::${types.outboxPayload} AS payload, g."its headers"::${types.outboxHeaders} AS headers, g."its destination" AS destination,
    ${ofLists ? `g."its list" AS list, ` : ""}${isClaimed} AS is_claimed
  ${ofStored}${ofLists ? ` JOIN ready y ON y.id = s.${c.id}` : ""} WHERE ${likely(`s.${c.state} = 'processed'`)}) r
  CROSS JOIN received t CROSS JOIN lease l
  ORDER BY r.id
  RETURNING o.${o.state} AS "made as", ${claimedColumns.map(([name, value]) => `${value} AS ${name}`).join(", ")}
)${delivered}
SELECT (SELECT count(*) FROM stored) = cardinality($1::uuid[]) AS all_stored,
  CASE WHEN count(*) < cardinality($1::uuid[]) THEN coalesce(array_agg(s.${c.id}::text), '{}') END AS relayed,
  ${allMade} AS all_made, ${claimedColumns.map(([name]) => `NULL AS ${name}`).join(", ")}
FROM stored s WHERE s.${c.state} = 'processed'
UNION ALL
SELECT NULL, NULL, NULL, ${claimedColumns.map(([name]) => `m.${name}`).join(", ")} FROM made m WHERE m."made as" = 'processing'${claimedDeliveries}
ORDER BY place NULLS FIRST, sequence`;
}

/** A condition that many rows seem to meet: if the planner expects hardly any row, it joins by nested loops. */
const likely = (condition: string): string => `coalesce(${condition}, false)`;

/** Of rows that wait for the relay: more of them are a backlog, which the relay moves first. */
const MOST_WAITING_KEYS = 1000;

const LOCK_TIMEOUT_MS = 100;

const RECEIPT_PARAMETERS = `ids, idempotencyKeys, aggregateIds, eventTypes, payloads, correlationIds, headers, sources,
  rules, relayedSources, maxAttempts, topics, outboxHeaders, from, limit, token,
  leaseMs, claimTimeoutMs, heldTokens, lowWater, destinations`;

const LIST_PARAMETERS = "lists, deliveryMessages, deliveryIds, deliveryDestinations";

/** The hash of the routes only beside a destination. */
const LABEL = ", r.destination, CASE WHEN r.destination IS NOT NULL THEN $9::jsonb ->> 'routes' END";
