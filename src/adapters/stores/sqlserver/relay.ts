import { v7 as uuidv7 } from "uuid";
import { EMPTY_TOPIC, EXPIRED, type MessageId } from "../../../model/rows.ts";
import { renderTopic } from "../../../model/topics.ts";
import { TRACEPARENT } from "../../../model/traceContext.ts";
import type { RelayRequest } from "../../../ports/store.ts";
import type { RelayCommands, Relayed } from "../sql/inbox.ts";
import { type ReceivedRow, renderHeaders } from "../sql/inbox.ts";
import type { TableNames } from "../sql/names.ts";
import { headersOf, type Row, signature, type Values } from "../sql/rows.ts";
import {
  BATCH,
  BY_ID,
  COLLATED,
  isExpired,
  NAMED_IDS,
  NOW,
  placeFrom,
  placeNames,
  placeTypes,
  setBack,
  TO_CHANGE,
  TO_READ,
  textBatch,
  textOf,
} from "./fragments.ts";
import type { Executor, SqlServerPool } from "./pool.ts";
import { type Statement, statement } from "./statement.ts";

export class SqlServerRelay implements RelayCommands<Statement> {
  readonly #pool: SqlServerPool;
  readonly sql: ReturnType<typeof relayStatements>;

  constructor(pool: SqlServerPool, names: TableNames) {
    this.#pool = pool;
    this.sql = relayStatements(names);
  }

  async anyWaits(sources: readonly string[]): Promise<boolean> {
    const [row] = await this.#pool.run(this.sql.waits(sources.length), sourceValues(sources));
    return row?.answer === 1;
  }

  async relay(request: RelayRequest, named?: readonly MessageId[]): Promise<Relayed> {
    return await this.#pool.transaction(this.sql.relay, (within) => this.#relayIn(within, request, named));
  }

  async tryRelay(request: RelayRequest, id?: MessageId): Promise<Relayed> {
    const newId = uuidv7() as MessageId;
    return await this.#pool.trial(this.sql.relay, async (within) => {
      const sources = sourcesOf(request);
      if (id === undefined) await within.run(this.sql.setBack(sources.length), { ...sourceValues(sources), id: newId });
      return await this.#relayIn(within, request, [id ?? newId]);
    });
  }

  async #relayIn({ run, runAll }: Executor, request: RelayRequest, named?: readonly MessageId[]): Promise<Relayed> {
    const { candidates, namedCandidates } = this.sql;
    const choose = (named === undefined ? candidates : namedCandidates)(sourcesOf(request).length);
    const values = { ...(named === undefined ? { limit: request.limit } : { ids: named }), ...relayValues(request) };
    const [counts, chosen] = await runAll(choose, values);
    const positions = Number(counts?.[0]?.positions ?? 0);
    const rows = (chosen ?? []).map(receivedRow).map((row, position) => renderedRow(row, position, request));
    if (rows.length === 0) return { candidates: positions, relayed: 0, dead: [] };
    const marked = await run(this.sql.relay, {
      ...textBatch(rows, RELAYED_TEXTS),
      maxAttempts: request.maxAttempts,
      ownKeySources: request.ownKeySources ?? [],
    });
    const ids = new Set(marked.map((row) => row.id));
    const done = rows.filter((row) => ids.has(row.id));
    const dead = done.filter((row) => row.dead !== DEAD.no);
    return {
      candidates: positions,
      relayed: done.length - dead.length,
      traces: done.flatMap((row) => (row.dead === DEAD.no && row.traceparent !== undefined ? [row.traceparent] : [])),
      dead: dead.map(({ id, source, dead: why }) => ({
        id,
        source,
        reason: why === DEAD.expired ? EXPIRED : EMPTY_TOPIC,
      })),
    };
  }

  async waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]> {
    const values = { limit: request.limit, without, ...relayValues(request) };
    return await this.#pool.run(this.sql.waiting(sourcesOf(request).length), values);
  }

  async oldestPending(sources: readonly string[]): Promise<Row | undefined> {
    const [row] = await this.#pool.run(this.sql.oldestPending(sources.length), sourceValues(sources));
    return row;
  }
}

