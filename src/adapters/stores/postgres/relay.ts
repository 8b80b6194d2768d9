import { v7 as uuidv7 } from "uuid";
import { EMPTY_TOPIC, EXPIRED, type MessageId, type NewInboxRow } from "../../../model/rows.ts";
import { listOfMessage, WHITE_SPACE } from "../../../model/topics.ts";
import {
  RECEIPT_TRACEPARENT,
  RECEIPT_TRACESTATE,
  TRACE_HEADERS,
  TRACEPARENT,
  TRACESTATE,
} from "../../../model/traceContext.ts";
import type { ClaimRequest, RelayRequest, RelayResult, RelayRules } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import type { InsertRelayed, RelayCommands, Relayed } from "../sql/inbox.ts";
import type { TableNames } from "../sql/names.ts";
import { higher, inKeyOrder, lower, type Row, textOf, type Values } from "../sql/rows.ts";
import type { ColumnTypes } from "./columns.ts";
import { allWritten, IS_CITUS, isExpired, setBack } from "./fragments.ts";
import { nextFullRead, type PostgresLowWater, writesTo } from "./lowWater.ts";
import type { OutboxParts } from "./outboxParts.ts";
import type { PostgresPool } from "./pool.ts";
import { receivedValues, renderedValues } from "./receipt.ts";
import { relayedReceiptStatements } from "./relayedReceiptSql.ts";
import { LATEST_START, type RelayQueue, relayOrder } from "./relayOrder.ts";
import { byIndex, LONGEST_MS, type Statement, statement } from "./statement.ts";

export class PostgresRelay implements RelayCommands<Statement> {
  readonly #pool: PostgresPool;
  readonly sql: ReturnType<typeof relayStatements>;
  readonly #outboxLowWater: PostgresLowWater;
  readonly #clock: Clock;
  /**
   * No row of a relayed source waits below `from`, so passes skip rows that no replica relays, and index entries of
   * relayed rows that an old transaction keeps. `unseen`: the same for rows that no look has seen. A lost connection
   * makes both invalid: another database may be behind the next one.
   */
  #observedFloor = { from: "0", unseen: "0", lostConnections: 0 };
  /** When to look again, and when from the first row on: a clock may be set back, or a row by hand. Monotonic ms. */
  #lookDueAt = 0;
  #fullLookDueAt = 0;

  /** @param outboxLowWater the marks of the outbox, which its claims refresh */
  constructor(
    pool: PostgresPool,
    sql: ReturnType<typeof relayStatements>,
    outboxLowWater: PostgresLowWater,
    clock: Clock,
  ) {
    this.#pool = pool;
    this.sql = sql;
    this.#outboxLowWater = outboxLowWater;
    this.#clock = clock;
  }

