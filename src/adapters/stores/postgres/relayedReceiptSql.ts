import type { TableNames } from "../sql/names.ts";
import { whereOpen } from "./bucketsSql.ts";
import type { ColumnTypes } from "./columns.ts";
import { uncollated, unlessNotInserted } from "./fragments.ts";
import { literal } from "./lowWater.ts";
import type { OutboxParts } from "./outboxParts.ts";
import type { RelayParts } from "./relaySql.ts";
import { byIndex, type Statement } from "./statement.ts";

/**
 * The statements of a receipt that relays what it stores, and of one that claims it too. They do the work of three: one
 * version of each row is written instead of two or three, and each index is written once.
 *
 * @returns statements that answer with one row: `all_stored`; `relayed`, the ids of the rows that were relayed, or null for
 *   all; `has_triggers`, for which none is; and `received`, their position in the order of the relay. Those of a claim
 *   follow, in the order of their sequence, with the columns that `claimedRow` reads.
 */
export function relayedReceiptStatements(
  names: TableNames,
  types: ColumnTypes,
  inboxParts: RelayParts,
  outboxParts: OutboxParts,
) {
  const inbox = names.inboxTable;
  const outbox = names.outboxTable;
  const c = names.inbox;
  const o = names.outbox;
  const { relayLock, ORDINARY, PUT_OFF, hasCome, positionOf, lowWaterOf, waitsIn } = inboxParts;
  const { keyOf, topicOf, headersOf } = inboxParts;
  const ownKeys = "$9::jsonb -> 'ownKeySources'";
  const topics = "$9::jsonb -> 'topics'";
  const outboxKey = `(${keyOf("s", ownKeys)})::${types.outboxKey}`;

  /**
   * Keys of which an earlier row waits for the relay. Rows are compared with one time: a clock that is read for each row
   * would let no index stop at it, and each receipt would read all rows that are scheduled ahead.
   */
  const waitingKeys = (front: RelayParts["ORDINARY"]): string => `(
  SELECT ${keyOf("i", ownKeys)} AS key FROM ${inbox} i
  WHERE ${waitsIn(front)}${hasCome(front, "(SELECT at FROM received)")} AND i.${c.source} = ANY ($10::text[]) AND i.${c.aggregateId} IS NOT NULL
  ORDER BY ${front.position} LIMIT ${MOST_WAITING_KEYS + 1})`;
  /**
   * Triggers of the owner: of the inbox, as they may change a row that waits; of the outbox, as each row may take long. A
   * view or a foreign table may have any behind it.
   */
  const triggersOf = (table: string, which: string): string => {
    const oid = `'${literal(table)}'::regclass`;
    return `(SELECT t.relkind NOT IN ('r', 'p') FROM pg_class t WHERE t.oid = ${oid}) OR EXISTS (SELECT FROM pg_trigger t WHERE NOT t.tgisinternal AND ${which}
    AND (t.tgrelid = ${oid} OR t.tgrelid IN (SELECT relid FROM pg_partition_tree(${oid}))))`;
  };
  const hasTriggers = `${triggersOf(inbox, `t.tgtype::int & ${TRIGGER.insert} <> 0`)}
  OR ${triggersOf(outbox, `t.tgtype::int & ${TRIGGER.insert | TRIGGER.row} = ${TRIGGER.insert | TRIGGER.row}`)}`;
  const given = [c.id, c.idempotencyKey, c.aggregateId, c.eventType, c.payload, c.correlationId, c.headers, c.source];
  /**
   * Topic and headers are rendered by the client: here they cost the database a sixth of all that it does for a message.
   * Not where the columns change the texts that these are made of: a pass of the relay would make others.
   */
  const rendered = types.keepsTexts
    ? {
        parameters: RENDERED,
        given: ", $12::text[], $13::text[]",
        names: ', "its topic", "its headers"',
        givenTopic: 'r."its topic"',
        topic: 'g."its topic"',
        headers: 'g."its headers"::jsonb',
        joined: ` JOIN given g ON g.${c.id} = s.${c.id}`,
        stored: [c.id, c.aggregateId, c.payload, c.source],
      }
    : {
        parameters: DROPPED,
        given: "",
        names: "",
        givenTopic: topicOf("r", topics),
        topic: topicOf("s", topics),
        headers: `(${headersOf("s", "$12", "$13")})`,
        joined: "",
        stored: given,
      };

  /**
   * A row is born `processed`, with its outbox row. It is `pending` as usual where an earlier one of its key waits in
   * this snapshot, which holds everything that was relayed so far; where its topic is empty; where the owner's triggers
   * may change it; and where another process relays at this moment. `stored` returns what the table holds, as a relay
   * pass reads it.
   *
   * `all_made` as in the relay.
   */
  const receipt = (
    { ctes, from, columns, values, isClaimed, returned, noRow, rows }: ClaimPart,
    fence: readonly [buckets: string, servers: string] | undefined,
  ): string => `
WITH${lowWaterOf("$14")},
received AS MATERIALIZED (SELECT clock_timestamp() AS at),
waiting AS MATERIALIZED (SELECT w.key FROM (${waitingKeys(ORDINARY)} UNION ALL ${waitingKeys(PUT_OFF)}) w),
usual AS MATERIALIZED (SELECT has_triggers OR current_setting('${MAY_RELAY}') <> 'true'
  OR (SELECT count(*) FROM waiting) > ${MOST_WAITING_KEYS} AS all_rows, has_triggers FROM (SELECT ${hasTriggers} AS has_triggers) t),
given AS MATERIALIZED (
  SELECT r.*, NOT (SELECT all_rows FROM usual) AND ${rendered.givenTopic} <> ''
    AND (r.${c.aggregateId} IS NULL OR ${keyOf("r", ownKeys)} NOT IN (SELECT key FROM waiting)) AS "is relayed"
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]${rendered.given})
    AS r(${given.join(", ")}${rendered.names})
),
stored AS (
  INSERT INTO ${inbox} (${given.join(", ")}, ${c.state}, ${c.consumption}, ${c.processedAt}, ${c.createdAt}, ${c.scheduledAt})
  SELECT g.${c.id}, g.${c.idempotencyKey}, g.${c.aggregateId}, g.${c.eventType}, g.${c.payload}::${types.inboxPayload}, g.${c.correlationId},
    g.${c.headers}::${types.inboxHeaders}, g.${c.source}, CASE WHEN g."is relayed" THEN 'processed' ELSE 'pending' END, 'push',
    CASE WHEN g."is relayed" THEN r.at END, r.at, r.at
  FROM given g CROSS JOIN received r${fence === undefined ? "" : `\n  WHERE ${whereOpen(names, ...fence)}`}
  ON CONFLICT (${c.source}, ${c.idempotencyKey}) DO NOTHING
  RETURNING ${rendered.stored.join(", ")}, ${c.state}
)${ctes},
made AS (
  INSERT INTO ${outbox} AS o (${o.id}, ${o.topic}, ${o.key}, ${o.payload}, ${o.headers}, ${o.maxAttempts},
    ${o.createdAt}, ${o.scheduledAt}, ${o.updatedAt}${columns})
  SELECT r.id, r.topic, r.key, r.payload, r.headers, $11::int, t.at, t.at, t.at${values}
  FROM (SELECT s.${c.id} AS id, ${rendered.topic}::${types.outboxTopic} AS topic, ${outboxKey} AS key,
      s.${c.payload}::${types.outboxPayload} AS payload, ${rendered.headers}::${types.outboxHeaders} AS headers${isClaimed}
    FROM stored s${rendered.joined} WHERE ${likely(`s.${c.state} = 'processed'`)}) r CROSS JOIN received t${from}
  ORDER BY r.id
  RETURNING ${returned}
)
SELECT (SELECT count(*) FROM stored) = cardinality($1::uuid[]) AS all_stored,
  CASE WHEN count(*) < cardinality($1::uuid[]) THEN coalesce(array_agg(s.${c.id}::text), '{}') END AS relayed,
  ${unlessNotInserted("count(*)", "(SELECT count(*) FROM made)")} AS all_made, (SELECT ${positionOf("at")} FROM received) AS received,
  (SELECT has_triggers FROM usual) AS has_triggers${noRow}
FROM stored s WHERE s.${c.state} = 'processed'${rows}`;

  const noClaim: ClaimPart = {
    ctes: "",
    from: "",
    columns: "",
    values: "",
    isClaimed: "",
    returned: "1",
    noRow: "",
    rows: "",
  };
  /**
   * Claims the first rows whose keys wait for nothing in the outbox. Whatever a claim would find in front of them is in
   * this snapshot too, but for rows of transactions that are still open: nobody has been told of these.
   */
  const { lowWaterOf: outboxLowWaterOf, aboveLowWater, stops, claimedColumns } = outboxParts;
  const claim: ClaimPart = {
    ctes: `,
lease AS MATERIALIZED (SELECT now() AS began_at, now() + least($17::bigint, $18::bigint) * interval '1 millisecond' AS ends_at),
blocked AS MATERIALIZED (
  WITH ${outboxLowWaterOf("$20")}
  SELECT k.key FROM (SELECT DISTINCT ${uncollated(keyOf("s", ownKeys))}::${types.outboxKey} AS key FROM stored s WHERE s.${c.aggregateId} IS NOT NULL) k
  WHERE (SELECT o.${o.sequence} FROM ${outbox} o
    WHERE o.${o.key} = k.key AND o.${o.key} IS NOT NULL AND o.${o.state} IN ('pending', 'processing')
      AND ${aboveLowWater("o")} AND ${stops("o", "$19")}
    ORDER BY o.${o.sequence} LIMIT 1) IS NOT NULL
)`,
    from: " CROSS JOIN lease l",
    columns: `, ${o.state}, ${o.claimToken}, ${o.claimedAt}, ${o.leaseExpiresAt}`,
    values: `, CASE WHEN r.is_claimed THEN 'processing' ELSE 'pending' END, CASE WHEN r.is_claimed THEN $16::uuid END,
    CASE WHEN r.is_claimed THEN l.began_at END, CASE WHEN r.is_claimed THEN l.ends_at END`,
    isClaimed: `,
      row_number() OVER (ORDER BY s.${c.id}) <= $15::int
        AND (s.${c.aggregateId} IS NULL OR ${outboxKey} NOT IN (SELECT key FROM blocked)) AS is_claimed`,
    returned: `o.${o.state} AS "made as", ${claimedColumns.map(([name, value]) => `${value} AS ${name}`).join(", ")}`,
    noRow: claimedColumns.map(([name]) => `, NULL AS ${name}`).join(""),
    rows: `
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, ${claimedColumns.map(([name]) => `m.${name}`).join(", ")} FROM made m WHERE m."made as" = 'processing'
ORDER BY sequence NULLS FIRST`,
  };

  const options = {
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    first: `SELECT set_config('${MAY_RELAY}', pg_try_advisory_xact_lock(${relayLock})::text, true)`,
  };
  const relayed = (more: string, fence?: readonly [buckets: string, servers: string]) =>
    byIndex(
      `inbox.insert and relay(${PARAMETERS}, ${rendered.parameters}, lowWater${more})`,
      options,
    )(receipt(noClaim, fence));
  const claimed = (more: string, fence?: readonly [buckets: string, servers: string]) =>
    byIndex(
      `inbox.insert, relay and claim(${PARAMETERS}, ${rendered.parameters}, lowWater, ${CLAIM_PARAMETERS}${more})`,
      options,
    )(receipt(claim, fence));
  return {
    insertRelayed: relayed(""),
    insertClaimed: claimed(""),
    /** For rows with a bucket. */
    fenced: {
      insertRelayed: relayed(", buckets, servers", ["$15", "$16"]),
      insertClaimed: claimed(", buckets, servers", ["$21", "$22"]),
    },
  } as const satisfies Record<string, Statement | Readonly<Record<string, Statement>>>;
}

