import { createHash } from "node:crypto";
import { StoreError } from "../../../model/errors.ts";
import {
  EXPIRED,
  type Headers,
  type InsertResult,
  type MessageId,
  type NewInboxRow,
  type Schedule,
} from "../../../model/rows.ts";
import type { RelayRequest } from "../../../ports/store.ts";
import { EMPTY_TOPIC, type InboxCommands, inKeyOrder, type Relayed } from "../sql/inbox.ts";
import { headersOf, type Row, type Values } from "../sql/rows.ts";
import { isDuplicateKey } from "./errors.ts";
import { textBatch } from "./fragments.ts";
import { DEAD, INSERTED_TEXTS, type InboxStatements, RELAYED_TEXTS, sourceNames } from "./inboxSql.ts";
import type { SqlServerPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** The inbox on SQL Server: a receipt is one statement per batch, a relay pass two in one transaction. */
export class SqlServerInbox implements InboxCommands {
  readonly #pool: SqlServerPool;
  readonly #sql: InboxStatements;
  /** The latest `created_at` that this process gave, in microseconds since 1970. */
  #latest: number | null = null;

  constructor(pool: SqlServerPool, statements: InboxStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  /** Tries again when another batch has stored a key of this one meanwhile: the next try finds it. */
  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    return await againOnDuplicate(() => this.#tryInsert(rows, this.#pool));
  }

  async insertWhole(rows: readonly NewInboxRow[], isTrial: boolean): Promise<readonly InsertResult[]> {
    // One statement: the database stores all of its rows or none.
    if (!isTrial) return await this.insert(rows);
    let outcomes: readonly InsertResult[] = [];
    const rolledBack = new StoreError("other", `${this.#sql.insert.name}: rolled back`);
    const trial = () =>
      this.#pool.transaction(this.#sql.insert.name, async (transaction) => {
        outcomes = await this.#tryInsert(rows, transaction);
        throw rolledBack;
      });
    await againOnDuplicate(trial).catch((error: unknown) => {
      if (error !== rolledBack) throw error;
    });
    return outcomes;
  }

  async #tryInsert(
    rows: readonly NewInboxRow[],
    database: Pick<SqlServerPool, "runAll">,
  ): Promise<readonly InsertResult[]> {
    if (rows.length === 0) return [];
    const firsts = inKeyOrder(firstOfEachKey(rows.map(insertedRow)));
    const [latest, ids] = await database.runAll(this.#sql.insert, {
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

  /** There are no low-water marks. */
  async prepareRelay(): Promise<void> {}

  async anyWaits(sources: readonly string[]): Promise<boolean> {
    const [row] = await this.#pool.run(this.#sql.waits(sources.length), sourceValues(sources));
    return row?.answer === 1;
  }

  async relay(request: RelayRequest): Promise<Relayed> {
    const values = { limit: request.limit, ...relayValues(request) };
    return await this.#relayChosen(request, this.#sql.candidates(sourcesOf(request).length), values);
  }

  async relayNamed(request: RelayRequest, ids: readonly MessageId[]): Promise<Relayed> {
    const values = { ids, ...relayValues(request) };
    return await this.#relayChosen(request, this.#sql.namedCandidates(sourcesOf(request).length), values);
  }

  async waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]> {
    const values = { limit: request.limit, without, ...relayValues(request) };
    return await this.#pool.run(this.#sql.waiting(sourcesOf(request).length), values);
  }

  async markDead(id: MessageId, reason: string): Promise<boolean> {
    return (await this.#pool.run(this.#sql.markDead, { id, reason })).length > 0;
  }

  async oldestPending(sources: readonly string[]): Promise<Row | undefined> {
    const [row] = await this.#pool.run(this.#sql.oldestPending(sources.length), sourceValues(sources));
    return row;
  }

  async unrelayed(sources: readonly string[], limit: number): Promise<readonly Row[]> {
    return await this.#pool.run(this.#sql.unrelayed, { sources, limit });
  }

  async #relayChosen(request: RelayRequest, choose: Statement, values: Values): Promise<Relayed> {
    return await this.#pool.transaction(this.#sql.relay.name, async (transaction) => {
      const [counts, chosen] = await transaction.runAll(choose, values);
      const positions = Number(counts?.[0]?.positions ?? 0);
      const rows = (chosen ?? []).map(receivedRow).map((row, position) => renderedRow(row, position, request));
      if (rows.length === 0) return { candidates: positions, relayed: 0, dead: [] };
      const marked = await transaction.run(this.#sql.relay, {
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
        dead: dead.map(({ id, source, dead: why }) => ({
          id,
          source,
          reason: why === DEAD.expired ? EXPIRED : EMPTY_TOPIC,
        })),
      };
    });
  }
}