function sourceValues(sources: readonly string[]): Values {
  return Object.fromEntries(sourceNames(sources.length).map((name, n) => [name, sources[n]]));
}

const sourcesOf = ({ topics }: RelayRequest): readonly string[] => Object.keys(topics);

function relayValues(request: RelayRequest): Values {
  return { ...sourceValues(Object.keys(request.topics)), ownKeySources: request.ownKeySources ?? [] };
}

/** A row that a pass reads; the payload goes from table to table. */
interface ReadRow extends ReceivedRow {
  readonly isExpired: boolean;
}

function receivedRow(row: Row): ReadRow {
  return {
    id: row.id as MessageId,
    source: row.source as string,
    eventType: row.event_type as string | null,
    idempotencyKey: row.idempotency_key as string,
    correlationId: row.correlation_id as string | null,
    headers: headersOf(row.headers),
    isExpired: row.is_expired === 1,
  };
}

function renderedRow(row: ReadRow, position: number, { topics, droppedHeaders }: RelayRequest) {
  const topic = renderTopic(topics[row.source] ?? [], row.eventType);
  const headers = renderHeaders(row, droppedHeaders);
  return {
    position,
    id: row.id,
    source: row.source,
    dead: deadReason(row, topic),
    topic,
    headers: JSON.stringify(headers),
    traceparent: headers[TRACEPARENT],
  };
}

function deadReason({ isExpired }: ReadRow, topic: string): number {
  if (isExpired) return DEAD.expired;
  return topic === "" ? DEAD.emptyTopic : DEAD.no;
}

const RELAYED_TEXTS = ["topic", "headers"] as const;

const OWN_KEY_SOURCES = `DECLARE @own_key_sources TABLE (source nvarchar(4000) ${COLLATED} NOT NULL);
INSERT INTO @own_key_sources (source) SELECT n.source FROM OPENJSON(@ownKeySources) WITH (source nvarchar(4000) ${COLLATED} '$') n;`;

/**
 * States and consumptions are literals: a parameter would keep the optimizer from the filtered indexes. `OUTPUT` goes
 * into a table variable, as tables with triggers require.
 *
 * @param names already quoted
 */
