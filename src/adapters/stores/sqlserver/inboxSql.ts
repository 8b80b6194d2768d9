import { EXPIRED } from "../../../model/rows.ts";
import { EMPTY_TOPIC } from "../sql/inbox.ts";
import type { TableNames } from "../sql/names.ts";
import { signature } from "../sql/rows.ts";
import {
  BATCH,
  BY_ID,
  hasCome,
  isExpired,
  NAMED_IDS,
  NOW,
  placeFrom,
  placeNames,
  placeTypes,
  TO_CHANGE,
  TO_READ,
  textOf,
  timeOf,
} from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

/** Properties of a row to insert, and of a row to relay, that are texts. */
export const INSERTED_TEXTS = [
  "source",
  "idempotencyKey",
  "aggregateId",
  "eventType",
  "payload",
  "correlationId",
  "headers",
  "lastError",
] as const;
export const RELAYED_TEXTS = ["topic", "headers"] as const;

const BINARY = "Latin1_General_100_BIN2";

/** The sources of the parameter `@ownKeySources`, a JSON array. */
const OWN_KEY_SOURCES = `DECLARE @own_key_sources TABLE (source nvarchar(4000) COLLATE ${BINARY} NOT NULL);
INSERT INTO @own_key_sources (source) SELECT n.source FROM OPENJSON(@ownKeySources) WITH (source nvarchar(4000) '$') n;`;

/**
 * Every statement on the inbox. States and consumptions are literals: a parameter would keep the optimizer from the
 * filtered indexes. `OUTPUT` goes into a table variable, as tables with triggers require.
 *
 * @param names already quoted
 */