  get #from(): string {
    return this.#observedFloor.lostConnections === this.#pool.lostConnections ? this.#observedFloor.from : "0";
  }

  async anyWaits(sources: readonly string[]): Promise<boolean> {
    const { lostConnections } = this.#pool;
    const startedAt = this.#clock.monotonic();
    const isLook = startedAt >= this.#lookDueAt;
    const isFull = isLook && startedAt >= this.#fullLookDueAt;
    const unseen = this.#observedFloor.lostConnections === lostConnections ? this.#observedFloor.unseen : "0";
    const [row] = await this.#pool.run(this.sql.waits, { from: isFull ? "0" : this.#from, sources, isLook });
    if (isLook) {
      const endedAt = this.#clock.monotonic();
      if (isFull) this.#fullLookDueAt = nextFullRead(startedAt, endedAt);
      this.#lookDueAt = endedAt + LOOK_INTERVAL_MS;
      const nextUnseen = textOf(row?.unseen) ?? "0";
      const from = lower(textOf(row?.lowest) ?? unseen, lower(unseen, nextUnseen));
      this.#observedFloor = { from, unseen: nextUnseen, lostConnections };
    }
    return row?.waits === true;
  }

  get insertRelayed(): InsertRelayed | undefined {
    const { relayedReceipt } = this.sql;
    return relayedReceipt && ((rows, relay, claim) => this.#insertRelayed(relayedReceipt, rows, relay, claim));
  }

  async #insertRelayed(
    receipt: ReturnType<typeof relayedReceiptStatements>,
    rows: readonly NewInboxRow[],
    relay: RelayRules,
    claim: ClaimRequest | undefined,
  ): ReturnType<InsertRelayed> {
    const inOrder = inKeyOrder(rows);
    // Discards what a lost connection has made invalid, before the answer is noted.
    const lowWater = this.#outboxLowWater.marks();
    const hasLists = rows.some((row) => listOfMessage(row, relay) !== undefined);
    const [row, ...claimed] = await this.#pool.run(hasLists ? receipt.ofLists : receipt.plain, {
      rules: rulesOf(relay),
      maxAttempts: relay.maxAttempts,
      from: this.#from,
      relayedSources: Object.keys(relay.topics),
      ...receivedValues(inOrder),
      ...renderedValues(inOrder, relay),
      ...(claim ?? NO_CLAIM),
      lowWater,
    });
    const [first, ...others] = claimed.map(({ sequence }) => String(sequence));
    if (first !== undefined) this.#outboxLowWater.notePosition(others.reduce(higher, first));
    const relayed = row?.relayed === null ? "all" : new Set(row?.relayed as readonly MessageId[]);
    return { areAllStored: row?.all_stored === true, relayed, claimed };
  }

  async relay(request: RelayRequest, named?: readonly MessageId[]): Promise<Relayed> {
    if (this.#clock.monotonic() >= this.#lookDueAt) await this.anyWaits(Object.keys(request.topics));
    const statement = named === undefined ? this.sql.relay : this.sql.relayNamed;
    const [row] = await this.#pool.run(statement, this.#valuesOf(request, this.#from, named));
    return relayedOf(row);
  }

  async tryRelay(request: RelayRequest, id?: MessageId): Promise<Relayed> {
    const newId = uuidv7({ msecs: 0 });
    return await this.#pool.runAndRollBack(async (run) => {
      if (id === undefined) await run(this.sql.setBack, { sources: Object.keys(request.topics), id: newId });
      // The row keeps its old place, in front of those received with it: it waits for no other of its key.
      const values = this.#valuesOf(request, "0", [id ?? (newId as MessageId)]);
      const [row] = await run(this.sql.relayNamed, values);
      return relayedOf(row);
    });
  }

  #valuesOf(request: RelayRequest, from: string, named: readonly MessageId[] | undefined): Values {
    const { limit, topics, maxAttempts, droppedHeaders } = request;
    return {
      limit,
      sources: Object.keys(topics),
      rules: rulesOf(request),
      maxAttempts,
      droppedNames: droppedHeaders.names,
      droppedPrefixes: droppedHeaders.prefixes,
      from,
      ids: named,
    };
  }

  async waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]> {
    const { limit, topics, ownKeySources = [] } = request;
    return await this.#pool.run(this.sql.waiting, {
      limit,
      sources: Object.keys(topics),
      from: this.#from,
      without,
      ownKeySources: JSON.stringify(ownKeySources),
    });
  }

  async oldestPending(sources: readonly string[]): Promise<Row | undefined> {
    const [row] = await this.#pool.run(this.sql.oldestPending, { from: this.#from, sources });
    return row;
  }
}

const LOOK_INTERVAL_MS = 1000;
const rulesOf = ({ topics, ownKeySources, routing }: RelayRules): string =>
  JSON.stringify({ topics, ownKeySources, routes: routing?.hash });

const NO_CLAIM = { limit: 0, token: null, leaseMs: 0, claimTimeoutMs: 0, heldTokens: [] };

function relayedOf(row: Row | undefined): Relayed {
  const dead = (row?.dead ?? []) as { id: MessageId; source: string; expired: boolean }[];
  return {
    relayed: Number(row?.relayed ?? 0),
    traces: (row?.traces ?? undefined) as RelayResult["traces"],
    dead: dead.map(({ id, source, expired }) => ({ id, source, reason: expired ? EXPIRED : EMPTY_TOPIC })),
    candidates: Number(row?.candidates ?? 0),
  };
}