/** A condition of which the planner does not expect that hardly a row meets it: else it joins by nested loops. */
const likely = (condition: string): string => `coalesce(${condition}, false)`;

/** What the statement with a claim has in addition. */
interface ClaimPart {
  readonly ctes: string;
  readonly from: string;
  readonly columns: string;
  readonly values: string;
  readonly isClaimed: string;
  readonly returned: string;
  /** The columns of a claimed row where there is none. */
  readonly noRow: string;
  readonly rows: string;
}

/** A setting of the transaction: it has got the lock. */
const MAY_RELAY = "svc.may_relay";

/** Of rows that wait for the relay: more of them are a backlog, which the relay moves first. */
const MOST_WAITING_KEYS = 1000;

/** Bits of `pg_trigger.tgtype`: it is fired for each row; by an insert. */
const TRIGGER = { row: 1, insert: 4 };

/** A receipt does not wait for the outbox table. */
const LOCK_TIMEOUT_MS = 100;

const PARAMETERS = `ids, idempotencyKeys, aggregateIds, eventTypes, payloads, correlationIds, headers, sources,
  rules, relayedSources, maxAttempts`;
/** `$12` and `$13`, where the client renders topic and headers, and where the statement does. */
const [RENDERED, DROPPED] = ["topics, outboxHeaders", "droppedNames, droppedPrefixes"];
const CLAIM_PARAMETERS = "limit, token, leaseMs, claimTimeoutMs, heldTokens, outboxLowWater";