export function inboxStatements(names: TableNames) {
  const inbox = names.inboxTable;
  const outbox = names.outboxTable;
  const c = names.inbox;
  const o = names.outbox;
  const waitsForRelay = `i.${c.state} = N'pending' AND i.${c.consumption} = N'push'`;
  /** A row is due from its receipt on, whatever the clock shows, unless it has been put off. */
  const isDue = `(${hasCome(`i.${c.scheduledAt}`)} OR i.${c.scheduledAt} <= i.${c.createdAt})`;
  /** Compared exactly, whatever the column's collation: the templates are keyed by the stored name. */
  const ofSources = (count: number): string =>
    `i.${c.source} COLLATE ${BINARY} IN (${sourceNames(count)
      .map((name) => `@${name}`)
      .join(", ")})`;
  /**
   * See the inbox of PostgreSQL. One index serves here: what is inserted has no `scheduled_at` before its `created_at`.
   */
  const inOrder = `i.${c.scheduledAt}, i.${c.createdAt}, i.${c.id}`;
  /** Where a row stands in that order; NULL comes first. */
  const position = `COALESCE(i.${c.scheduledAt}, ${timeOf("N'0001-01-01T00:00:00Z'")})`;
  const isCopied = c.expiresAt !== null && o.expiresAt !== null;
  const keyOf = (
    row: string,
  ): string => `CASE WHEN EXISTS (SELECT 1 FROM @own_key_sources w WHERE w.source = ${row}.${c.source} COLLATE ${BINARY})
    THEN ${row}.${c.source} COLLATE ${BINARY} + N':' + ${row}.${c.aggregateId} ELSE ${row}.${c.aggregateId} END COLLATE ${BINARY}`;
  const key = keyOf("i");

  /**
   * The first half of a relay pass, in its transaction: chooses and locks up to `@limit` rows to relay. Returns two
   * result sets: the number of positions, then the rows to relay, in order.
   *
   * - positions: the oldest waiting rows, except those that another relay has locked.
   * - candidates: those that could be locked as rows, not only as index entries.
   * - stops: per outbox key the times of the first waiting row that is not a candidate: another relay has it locked, as
   *   candidates are the first rows of the sources. The key's rows from these times on wait. Read after the candidates
   *   without skipping anything, see the outbox claim. Keys are compared under one collation, that of the table
   *   variables.
   */
  const candidates = (positions: string, count: number, declarations = ""): string => `
${BATCH}
${NOW}
${OWN_KEY_SOURCES}
${declarations}
DECLARE @last_position datetimeoffset(7);
DECLARE @last_created_at datetimeoffset(7);
DECLARE @last_id uniqueidentifier;
DECLARE @positions TABLE (id uniqueidentifier NOT NULL);
DECLARE @candidates TABLE (id uniqueidentifier NOT NULL PRIMARY KEY, position datetimeoffset(7) NOT NULL,
  created_at datetimeoffset(7) NOT NULL, outbox_key nvarchar(4000) COLLATE ${BINARY} NULL);
DECLARE @stops TABLE (outbox_key nvarchar(4000) COLLATE ${BINARY} NOT NULL, position datetimeoffset(7) NOT NULL,
  created_at datetimeoffset(7) NOT NULL);
INSERT INTO @positions (id)
${positions};
INSERT INTO @candidates (id, position, created_at, outbox_key)
SELECT i.${c.id}, ${position}, i.${c.createdAt}, ${key}
FROM @positions p JOIN ${inbox} i ${BY_ID.take} ON i.${c.id} = p.id
WHERE ${waitsForRelay} AND ${isDue};
DECLARE @lookedAt datetimeoffset(7) = SYSUTCDATETIME();
SELECT TOP (1) @last_position = n.position, @last_created_at = n.created_at, @last_id = n.id
FROM @candidates n ORDER BY n.position DESC, n.created_at DESC, n.id DESC;
INSERT INTO @stops (outbox_key, position, created_at)
SELECT f.outbox_key, f.position, f.created_at
FROM (
  SELECT e.outbox_key, e.position, e.created_at,
    ROW_NUMBER() OVER (PARTITION BY e.outbox_key ORDER BY e.position, e.created_at) AS place
  FROM (
    SELECT ${key} AS outbox_key, ${position} AS position, i.${c.createdAt} AS created_at
    FROM ${inbox} i
    WHERE ${waitsForRelay} AND (${hasCome(`i.${c.scheduledAt}`, "@lookedAt")} OR i.${c.scheduledAt} <= i.${c.createdAt}) AND ${ofSources(count)}
      AND i.${c.aggregateId} IS NOT NULL AND ${hasCome(`i.${c.scheduledAt}`, "@last_position")}
      AND (${position} < @last_position OR i.${c.createdAt} < @last_created_at
        OR i.${c.createdAt} = @last_created_at AND i.${c.id} <= @last_id)
      AND NOT EXISTS (SELECT 1 FROM @candidates n WHERE n.id = i.${c.id})
  ) e
) f
WHERE f.place = 1;
SELECT COUNT(*) AS positions FROM @positions;
SELECT i.${c.id} AS id, i.${c.source} AS source, i.${c.eventType} AS event_type, i.${c.idempotencyKey} AS idempotency_key,
  i.${c.correlationId} AS correlation_id, i.${c.headers} AS headers, CASE WHEN ${isExpired(c.expiresAt, "i")} THEN 1 ELSE 0 END AS is_expired
FROM @candidates n JOIN ${inbox} i ${BY_ID.read} ON i.${c.id} = n.id
WHERE NOT EXISTS (SELECT 1 FROM @stops s WHERE s.outbox_key = n.outbox_key
  AND (s.position < n.position OR s.position = n.position AND s.created_at <= n.created_at))
ORDER BY n.position, n.created_at, n.id;`;

  return {
    /**
     * `@rows` and `@texts` (see {@link textBatch}): rows in the order of their keys, with `position` in the order of
     * arrival, from 0; `@latest` the latest `created_at` of this process, in microseconds since 1970, null before the
     * first. Returns two result sets: the new `latest`, then the ids stored.
     *
     * Each row is a microsecond younger than the one before, which is less than it takes to store a row: times order
     * the rows, as a `uniqueidentifier` does not sort like its text. The server's clock may stop for milliseconds, so a
     * batch is also younger than the last one of its process, unless the clock was set back.
     *
     * All batches insert their keys in one order, so that no two deadlock, and check them under the locks of other
     * batches: the insert waits for a key that another one is storing. A key stored between the check and the insert is
     * a unique violation.
     */
    insert: statement("inbox.insert(rows longText, texts bytes, latest bigint)")`
${BATCH}
${NOW}
DECLARE @ahead bigint = @latest - ${microsecondsOf("@now")};
DECLARE @stored TABLE (id uniqueidentifier NOT NULL, created_at datetimeoffset(7) NOT NULL);
IF @ahead BETWEEN 0 AND 1000000 SET @now = DATEADD(microsecond, @ahead + 1, @now);
INSERT INTO ${inbox} (${c.id}, ${c.source}, ${c.idempotencyKey}, ${c.aggregateId}, ${c.eventType}, ${c.payload}, ${c.state},
  ${c.consumption}, ${c.correlationId}, ${c.headers}, ${c.lastError}, ${c.createdAt}, ${c.scheduledAt}, ${c.processedAt}${c.expiresAt === null ? "" : `, ${c.expiresAt}`})
OUTPUT inserted.${c.id}, inserted.${c.createdAt} INTO @stored (id, created_at)
SELECT r.id, ${textOf("source")}, ${textOf("idempotencyKey")}, ${textOf("aggregateId")},
  ${textOf("eventType")}, ${textOf("payload")}, r.state, r.consumption,
  ${textOf("correlationId")}, ${textOf("headers")}, ${textOf("lastError")},
  ${RECEIVED}, ${DUE}, CASE WHEN r.state = N'dead' THEN @now END${c.expiresAt === null ? "" : EXPIRES_AT}
FROM OPENJSON(@rows) WITH (turn int '$.turn', position int '$.position', id uniqueidentifier '$.id', state nvarchar(20) '$.state',
  consumption nvarchar(20) '$.consumption', delay_seconds int '$.delaySeconds',
  published_at nvarchar(40) '$.publishedAt', not_before nvarchar(40) '$.notBefore', expires_at nvarchar(40) '$.expiresAt', live_ms bigint '$.liveMs',
  ${INSERTED_TEXTS.map(placeFrom).join(", ")}) r
WHERE NOT EXISTS (
  SELECT 1 FROM ${inbox} i WITH (READCOMMITTEDLOCK, FORCESEEK)
  WHERE i.${c.source} = ${textOf("source", "nvarchar(4000)")}
    AND i.${c.idempotencyKey} = ${textOf("idempotencyKey", "nvarchar(4000)")})
ORDER BY r.turn;
SELECT ${microsecondsOf("MAX(s.created_at)")} AS latest FROM @stored s;
SELECT s.id FROM @stored s;`,

    candidates: perSourceCount("inbox.relay candidates(limit int, ownKeySources list)", (count) =>
      candidates(
        `SELECT TOP (@limit) i.${c.id}
FROM ${inbox} i ${TO_CHANGE}
WHERE ${waitsForRelay} AND ${isDue} AND ${ofSources(count)}
ORDER BY ${inOrder}`,
        count,
      ),
    ),

    namedCandidates: perSourceCount("inbox.relay candidates of named rows(ids list, ownKeySources list)", (count) =>
      candidates(
        `SELECT i.${c.id}
FROM @named m JOIN ${inbox} i ${BY_ID.take} ON i.${c.id} = m.id
WHERE ${waitsForRelay} AND ${isDue}`,
        count,
        NAMED_IDS,
      ),
    ),

    /**
     * The second half of a relay pass: `@rows` and `@texts` (see {@link textBatch}), the rendered rows in order, with
     * `position`, and `dead` {@link DEAD}; `@maxAttempts`; `@ownKeySources`, JSON array. Returns the ids that
     * were marked.
     *
     * The outbox row takes the inbox row's id: one id from the receipt to the receiver, and the primary key keeps a
     * message from being relayed twice. Identities follow the order of the insert. Only marked rows are inserted.
     */
    relay: statement("inbox.relay(rows longText, texts bytes, maxAttempts int, ownKeySources list)")`
${BATCH}
${NOW}
${OWN_KEY_SOURCES}
DECLARE @rendered TABLE (position int NOT NULL PRIMARY KEY, id uniqueidentifier NOT NULL, dead int NOT NULL,
  ${RELAYED_TEXTS.map(placeTypes).join(", ")});
DECLARE @marked TABLE (id uniqueidentifier NOT NULL PRIMARY KEY);
INSERT INTO @rendered (position, id, dead, ${RELAYED_TEXTS.map(placeNames).join(", ")})
SELECT j.position, j.id, j.dead, ${RELAYED_TEXTS.map(placeNames).join(", ")}
FROM OPENJSON(@rows) WITH (position int '$.position', id uniqueidentifier '$.id', dead int '$.dead',
  ${RELAYED_TEXTS.map(placeFrom).join(", ")}) j;
UPDATE i
SET ${c.state} = CASE WHEN r.dead = ${DEAD.no} THEN N'processed' ELSE N'dead' END, ${c.processedAt} = @now,
  ${c.lastError} = CASE r.dead WHEN ${DEAD.emptyTopic} THEN N'${EMPTY_TOPIC}' WHEN ${DEAD.expired} THEN N'${EXPIRED}' ELSE i.${c.lastError} END
OUTPUT inserted.${c.id} INTO @marked (id)
FROM ${inbox} i ${BY_ID.change} JOIN @rendered r ON i.${c.id} = r.id
WHERE i.${c.state} = N'pending';
INSERT INTO ${outbox} (${o.id}, ${o.topic}, ${o.key}, ${o.payload}, ${o.headers}, ${o.maxAttempts}${isCopied ? `, ${o.expiresAt}` : ""})
SELECT r.id, ${textOf("topic")}, ${key}, i.${c.payload}, ${textOf("headers")}, @maxAttempts${isCopied ? `, i.${c.expiresAt}` : ""}
FROM @rendered r JOIN @marked m ON m.id = r.id JOIN ${inbox} i ${BY_ID.read} ON i.${c.id} = r.id
WHERE r.dead = ${DEAD.no}
ORDER BY r.position;
SELECT m.id FROM @marked m;`,

    waits: perSourceCount(
      "inbox.waits",
      (count) => `
${NOW}
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${inbox} i ${TO_READ} WHERE ${waitsForRelay} AND ${isDue} AND ${ofSources(count)})
  THEN 1 ELSE 0 END AS answer;`,
    ),

    /**
     * The rows that a relay pass would move: `@limit`, `@without` ids to leave out with the others of their keys,
     * `@ownKeySources` (JSON arrays), and the source names.
     */
    waiting: perSourceCount(
      "inbox.waiting(limit int, without list, ownKeySources list)",
      (count) => `
${NOW}
${OWN_KEY_SOURCES}
SELECT TOP (@limit) i.${c.id} AS id, i.${c.source} AS source
FROM ${inbox} i ${TO_READ}
WHERE ${waitsForRelay} AND ${isDue} AND ${ofSources(count)}
  AND NOT EXISTS (SELECT 1 FROM OPENJSON(@without) WITH (id uniqueidentifier '$') x WHERE x.id = i.${c.id})
  AND NOT EXISTS (
    SELECT 1 FROM OPENJSON(@without) WITH (id uniqueidentifier '$') x JOIN ${inbox} b ON b.${c.id} = x.id
    WHERE ${keyOf("b")} = ${keyOf("i")})
ORDER BY ${inOrder};`,
    ),

    /** A row that the outbox table refuses. */
    markDead: statement("inbox.mark dead(id uuid, reason longText)")`
${BATCH}
DECLARE @marked TABLE (id uniqueidentifier NOT NULL);
UPDATE i
SET ${c.state} = N'dead', ${c.processedAt} = SYSUTCDATETIME(), ${c.lastError} = @reason
OUTPUT inserted.${c.id} INTO @marked (id)
FROM ${inbox} i ${BY_ID.change}
WHERE i.${c.id} = @id AND i.${c.state} = N'pending';
SELECT b.id FROM @marked b;`,

    oldestPending: perSourceCount(
      "inbox.oldest pending",
      (count) => `
${NOW}
SELECT TOP (1) DATEDIFF_BIG(millisecond,
  CASE WHEN i.${c.scheduledAt} > i.${c.createdAt} THEN i.${c.scheduledAt} ELSE i.${c.createdAt} END, @now) AS oldest_ms
FROM ${inbox} i ${TO_READ}
WHERE i.${c.state} = N'pending' AND i.${c.consumption} = N'push' AND ${isDue} AND ${ofSources(count)}
ORDER BY ${inOrder};`,
    ),

    /** Waiting rows of other sources: `@sources`, JSON array; `@limit`, most rows to read. */
    unrelayed: statement("inbox.unrelayed(sources list, limit int)")`
DECLARE @relayed TABLE (source nvarchar(4000) COLLATE ${BINARY} NOT NULL);
INSERT INTO @relayed (source) SELECT n.source FROM OPENJSON(@sources) WITH (source nvarchar(4000) '$') n;
SELECT w.source, COUNT(*) AS count
FROM (
  SELECT TOP (@limit) i.${c.source} COLLATE ${BINARY} AS source FROM ${inbox} i ${TO_READ}
  WHERE i.${c.state} = N'pending' AND i.${c.consumption} = N'push'
  ORDER BY ${inOrder}
) w
WHERE NOT EXISTS (SELECT 1 FROM @relayed r WHERE r.source = w.source)
GROUP BY w.source
ORDER BY w.source;`,
  } as const satisfies Record<string, Statement | ((count: number) => Statement)>;
}

