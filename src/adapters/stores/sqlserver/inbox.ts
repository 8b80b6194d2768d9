import { createHash } from "node:crypto";
import type { InsertResult, MessageId, NewInboxRow } from "../../../model/rows.ts";
import type { InboxStore, RelayRequest, RelayResult, UnrelayedRows } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { headersOf } from "../sql/headers.ts";
import { inKeyOrder } from "../sql/keyOrder.ts";
import { EMPTY_TOPIC, insertAroundPoison, relayAroundPoison } from "../sql/poison.ts";
import { isRefused } from "../sql/refused.ts";
import { LeftOut } from "../sql/refusedClaims.ts";
import { oldestAgeMs } from "../sql/rows.ts";
import { isDuplicateKey } from "./errors.ts";
import { INSERTED_TEXTS, type InboxStatements, RELAYED_TEXTS, sourceNames } from "./inboxSql.ts";
import type { SqlServerPool } from "./pool.ts";
import { type ReceivedRow, renderHeaders, renderTopic } from "./rendering.ts";
import type { Row, Statement, Values } from "./statement.ts";
import { textBatch } from "./texts.ts";

/** The inbox on SQL Server: receipt in one statement per batch, relay in two statements of one transaction per pass. */
export class SqlServerInbox implements InboxStore {
  /** Neither the protocol nor the driver sends a request behind another. */
  readonly pipelinesInserts = false;
  readonly #pool: SqlServerPool;
  readonly #sql: InboxStatements;
  readonly #leftOut: LeftOut;
  /** The last relay pass met no waiting row. */
  #idle = false;
  /** The latest `created_at` that this process gave, in microseconds since 1970. */
  #latest: number | null = null;

  constructor(pool: SqlServerPool, statements: InboxStatements, clock: Clock) {
    this.#pool = pool;
    this.#leftOut = new LeftOut(clock);
    this.#sql = statements;
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    return await insertAroundPoison(rows, (part) => this.#insertAll(part));
  }

  async relay(request: RelayRequest): Promise<RelayResult> {
    const sources = Object.keys(request.topics);
    if (sources.length === 0) return NOTHING;
    // Looking costs a fraction of a relay pass, which an idle relay would make ten times a second.
    if (this.#idle && !(await this.#anyWaits(sources))) return NOTHING;
    if (this.#leftOut.ids().length > 0) return await this.#relayAroundPoison(request, sources);
    try {
      const candidates = this.#sql.candidates(sources.length);
      const result = await this.#relay(request, candidates, { limit: request.limit, ...relayValues(request) });
      this.#idle = result.positions === 0;
      return { relayed: result.relayed, dead: result.dead, more: result.positions >= request.limit };
    } catch (error) {
      if (!isRefused(error)) throw error;
      return await this.#relayAroundPoison(request, sources);
    }
  }

  async oldestPendingAgeMs(sources: readonly string[]): Promise<number | null> {
    if (sources.length === 0) return null;
    const [row] = await this.#pool.run(this.#sql.oldestPending(sources.length), sourceValues(sources));
    return oldestAgeMs(row);
  }

  async unrelayed(sources: readonly string[], limit: number): Promise<readonly UnrelayedRows[]> {
    const rows = await this.#pool.run(this.#sql.unrelayed, { sources: JSON.stringify(sources), limit });
    return rows.map(({ source, count }) => ({ source: String(source), count: Number(count) }));
  }

  /** Tries again when another batch has stored a key of this one meanwhile: the next look finds it. */
  async #insertAll(rows: readonly NewInboxRow[]): Promise<InsertResult[]> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#tryInsert(rows);
      } catch (error) {
        if (!isDuplicateKey(error) || tries >= DUPLICATE_TRIES) throw error;
      }
    }
  }