const STORED: InsertResult = { kind: "stored" };
const DUPLICATE: InsertResult = { kind: "duplicate" };

async function againOnDuplicate<T>(attempt: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (!isDuplicateKey(error) || tries >= DUPLICATE_TRIES) throw error;
    }
  }
}

/** Each further try needs one more batch that stores a key in the moment between the check and the insert. */
const DUPLICATE_TRIES = 5;

function insertedRow({ schedule, expiry, ...row }: NewInboxRow, position: number) {
  return {
    ...row,
    position,
    ...(schedule === undefined ? {} : scheduleValues(schedule)),
    expiresAt: timeText(expiry?.at),
    liveMs: expiry?.afterMs ?? null,
    idempotencyKey: storedKey(row.idempotencyKey),
    headers: JSON.stringify(row.headers),
  };
}

const scheduleValues = ({ delayMs, publishedAt, notBefore }: Schedule) => ({
  // An `int` of milliseconds ends after 24 days.
  delaySeconds: Math.ceil(delayMs / 1000),
  publishedAt: timeText(publishedAt),
  notBefore: timeText(notBefore),
});

const timeText = (ms: number | null | undefined): string | null =>
  ms === null || ms === undefined ? null : new Date(ms).toISOString();

type InsertedRow = ReturnType<typeof insertedRow>;

function firstOfEachKey(rows: readonly InsertedRow[]): readonly InsertedRow[] {
  const firsts = new Map<string, InsertedRow>();
  for (const row of rows) {
    const key = `${row.source.length} ${row.source} ${row.idempotencyKey}`;
    if (!firsts.has(key)) firsts.set(key, row);
  }
  return [...firsts.values()];
}

/** SQL Server compares text without trailing spaces, under every collation: such a key is stored as its digest. */
export function storedKey(key: string): string {
  return key.endsWith(" ") ? `sha256:${createHash("sha256").update(key, "utf8").digest("hex")}` : key;
}

function sourceValues(sources: readonly string[]): Values {
  return Object.fromEntries(sourceNames(sources.length).map((name, n) => [name, sources[n]]));
}

const sourcesOf = ({ topics }: RelayRequest): readonly string[] => Object.keys(topics);

function relayValues(request: RelayRequest): Values {
  return { ...sourceValues(Object.keys(request.topics)), ownKeySources: request.ownKeySources ?? [] };
}

function receivedRow(row: Row): ReceivedRow {
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

function renderedRow(row: ReceivedRow, position: number, { topics, droppedHeaders }: RelayRequest) {
  const topic = renderTopic(topics[row.source] ?? [], row.eventType);
  return {
    position,
    id: row.id,
    source: row.source,
    dead: deadReason(row, topic),
    topic,
    headers: JSON.stringify(renderHeaders(row, droppedHeaders)),
  };
}

function deadReason({ isExpired }: ReceivedRow, topic: string): number {
  if (isExpired) return DEAD.expired;
  return topic === "" ? DEAD.emptyTopic : DEAD.no;
}

/** What the relay reads of an inbox row to make its outbox row; the payload goes from table to table. */
export interface ReceivedRow {
  readonly id: MessageId;
  readonly source: string;
  readonly eventType: string | null;
  readonly idempotencyKey: string;
  readonly correlationId: string | null;
  readonly headers: Headers;
  readonly isExpired: boolean;
}

/**
 * The topic of a received message.
 *
 * @param pieces the source's topic template around each `{{ eventType }}`
 * @param eventType null counts as an empty text
 * @returns the rendered template, trimmed; may be empty
 */
export function renderTopic(pieces: readonly string[], eventType: string | null): string {
  return pieces.join(eventType ?? "").trim();
}

/**
 * The headers of a received message in the outbox: its own without the dropped ones and without a `content-type` other
 * than JSON, and those that identify it, which win over received ones of the same name.
 *
 * @param dropped names and prefixes in lower case; received names match in any letter case
 */
export function renderHeaders(row: ReceivedRow, dropped: RelayRequest["droppedHeaders"]): Headers {
  const kept = Object.entries(row.headers).filter(([name, value]) => travels(name.toLowerCase(), value, dropped));
  const added = [
    ["x-correlation-id", row.correlationId],
    ["x-inbox-id", row.id],
    ["x-source", row.source],
    ["x-idempotency-key", row.idempotencyKey],
  ].filter(([, value]) => value !== null);
  // From entries, and not by assignment: a header may be called `__proto__`.
  return Object.fromEntries([...kept, ...added]);
}

function travels(lowerCaseName: string, value: string, dropped: RelayRequest["droppedHeaders"]): boolean {
  if (lowerCaseName === "content-type" && !/[/+]json/i.test(value)) return false;
  return !dropped.names.includes(lowerCaseName) && !dropped.prefixes.some((prefix) => lowerCaseName.startsWith(prefix));
}
