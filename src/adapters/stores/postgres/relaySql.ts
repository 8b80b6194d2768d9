import { EMPTY_TOPIC, EXPIRED } from "../../../model/rows.ts";
import type { TableNames } from "../sql/names.ts";
import { WHITE_SPACE } from "../sql/rendering.ts";
import type { ColumnTypes } from "./columns.ts";
import { allWritten, isExpired, setBack, uncollated } from "./fragments.ts";
import { markBound, markCoordination, markRead } from "./lowWater.ts";
import { byIndex, type Statement, statement } from "./statement.ts";

/** Conditions and expressions that the statements of the relay, and of a receipt that relays, share. */
export function relayParts(names: TableNames) {
  const c = names.inbox;
  const waitsForRelay = `i.${c.state} = 'pending' AND i.${c.consumption} = 'push'`;
  /**
   * Rows are relayed in the order of `position`, `created_at` and `id`; the position is the later one of `created_at`
   * and `scheduled_at`. Two fronts have an index each: ordinary rows are due from their receipt on, whatever the clock
   * shows; rows that have been put off from `scheduled_at` on. An owner's table may allow NULL there, which counts as
   * ordinary.
   */
  const ORDINARY: Front = { is: `(i.${c.scheduledAt} > i.${c.createdAt}) IS NOT TRUE`, position: `i.${c.createdAt}` };
  const PUT_OFF: Front = { is: `i.${c.scheduledAt} > i.${c.createdAt}`, position: `i.${c.scheduledAt}` };
  const hasCome = (front: Front, clock: string): string =>
    front === ORDINARY ? "" : ` AND ${front.position} <= ${clock}`;

  /** Positions are microseconds since 1970; see `mark`. */
  const positionOf = (time: string): string =>
    `CASE WHEN isfinite(${time}) THEN (extract(epoch FROM (${time})::timestamptz) * 1000000)::bigint END`;
  const timeOf = (position: string): string => `'epoch'::timestamptz + (${position}) * interval '1 microsecond'`;
  /** On Citus a pass runs in parts, because it gives positions: this one where the table is. It reads nothing. */
  const here = ` FROM (SELECT count(*) FROM (SELECT FROM ${names.inboxTable} LIMIT 0) n) here`;
  /** No row of a relayed source before that time waits for the relay. */
  const lowWaterOf = (lowWater: string): string => `
low_water AS MATERIALIZED (SELECT ${timeOf(markBound(lowWater))} AS position${here})`;
  const waitsIn = ({ is, position }: Front): string =>
    `${waitsForRelay} AND ${is} AND ${position} >= (SELECT position FROM low_water)`;
  return {
    ORDINARY,
    PUT_OFF,
    waitsForRelay,
    hasCome,
    positionOf,
    timeOf,
    lowWaterOf,
    waitsIn,
    /** The outbox key of an inbox row. @param ownKeySources the sources with keys of their own (jsonb) */
    keyOf: (row: string, ownKeySources: string): string =>
      `CASE WHEN ${ownKeySources} ? ${row}.${c.source} THEN ${uncollated(`${row}.${c.source}`)} || ':' || ${row}.${c.aggregateId} ELSE ${row}.${c.aggregateId} END`,
    /** The topic of its outbox row, as by `renderTopic`. @param topics the pieces of the topic template by source (jsonb) */
    topicOf: (row: string, topics: string): string => `
    btrim(array_to_string(ARRAY(SELECT jsonb_array_elements_text(${topics} -> ${row}.${c.source})),
      coalesce(${row}.${c.eventType}, '') COLLATE "default"), '${WHITE_SPACE}')`,
    /** The headers of its outbox row, as by `renderHeaders`. @param droppedNames in lower case (text[]), as @param droppedPrefixes */
    headersOf: (row: string, droppedNames: string, droppedPrefixes: string): string => `
    (${row}.${c.headers}::jsonb - ARRAY(
      SELECT h.name FROM (SELECT name, lower(name COLLATE "C") AS lower_name FROM jsonb_object_keys(${row}.${c.headers}::jsonb) name) h
      WHERE h.lower_name = ANY (${droppedNames}::text[]) OR h.lower_name ^@ ANY (${droppedPrefixes}::text[])
        OR (h.lower_name = 'content-type' AND ${row}.${c.headers}::jsonb ->> h.name !~* '[/+]json')))
    || jsonb_strip_nulls(jsonb_build_object('x-correlation-id', ${row}.${c.correlationId}, 'x-inbox-id', ${row}.${c.id},
         'x-source', ${row}.${c.source}, 'x-idempotency-key', ${row}.${c.idempotencyKey}))`,
  };
}