/** Why a relayed row is dead. */
export const DEAD = { no: 0, emptyTopic: 1, expired: 2 } as const;

/** A row's `created_at`. */
const RECEIVED = "DATEADD(microsecond, r.position, @now)";

/** See {@link Schedule}. */
const DUE = `(SELECT MAX(e.at) FROM (VALUES (${RECEIVED}), (${timeOf("r.not_before")}),
    (DATEADD(second, COALESCE(r.delay_seconds, 0), (SELECT MIN(p.at) FROM (VALUES (@now), (${timeOf("r.published_at")})) p (at))))) e (at))`;

/**
 * The earlier one of a time and a time to live, which is added in days and the rest of a day: see {@link AGE_BOUND}.
 */
const EXPIRES_AT = `,
  (SELECT MIN(e.at) FROM (VALUES (${timeOf("r.expires_at")}),
    (DATEADD(day, r.live_ms / 86400000, DATEADD(millisecond, r.live_ms % 86400000, @now)))) e (at))`;

/** Since 1970, so that JavaScript numbers hold them. */
function microsecondsOf(time: string): string {
  return `DATEDIFF_BIG(microsecond, CONVERT(datetimeoffset(7), N'1970-01-01'), ${time})`;
}

export function sourceNames(count: number): readonly string[] {
  return Array.from({ length: count }, (_, n) => `source${n}`);
}

/**
 * A statement for each number of sources, which is constant in a process. With one parameter per source the condition
 * is part of the index scan: a join with a list would lock rows of other sources.
 */
function perSourceCount(declaration: string, textFor: (count: number) => string): (count: number) => Statement {
  const { name, parameters } = signature(declaration);
  const made = new Map<number, Statement>();
  return (count) => {
    const sources = sourceNames(count).map((source) => `${source} text`);
    const found = made.get(count) ?? statement(`${name}(${[...parameters, ...sources].join(", ")})`)(textFor(count));
    made.set(count, found);
    return found;
  };
}

export type InboxStatements = ReturnType<typeof inboxStatements>;