export function relayStatements(names: TableNames) {
  const inbox = names.inboxTable;
  const outbox = names.outboxTable;
  const c = names.inbox;
  const o = names.outbox;
  const waitsForRelay = `i.${c.state} = N'pending' AND i.${c.consumption} = N'push'`;
  /**
   * A row that was not put off is due from its receipt on, also if the clock was set back since. The index is read up
   * to ten seconds ahead, and no further, however many rows are put off.
   */
  const isDueAt = (clock: string): string =>
    `i.${c.scheduledAt} <= DATEADD(second, 10, ${clock}) AND (i.${c.scheduledAt} <= ${clock} OR i.${c.scheduledAt} <= i.${c.createdAt})`;
  const isDue = isDueAt("@now");
  const ofSources = (count: number, row = "i"): string =>
    `${row}.${c.source} IN (${sourceNames(count)
      .map((name) => `@${name}`)
      .join(", ")})`;
  /**
   * See the relay of PostgreSQL. One index serves here: no row is inserted with `scheduled_at` before its `created_at`.
   */
  const inOrder = `i.${c.scheduledAt}, i.${c.createdAt}, i.${c.id}`;
  const isCopied = c.expiresAt !== null && o.expiresAt !== null;
  const keyOf = (
    row: string,
  ): string => `CASE WHEN EXISTS (SELECT 1 FROM @own_key_sources w WHERE w.source = ${row}.${c.source})
    THEN ${row}.${c.source} + N':' + ${row}.${c.aggregateId} ELSE ${row}.${c.aggregateId} END ${COLLATED}`;
  const key = keyOf("i");

  /**
   * The first half of a relay pass, in its transaction: chooses and locks up to `@limit` rows to relay. Returns two
   * result sets: the number of positions, then the rows to relay, in order.
   *
   * - positions: the oldest waiting rows, except rows that another relay has locked.
   * - candidates: rows that could be locked as such, not only as index entries.
   * - stops: per outbox key the times of the first waiting row that is not a candidate: another relay has it locked, as
   *   candidates are the first rows of the sources. The key's rows from these times on wait. Nothing is skipped, see
   *   the outbox claim. Keys are compared under one collation, that of the table variables.
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
  created_at datetimeoffset(7) NOT NULL, outbox_key nvarchar(4000) ${COLLATED} NULL);
DECLARE @stops TABLE (outbox_key nvarchar(4000) ${COLLATED} NOT NULL, position datetimeoffset(7) NOT NULL,
  created_at datetimeoffset(7) NOT NULL);
INSERT INTO @positions (id)
${positions};
INSERT INTO @candidates (id, position, created_at, outbox_key)
SELECT i.${c.id}, i.${c.scheduledAt}, i.${c.createdAt}, ${key}
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
    SELECT ${key} AS outbox_key, i.${c.scheduledAt} AS position, i.${c.createdAt} AS created_at
    FROM ${inbox} i
    WHERE ${waitsForRelay} AND ${isDueAt("@lookedAt")} AND ${ofSources(count)}
      AND i.${c.aggregateId} IS NOT NULL AND i.${c.scheduledAt} <= @last_position
      AND (i.${c.scheduledAt} < @last_position OR i.${c.createdAt} < @last_created_at
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
     * `position`, and `dead` {@link DEAD}. Returns the ids that were marked.
     *
     * The outbox row takes the inbox row's id, so that the primary key keeps a message from being relayed twice.
     * Identities follow the order of the insert. Only marked rows are inserted.
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

    /** The last relayed row, under a new id: its outbox row has the old one. */
    setBack: perSourceCount("inbox.set back the last relayed row(id uuid)", (count) =>
      setBack(
        inbox,
        c,
        `f.${c.state} = N'processed' AND f.${c.consumption} = N'push' AND ${ofSources(count, "f")}`,
        `f.${c.createdAt} DESC, f.${c.id} DESC`,
        `, ${c.id} = @id${c.expiresAt === null ? "" : `, ${c.expiresAt} = NULL`}`,
      ),
    ),

    waits: perSourceCount(
      "inbox.waits",
      (count) => `
${NOW}
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${inbox} i ${TO_READ} WHERE ${waitsForRelay} AND ${isDue} AND ${ofSources(count)})
  THEN 1 ELSE 0 END AS answer;`,
    ),

    /** The rows that a relay pass would move, without the ids of `@without` and other rows of their keys. */
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
DECLARE @relayed TABLE (source nvarchar(4000) ${COLLATED} NOT NULL);
INSERT INTO @relayed (source) SELECT n.source FROM OPENJSON(@sources) WITH (source nvarchar(4000) ${COLLATED} '$') n;
SELECT w.source, COUNT(*) AS count
FROM (
  SELECT TOP (@limit) i.${c.source} AS source FROM ${inbox} i ${TO_READ}
  WHERE i.${c.state} = N'pending' AND i.${c.consumption} = N'push'
  ORDER BY ${inOrder}
) w
WHERE NOT EXISTS (SELECT 1 FROM @relayed r WHERE r.source = w.source)
GROUP BY w.source
ORDER BY w.source;`,
  } as const satisfies Record<string, Statement | ((count: number) => Statement)>;
}

const DEAD = { no: 0, emptyTopic: 1, expired: 2 } as const;

function sourceNames(count: number): readonly string[] {
  return Array.from({ length: count }, (_, n) => `source${n}`);
}

/**
 * A statement for each number of sources, which is constant in a process. One parameter per source makes the condition
 * part of the index scan: a join with a list would lock rows of other sources.
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