/** @param outboxParts those of a receipt that relays and claims; undefined if receipts do not relay */
export function relayStatements(names: TableNames, types: ColumnTypes, outboxParts: OutboxParts | undefined) {
  const inbox = names.inboxTable;
  const outbox = names.outboxTable;
  const c = names.inbox;
  const o = names.outbox;
  const { waitsForRelay, ORDINARY, DEFERRED, hasCome, waitsIn, keyOf } = relayOrder(names);
  /** The first due rows of a queue. @param columns besides its position, `created_at` and `id` @param and conditions */
  const firstDue = (queue: RelayQueue, from: string, columns: string, and: string, limit: string): string => `
  SELECT ${queue.position} AS position, i.${c.createdAt} AS created_at, i.${c.id} AS id, ${columns}
  FROM ${inbox} i
  WHERE ${waitsIn(queue, from)}${hasCome(queue, "now()")}${and}
  ORDER BY ${queue.position}${queue === ORDINARY ? "" : `, i.${c.createdAt}`}, i.${c.id}
  LIMIT ${limit}`;

  const expired = isExpired(c.expiresAt, "i");
  const isCopied = c.expiresAt !== null && o.expiresAt !== null;
  /**
   * One relay pass. It locks the first rows of each queue and takes the first ones of both; the others stay locked up
   * to its end. `rules` ($3, jsonb) has the pieces of the topic template per source and the sources with keys of their
   * own.
   *
   * `stops` holds back a key's rows behind an earlier row that another replica is relaying: candidates are the oldest
   * rows of the relayed sources, so any other row among them is locked by another replica. See the outbox claim for why
   * this is safe. `rendered` makes topics and headers as `renderTopic` and `renderHeaders` do; payloads never leave the
   * database. The outbox row takes the inbox row's id, so that the primary key keeps a message from being relayed
   * twice.
   *
   * If a trigger skips a row without an error, an inbox row must not become processed without its outbox row, nor stay
   * pending and be relayed again by each pass.
   */
  const key = keyOf("i", "$3::jsonb -> 'ownKeySources'");
  const candidates = (queue: RelayQueue, narrowed: boolean): string => `${firstDue(
    queue,
    "$7",
    `${key} AS key`,
    ` AND i.${c.source} = ANY ($2::text[])${narrowed ? ` AND i.${c.id} = ANY ($8::uuid[])` : ""}`,
    "$1::int",
  )}
  FOR NO KEY UPDATE OF i SKIP LOCKED`;
  const earlier = (queue: RelayQueue): string => `
    SELECT ${key} AS key, ${queue.position} AS position, i.${c.createdAt} AS created_at, i.${c.id} AS id
    FROM ${inbox} i
    WHERE ${waitsIn(queue, "$7")}${hasCome(queue, "clock_timestamp()")} AND i.${c.source} = ANY ($2::text[]) AND i.${c.aggregateId} IS NOT NULL
      AND ${queue.position} <= (SELECT position FROM last)
      AND (${queue.position}, i.${c.createdAt}, i.${c.id}) <= (SELECT position, created_at, id FROM last)
      AND i.${c.id} NOT IN (SELECT id FROM candidates)`;
  const relay = (narrowed: boolean): string => `
WITH ordinary AS MATERIALIZED (${candidates(ORDINARY, narrowed)}),
put_off AS MATERIALIZED (${candidates(DEFERRED, narrowed)}),
candidates AS MATERIALIZED (
  SELECT * FROM ordinary UNION ALL SELECT * FROM put_off
  ORDER BY position, created_at, id LIMIT $1::int
),
last AS MATERIALIZED (SELECT position, created_at, id FROM candidates ORDER BY 1 DESC, 2 DESC, 3 DESC LIMIT 1),
stops AS MATERIALIZED (
  SELECT DISTINCT ON (key) key, position, created_at, id
  FROM (${earlier(ORDINARY)} UNION ALL${earlier(DEFERRED)}) e
  ORDER BY key, position, created_at, id
),
rendered AS MATERIALIZED (
  SELECT i.${c.id} AS id, f.position, f.created_at, f.key, i.${c.payload} AS payload, i.${c.source} AS source,
    ${isCopied ? `i.${c.expiresAt} AS expires_at, ` : ""}${expired} AS expired,
    btrim(array_to_string(ARRAY(SELECT jsonb_array_elements_text($3::jsonb -> 'topics' -> i.${c.source})),
      coalesce(i.${c.eventType}, '') COLLATE "default"), '${WHITE_SPACE}') AS topic,
    (i.${c.headers}::jsonb - ARRAY(
      SELECT h.name FROM (SELECT name, lower(name COLLATE "C") AS lower_name FROM jsonb_object_keys(i.${c.headers}::jsonb) name) h
      WHERE h.lower_name = ANY ($5::text[]) OR h.lower_name ^@ ANY ($6::text[])
        OR (h.lower_name = 'content-type' AND i.${c.headers}::jsonb ->> h.name !~* '[/+]json')
        OR (i.${c.headers}::jsonb ? '${RECEIPT_TRACEPARENT}' AND h.lower_name IN (${TRACE_HEADERS.map((name) => `'${name}'`).join(", ")}))))
    || jsonb_strip_nulls(jsonb_build_object('x-correlation-id', i.${c.correlationId}, 'x-inbox-id', i.${c.id},
         'x-source', i.${c.source}, 'x-idempotency-key', i.${c.idempotencyKey}))
    || CASE WHEN i.${c.headers}::jsonb ? '${RECEIPT_TRACEPARENT}' THEN jsonb_strip_nulls(jsonb_build_object(
         '${TRACEPARENT}', i.${c.headers}::jsonb ->> '${RECEIPT_TRACEPARENT}',
         '${TRACESTATE}', i.${c.headers}::jsonb ->> '${RECEIPT_TRACESTATE}')) ELSE '{}' END AS headers
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
  (SELECT count(*) FROM rendered WHERE topic <> '' AND NOT expired)::int AS relayed,
  (SELECT array_agg(headers ->> '${TRACEPARENT}') FROM rendered WHERE headers ->> '${TRACEPARENT}' IS NOT NULL AND topic <> '' AND NOT expired) AS traces,
  ${allWritten("(SELECT count(*) FROM rendered WHERE topic <> '' AND NOT expired)", "(SELECT count(*) FROM made)")} AS all_made,
  ${allWritten("(SELECT count(*) FROM rendered)", "(SELECT count(*) FROM marked WHERE state <> 'pending')")} AS all_marked,
  coalesce((SELECT jsonb_agg(jsonb_build_object('id', id, 'source', source, 'expired', expired))
    FROM rendered WHERE topic = '' OR expired), '[]') AS dead`;

  const lowest = (queue: RelayQueue): string => `(SELECT ${queue.position} FROM ${inbox} i
  WHERE ${waitsIn(queue, "$1")}${hasCome(queue, "now()")} AND i.${c.source} = ANY ($2::text[]) ORDER BY ${queue.position} LIMIT 1)`;
  const positionOf = (time: string): string =>
    `CASE WHEN isfinite(${time}) THEN (extract(epoch FROM (${time})::timestamptz) * 1000000)::bigint - 1 END`;
  /** When the oldest transaction began that writes to the inbox. That of another user may be hidden, or be prepared. */
  const oldestWriter = `SELECT min(coalesce(a.xact_start, now() - interval '${2 * LONGEST_MS} milliseconds'))
    FROM pg_lock_status() k LEFT JOIN pg_stat_get_activity(NULL) a ON a.pid = k.pid
    WHERE k.granted AND ${writesTo(inbox, "k")} AND k.database = (SELECT own.datid FROM pg_stat_get_activity(pg_backend_pid()) own)`;
  const waiting = (queue: RelayQueue): string =>
    firstDue(
      queue,
      "$3",
      `i.${c.source} AS source`,
      ` AND i.${c.source} = ANY ($2::text[])
    AND i.${c.id} <> ALL ($4::uuid[]) AND (i.${c.aggregateId} IS NULL OR ${keyOf("i", "$5::jsonb")} NOT IN (
      SELECT ${keyOf("x", "$5::jsonb")} FROM ${inbox} x WHERE x.${c.id} = ANY ($4::uuid[]) AND x.${c.aggregateId} IS NOT NULL))`,
      "$1::int",
    );
  const oldest = (queue: RelayQueue): string =>
    firstDue(queue, "$1", "1", ` AND i.${c.source} = ANY ($2::text[]) AND isfinite(i.${c.createdAt})`, "1");

  return {
    relayedReceipt: outboxParts && relayedReceiptStatements(names, types, outboxParts),
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
     * Whether a row waits from a position on. With `isLook` also the first one (`lowest`), and the position below which
     * the next look will see every row (`unseen`): a transaction that does not write yet gives later times. The order
     * makes the planner take the index.
     */
    waits: statement("inbox.waits(from, sources, isLook)", { takesTurns: true })`
SELECT w.first IS NOT NULL AS waits, CASE WHEN $3::boolean THEN ${positionOf("w.first")} END AS lowest,
  CASE WHEN $3::boolean AND NOT ${IS_CITUS} THEN ${positionOf(`least(${LATEST_START}, (${oldestWriter}))`)} END AS unseen
FROM (SELECT least(${lowest(ORDINARY)}, ${lowest(DEFERRED)}) AS first) w`,

    /** The rows that a relay pass would move, without some rows and the others of their keys. */
    waiting: statement("inbox.waiting(limit, sources, from, without, ownKeySources)")`
SELECT w.id, w.source FROM ((${waiting(ORDINARY)}) UNION ALL (${waiting(DEFERRED)})) w
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

    oldestPending: byIndex("inbox.oldest pending(from, sources)", { takesTurns: true })`
SELECT extract(epoch FROM now() - w.position) * 1000 AS oldest_ms
FROM ((${oldest(ORDINARY)}) UNION ALL (${oldest(DEFERRED)})) w
ORDER BY w.position LIMIT 1`,

    /** Waiting rows of other sources, which no mark holds, among the first `limit` waiting rows */
    unrelayed: byIndex("inbox.unrelayed(sources, limit)", { takesTurns: true })`
SELECT w.source, count(*)::int AS count FROM (
  SELECT i.${c.source} AS source FROM ${inbox} i WHERE ${waitsForRelay} ORDER BY i.${c.createdAt}, i.${c.id} LIMIT $2::int) w
WHERE w.source <> ALL ($1::text[]) GROUP BY w.source ORDER BY w.source`,
  } as const satisfies Record<string, Statement | ReturnType<typeof relayedReceiptStatements> | undefined>;
}

const RELAY_PARAMETERS = "limit, sources, rules, maxAttempts, droppedNames, droppedPrefixes, from";