export type RelayParts = ReturnType<typeof relayParts>;

/** The statements of the relay, for these names and column types. */
export function relayStatements(names: TableNames, types: ColumnTypes, parts: RelayParts) {
  const inbox = names.inboxTable;
  const outbox = names.outboxTable;
  const c = names.inbox;
  const o = names.outbox;
  const { ORDINARY, PUT_OFF, waitsForRelay, hasCome, positionOf, timeOf, lowWaterOf, waitsIn } = parts;
  const { keyOf, topicOf, headersOf } = parts;
  /**
   * The first rows of a front that are due.
   *
   * @param columns besides its position, `created_at` and `id`
   * @param and further conditions
   */
  const firstDue = (front: Front, columns: string, and: string, limit: string): string => `
  SELECT ${front.position} AS position, i.${c.createdAt} AS created_at, i.${c.id} AS id, ${columns}
  FROM ${inbox} i
  WHERE ${waitsIn(front)}${hasCome(front, "now()")}${and}
  ORDER BY ${front.position}${front === ORDINARY ? "" : `, i.${c.createdAt}`}, i.${c.id}
  LIMIT ${limit}`;

  const expired = isExpired(c.expiresAt, "i");
  const isCopied = c.expiresAt !== null && o.expiresAt !== null;
  /**
   * One relay pass. It locks the first rows of each front and takes the first ones of both; the others stay locked up
   * to its end. `rules` ($3, jsonb) has the pieces of the topic template per source and the sources with keys of
   * their own.
   *
   * `stops` holds back a key's rows behind an earlier one that another replica is relaying: candidates are the oldest
   * rows of the relayed sources, so any other row among them is locked by another replica. See the outbox claim for why
   * this is safe. Payloads never leave the database. The outbox row takes the inbox row's id: one id from the receipt
   * to the receiver, and the primary key keeps a message from being relayed twice.
   *
   * A trigger may skip a row without an error: an inbox row without its outbox row must not count as processed, and
   * one that stays pending would be relayed again with each pass.
   */
  const key = keyOf("i", "$3::jsonb -> 'ownKeySources'");
  const candidates = (front: Front, narrowed: boolean): string => `${firstDue(
    front,
    `${key} AS key`,
    ` AND i.${c.source} = ANY ($2::text[])${narrowed ? ` AND i.${c.id} = ANY ($8::uuid[])` : ""}`,
    "$1::int",
  )}
  FOR NO KEY UPDATE OF i SKIP LOCKED`;
  const earlier = (front: Front): string => `
    SELECT ${key} AS key, ${front.position} AS position, i.${c.createdAt} AS created_at, i.${c.id} AS id
    FROM ${inbox} i
    WHERE ${waitsIn(front)}${hasCome(front, "clock_timestamp()")} AND i.${c.source} = ANY ($2::text[]) AND i.${c.aggregateId} IS NOT NULL
      AND ${front.position} <= (SELECT position FROM last)
      AND (${front.position}, i.${c.createdAt}, i.${c.id}) <= (SELECT position, created_at, id FROM last)
      AND i.${c.id} NOT IN (SELECT id FROM candidates)`;
  const relay = (narrowed: boolean): string => `
WITH${lowWaterOf("$7")},
ordinary AS MATERIALIZED (${candidates(ORDINARY, narrowed)}),
put_off AS MATERIALIZED (${candidates(PUT_OFF, narrowed)}),
candidates AS MATERIALIZED (
  SELECT * FROM ordinary UNION ALL SELECT * FROM put_off
  ORDER BY position, created_at, id LIMIT $1::int
),
last AS MATERIALIZED (SELECT position, created_at, id FROM candidates ORDER BY 1 DESC, 2 DESC, 3 DESC LIMIT 1),
stops AS MATERIALIZED (
  SELECT DISTINCT ON (key) key, position, created_at, id
  FROM (${earlier(ORDINARY)} UNION ALL${earlier(PUT_OFF)}) e
  ORDER BY key, position, created_at, id
),
rendered AS MATERIALIZED (
  SELECT i.${c.id} AS id, f.position, f.created_at, f.key, i.${c.payload} AS payload, i.${c.source} AS source,
    ${isCopied ? `i.${c.expiresAt} AS expires_at, ` : ""}${expired} AS expired,
    ${topicOf("i", "$3::jsonb -> 'topics'")} AS topic,
    ${headersOf("i", "$5", "$6")} AS headers
  FROM ${inbox} i
  JOIN (
    SELECT c.id, c.position, c.created_at, c.key
    FROM candidates c LEFT JOIN stops s ON s.key = c.key
    WHERE s.id IS NULL OR (c.position, c.created_at, c.id) < (s.position, s.created_at, s.id)
  ) f ON f.id = i.${c.id}
),
made AS (
  INSERT INTO ${outbox} (${o.id}, ${o.topic}, ${o.key}, ${o.payload}, ${o.headers}, ${o.maxAttempts}${isCopied ? `, ${o.expiresAt}` : ""})
  SELECT id, topic::${types.outboxTopic}, key::${types.outboxKey}, payload::${types.outboxPayload},
    headers::${types.outboxHeaders}, $4::int${isCopied ? ", expires_at" : ""}
  FROM rendered WHERE topic <> '' AND NOT expired
  ORDER BY position, created_at, id
  RETURNING 1
),
marked AS (
  UPDATE ${inbox} i
  SET ${c.state} = CASE WHEN r.topic = '' OR r.expired THEN 'dead' ELSE 'processed' END, ${c.processedAt} = now(),
      ${c.lastError} = CASE WHEN r.expired THEN '${EXPIRED}' WHEN r.topic = '' THEN '${EMPTY_TOPIC}' ELSE i.${c.lastError} END
  FROM rendered r
  WHERE i.${c.id} = r.id
  RETURNING i.${c.state} AS state
)
SELECT (SELECT count(*) FROM candidates)::int AS candidates,
  (SELECT ${positionOf("position")} FROM last) AS last,
  (SELECT count(*) FROM rendered WHERE topic <> '' AND NOT expired)::int AS relayed,
  ${allWritten("(SELECT count(*) FROM rendered WHERE topic <> '' AND NOT expired)", "(SELECT count(*) FROM made)")} AS all_made,
  ${allWritten("(SELECT count(*) FROM rendered)", "(SELECT count(*) FROM marked WHERE state <> 'pending')")} AS all_marked,
  coalesce((SELECT jsonb_agg(jsonb_build_object('id', id, 'source', source, 'expired', expired))
    FROM rendered WHERE topic = '' OR expired), '[]') AS dead`;

  const waits = (front: Front): string => `(SELECT i.${c.id} FROM ${inbox} i
WHERE ${waitsForRelay} AND ${front.is}${hasCome(front, "now()")}
  AND i.${c.source} = ANY ($2::text[]) AND ${front.position} >= ${timeOf("$1::bigint")}
ORDER BY ${front.position} LIMIT 1) IS NOT NULL`;
  const waiting = (front: Front): string =>
    firstDue(
      front,
      `i.${c.source} AS source`,
      ` AND i.${c.source} = ANY ($2::text[])
    AND i.${c.id} <> ALL ($4::uuid[]) AND (i.${c.aggregateId} IS NULL OR ${keyOf("i", "$5::jsonb")} NOT IN (
      SELECT ${keyOf("x", "$5::jsonb")} FROM ${inbox} x WHERE x.${c.id} = ANY ($4::uuid[]) AND x.${c.aggregateId} IS NOT NULL))`,
      "$1::int",
    );
  const oldest = (front: Front): string =>
    firstDue(front, "1", ` AND i.${c.source} = ANY ($2::text[]) AND isfinite(i.${c.createdAt})`, "1");

  return {
    relay: byIndex(`inbox.relay(${RELAY_PARAMETERS})`)(relay(false)),
    relayNamed: byIndex(`inbox.relay of named rows(${RELAY_PARAMETERS}, ids)`)(relay(true)),
    /** The last relayed row, under a new id: its outbox row has the old one. */
    setBack: statement("inbox.set back the last relayed row(sources, id)")(
      setBack(
        inbox,
        c,
        `f.${c.state} = 'processed' AND f.${c.consumption} = 'push' AND f.${c.source} = ANY ($1::text[])`,
        `f.${c.createdAt} DESC, f.${c.id} DESC`,
        `, ${c.id} = $2::uuid${c.expiresAt === null ? "" : `, ${c.expiresAt} = NULL`}`,
      ),
    ),

    /**
     * Ordered, for the planner to take the index.
     */
    waits: statement("inbox.waits(newest, sources)", { takesTurns: true, isQuestion: true })`
SELECT ${waits(ORDINARY)} OR ${waits(PUT_OFF)} AS answer`,

    /** The rows that a relay pass would move, without some rows and the others of their keys. */
    waiting: statement("inbox.waiting(limit, sources, lowWater, without, ownKeySources)")`
WITH${lowWaterOf("$3")}
SELECT w.id, w.source FROM ((${waiting(ORDINARY)}) UNION ALL (${waiting(PUT_OFF)})) w
ORDER BY w.position, w.created_at, w.id LIMIT $1::int`,

    markDead: byIndex("inbox.mark dead(id, reason)")`
WITH waiting AS MATERIALIZED (
  SELECT i.${c.id} AS id, now() AS now FROM ${inbox} i WHERE i.${c.id} = $1::uuid AND i.${c.state} = 'pending' FOR NO KEY UPDATE OF i
),
marked AS (
  UPDATE ${inbox} i SET ${c.state} = 'dead', ${c.processedAt} = w.now, ${c.lastError} = $2 FROM waiting w WHERE i.${c.id} = w.id
  RETURNING i.${c.state} AS state
)
SELECT id, ${allWritten("1", "(SELECT count(*) FROM marked WHERE state = 'dead')")} AS all_marked FROM waiting`,

    /**
     * The time before which no row of a relayed source waits: else each pass would read rows that no replica relays. It
     * reads no further back than `lowWater` requires, and never up to now: a clock that is set back slightly gives no
     * receipt a time below it. See `markRead`.
     */
    mark: byIndex("inbox.mark(lowWater, afterHighest, lastRead, awaited, sources)", {
      takesTurns: true,
      onePlan: true,
    })`
WITH${lowWaterOf("$1")}
${markRead(inbox, {
  lowest: `least(${[ORDINARY, PUT_OFF]
    .map(
      (front) => `(SELECT ${positionOf(`min(${front.position})`)} - 1 FROM ${inbox} i
    WHERE ${waitsIn(front)}${hasCome(front, "now()")} AND i.${c.source} = ANY ($5::text[]))`,
    )
    .join(", ")})`,
  atMost: positionOf("now() - interval '2 seconds'"),
})}`,

    markCoordination: statement("inbox.mark coordination")(markCoordination(inbox)),

    oldestPending: byIndex("inbox.oldest pending(lowWater, sources)", { takesTurns: true })`
WITH${lowWaterOf("$1")}
SELECT extract(epoch FROM now() - w.position) * 1000 AS oldest_ms
FROM ((${oldest(ORDINARY)}) UNION ALL (${oldest(PUT_OFF)})) w
ORDER BY w.position LIMIT 1`,

    /** Waiting rows of other sources, which no mark holds, among the first `limit` waiting rows */
    unrelayed: byIndex("inbox.unrelayed(sources, limit)", { takesTurns: true })`
SELECT w.source, count(*)::int AS count FROM (
  SELECT i.${c.source} AS source FROM ${inbox} i WHERE ${waitsForRelay} ORDER BY i.${c.createdAt}, i.${c.id} LIMIT $2::int) w
WHERE w.source <> ALL ($1::text[]) GROUP BY w.source ORDER BY w.source`,
  } as const satisfies Record<string, Statement>;
}

/** Rows that wait for the relay, in an order of their own. */
interface Front {
  readonly is: string;
  /** Of a row `i`; see `mark`. */
  readonly position: string;
}

const RELAY_PARAMETERS = "limit, sources, rules, maxAttempts, droppedNames, droppedPrefixes, lowWater";