  async #tryInsert(rows: readonly NewInboxRow[]): Promise<InsertResult[]> {
    if (rows.length === 0) return [];
    const firsts = inKeyOrder(firstOfEachKey(rows.map(insertedRow)));
    const [latest, ids] = await this.#pool.runAll(this.#sql.insert, {
      ...textBatch(
        firsts.map((row, turn) => ({ ...row, turn })),
        INSERTED_TEXTS,
      ),
      latest: this.#latest,
    });
    this.#remember(latest?.[0]?.latest);
    const stored = new Set((ids ?? []).map((row) => row.id));
    return rows.map((row) => (stored.has(row.id) ? STORED : DUPLICATE));
  }

  /** @param latest of one batch; batches that ran at once answer in any order */
  #remember(latest: unknown): void {
    if (latest === null || latest === undefined) return;
    this.#latest = Math.max(this.#latest ?? 0, Number(latest));
  }

  async #anyWaits(sources: readonly string[]): Promise<boolean> {
    const [row] = await this.#pool.run(this.#sql.waits(sources.length), sourceValues(sources));
    return row?.waits === 1;
  }

  /** @param choose one of the statements that choose and lock candidates */
  async #relay(request: RelayRequest, choose: Statement, values: Values): Promise<Relayed> {
    return await this.#pool.transaction(this.#sql.relay.name, async (transaction) => {
      const [counts, chosen] = await transaction.runAll(choose, values);
      const positions = Number(counts?.[0]?.positions ?? 0);
      const rows = (chosen ?? []).map(receivedRow).map((row, position) => renderedRow(row, position, request));
      if (rows.length === 0) return { positions, relayed: 0, dead: [] };
      const marked = await transaction.run(this.#sql.relay, {
        ...textBatch(rows, RELAYED_TEXTS),
        maxAttempts: request.maxAttempts,
        ownKeySources: ownKeySourcesOf(request),
      });
      const ids = new Set(marked.map((row) => row.id));
      const done = rows.filter((row) => ids.has(row.id));
      const dead = done.filter((row) => row.dead === 1);
      return {
        positions,
        relayed: done.length - dead.length,
        dead: dead.map(({ id, source }) => ({ id, source, reason: EMPTY_TOPIC })),
      };
    });
  }

  /** Some row of the batch is refused by the outbox table: relays the others and buries that one, in their order. */
  async #relayAroundPoison(request: RelayRequest, sources: readonly string[]): Promise<RelayResult> {
    const waiting = await this.#pool.run(this.#sql.waiting(sources.length), {
      limit: request.limit,
      leftOut: JSON.stringify(this.#leftOut.ids()),
      ...relayValues(request),
    });
    const named = this.#sql.namedCandidates(sources.length);
    const result = await relayAroundPoison(
      waiting,
      (ids) => this.#relay(request, named, { ids: JSON.stringify(ids), ...relayValues(request) }),
      async (id, reason) => (await this.#pool.run(this.#sql.bury, { id, reason })).length > 0,
    );
    this.#leftOut.add(result.refused ?? []);
    return { ...result, more: waiting.length >= request.limit };
  }
}

interface Relayed extends Pick<RelayResult, "relayed" | "dead"> {
  /** Waiting rows that were looked at. */
  readonly positions: number;
}

const STORED: InsertResult = { kind: "stored" };
const DUPLICATE: InsertResult = { kind: "duplicate" };
const NOTHING: RelayResult = { relayed: 0, dead: [], more: false };

/** Each further try needs one more batch that stores a key in the moment between the look and the insert. */
const DUPLICATE_TRIES = 5;

function insertedRow(row: NewInboxRow, position: number) {
  return { ...row, position, idempotencyKey: storedKey(row.idempotencyKey), headers: JSON.stringify(row.headers) };
}

type InsertedRow = ReturnType<typeof insertedRow>;

/** Of rows with one key in one batch the first. */
function firstOfEachKey(rows: readonly InsertedRow[]): readonly InsertedRow[] {
  const firsts = new Map<string, InsertedRow>();
  for (const row of rows) {
    const key = `${row.source.length} ${row.source} ${row.idempotencyKey}`;
    if (!firsts.has(key)) firsts.set(key, row);
  }
  return [...firsts.values()];
}

/** SQL Server compares text without the spaces at its end, under every collation: such a key is stored as its digest, as a long one is. */
function storedKey(key: string): string {
  return key.endsWith(" ") ? `sha256:${createHash("sha256").update(key, "utf8").digest("hex")}` : key;
}

function sourceValues(sources: readonly string[]): Values {
  return Object.fromEntries(sourceNames(sources.length).map((name, n) => [name, sources[n]]));
}

/** What choosing candidates needs to know of the sources. */
function relayValues(request: RelayRequest): Values {
  return { ...sourceValues(Object.keys(request.topics)), ownKeySources: ownKeySourcesOf(request) };
}

function ownKeySourcesOf({ ownKeySources = [] }: RelayRequest): string {
  return JSON.stringify(ownKeySources);
}

function receivedRow(row: Row): ReceivedRow {
  return {
    id: row.id as MessageId,
    source: row.source as string,
    eventType: row.event_type as string | null,
    idempotencyKey: row.idempotency_key as string,
    correlationId: row.correlation_id as string | null,
    headers: headersOf(row.headers),
  };
}

function renderedRow(row: ReceivedRow, position: number, { topics, droppedHeaders }: RelayRequest) {
  const topic = renderTopic(topics[row.source] ?? [], row.eventType);
  return {
    position,
    id: row.id,
    source: row.source,
    dead: topic === "" ? 1 : 0,
    topic,
    headers: JSON.stringify(renderHeaders(row, droppedHeaders)),
  };
}
