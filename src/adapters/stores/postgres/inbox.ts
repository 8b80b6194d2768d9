import type { ClientBase, QueryResult } from "pg";
import { StoreError } from "../../../model/errors.ts";
import { EXPIRED, type InsertResult, type MessageId, type NewInboxRow } from "../../../model/rows.ts";
import type { RelayRequest } from "../../../ports/store.ts";
import { EMPTY_TOPIC, type InboxCommands, inKeyOrder, type Relayed } from "../sql/inbox.ts";
import type { Row, Values } from "../sql/rows.ts";
import { hasSqlState, UNIQUE_VIOLATION } from "./errors.ts";
import { type InboxStatements, NOT_ALL_MADE } from "./inboxSql.ts";
import type { PostgresLowWater } from "./lowWater.ts";
import type { PostgresPool } from "./pool.ts";
import { type Statement, textArray, uuidArray, valuesInOrder } from "./statement.ts";

/** The inbox on PostgreSQL: receipt in one statement per batch, relay in one statement per pass. */
export class PostgresInbox implements InboxCommands {
  readonly #pool: PostgresPool;
  readonly #sql: InboxStatements;
  readonly #lowWater: PostgresLowWater;

  constructor(pool: PostgresPool, statements: InboxStatements, lowWater: PostgresLowWater) {
    this.#pool = pool;
    this.#sql = statements;
    this.#lowWater = lowWater;
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    if (rows.length === 0) return [];
    const { statement, values } = this.#insertOf(rows);
    const isPipelined = rows.length < PIPELINED_ROWS && bytesOf(values) < PIPELINED_BYTES;
    const stored = await this.#pool.change({ ...statement, isPipelined }, values);
    if (stored === rows.length) return rows.map(() => STORED);
    return await this.#findOutcomes(rows);
  }

  async insertWhole(rows: readonly NewInboxRow[], isTrial: boolean): Promise<readonly InsertResult[]> {
    if (rows.length === 0) return [];
    const { statement, values } = this.#insertOf(rows);
    let outcomes: readonly InsertResult[] = rows.map(() => STORED);
    const rolledBack = new StoreError("other", `${statement.name}: rolled back`);
    const insertion = this.#pool.transaction(statement.name, async (client) => {
      const run = (each: Statement, given: Values) => client.query(each.text, [...valuesInOrder(each, given)]);
      const { rowCount } = await run(statement, values);
      if (rowCount !== rows.length) {
        const known = knownOutcomes((await run(this.#sql.present, keyValues(rows))).rows as Row[]);
        const insertNew = (row: NewInboxRow) => {
          const single = this.#insertNewOf(row);
          return run(single.statement, single.values);
        };
        const found: InsertResult[] = [];
        for (const row of rows)
          found.push(known.get(row.id) ?? (await this.#insertNewInside(client, () => insertNew(row))));
        if (found.includes(SKIPPED)) throw new StoreError("refused", SKIPPED.reason);
        outcomes = found;
      }
      if (!isTrial) return;
      // Includes whatever the owner checks at the commit.
      await client.query("SET CONSTRAINTS ALL IMMEDIATE");
      throw rolledBack;
    });
    await insertion.catch((error: unknown) => {
      if (error !== rolledBack) throw error;
    });
    return outcomes;
  }

  #insertOf(rows: readonly NewInboxRow[]): { readonly statement: Statement; readonly values: Values } {
    if (rows.some(isTimed)) {
      return { statement: this.#sql.timed.insert, values: insertValues(inKeyOrder(rows), false) };
    }
    const isAlike = rows.every((row) => SHARED.every((name) => row[name] === rows[0]?.[name]));
    return {
      statement: isAlike ? this.#sql.insert : this.#sql.insertMixed,
      values: insertValues(inKeyOrder(rows), isAlike),
    };
  }

  #insertNewOf(row: NewInboxRow): { readonly statement: Statement; readonly values: Values } {
    const { timed, insertNew } = this.#sql;
    return isTimed(row)
      ? { statement: timed.insertNew, values: insertValues([row], false) }
      : { statement: insertNew, values: insertValues([row], true) };
  }

  /** The outcomes of a batch that was not stored whole. */
  async #findOutcomes(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    const known = knownOutcomes(await this.#pool.run(this.#sql.present, keyValues(rows)));
    const outcomes: InsertResult[] = [];
    for (const row of rows) outcomes.push(known.get(row.id) ?? (await this.#insertNew(row)));
    return outcomes;
  }

  /**
   * Inserts a row that was not stored, though its key is absent: a trigger skipped it or changed its key, or the row
   * with the key was deleted since. Only the unique key proves a duplicate.
   */
  async #insertNew(row: NewInboxRow): Promise<InsertResult> {
    try {
      const { statement, values } = this.#insertNewOf(row);
      const stored = await this.#pool.change(statement, values);
      return stored > 0 ? STORED : SKIPPED;
    } catch (error) {
      if (hasSqlState(error, UNIQUE_VIOLATION)) return DUPLICATE;
      throw error;
    }
  }

  /** The same inside a transaction, which goes on behind a duplicate. */
  async #insertNewInside(client: ClientBase, insert: () => Promise<QueryResult>): Promise<InsertResult> {
    await client.query("SAVEPOINT new_key");
    try {
      const { rowCount } = await insert();
      return (rowCount ?? 0) > 0 ? STORED : SKIPPED;
    } catch (error) {
      if (!hasSqlState(error, UNIQUE_VIOLATION)) throw error;
      await client.query("ROLLBACK TO SAVEPOINT new_key");
      return DUPLICATE;
    }
  }

  async prepareRelay(sources: readonly string[], isIdle: boolean): Promise<void> {
    await this.#lowWater.refreshIfDue(isIdle ? IDLE_READ_INTERVAL_MS : undefined, { sources });
  }

  async anyWaits(sources: readonly string[]): Promise<boolean> {
    const values = { newest: this.#lowWater.marks.newest, clock: this.#lowWater.clock(), sources };
    const [row] = await this.#pool.run(this.#sql.waits, values);
    return row?.answer === true;
  }

  async relay(request: RelayRequest): Promise<Relayed> {
    const row = await this.#relay(this.#sql.relay, this.#relayValues(request));
    if (typeof row?.last === "string") this.#lowWater.marks.saw(row.last);
    return relayedOf(row);
  }

  async relayNamed(request: RelayRequest, ids: readonly MessageId[]): Promise<Relayed> {
    return relayedOf(await this.#relay(this.#sql.relayNamed, { ...this.#relayValues(request), ids }));
  }

  async #relay(statement: Statement, values: Values): Promise<Row | undefined> {
    try {
      const [row] = await this.#pool.run(statement, values);
      return row;
    } catch (error) {
      if (!hasSqlState(error, NOT_ALL_MADE)) throw error;
      throw new StoreError(
        "refused",
        `${statement.name}: a trigger on the outbox table skips the row: ${RETURNS_NULL}`,
      );
    }
  }

  async waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]> {
    const { limit, topics, ownKeySources = [] } = request;
    return await this.#pool.run(this.#sql.waiting, {
      limit,
      sources: Object.keys(topics),
      lowWater: this.#lowWater.bound(),
      without,
      ownKeySources: JSON.stringify(ownKeySources),
    });
  }

  async markDead(id: MessageId, reason: string): Promise<boolean> {
    return (await this.#pool.run(this.#sql.markDead, { id, reason })).length > 0;
  }

  async oldestPending(sources: readonly string[]): Promise<Row | undefined> {
    const [row] = await this.#pool.run(this.#sql.oldestPending, { lowWater: this.#lowWater.bound(), sources });
    return row;
  }

  async unrelayed(sources: readonly string[], limit: number): Promise<readonly Row[]> {
    return await this.#pool.run(this.#sql.unrelayed, { sources, limit });
  }

  #relayValues({ limit, topics, ownKeySources, maxAttempts, droppedHeaders }: RelayRequest): Values {
    const { names, prefixes } = droppedHeaders;
    return {
      limit,
      sources: Object.keys(topics),
      rules: JSON.stringify({ topics, ownKeySources }),
      maxAttempts,
      droppedNames: names,
      // Prefixes are header name characters; the only one that means something in a pattern is the dot.
      droppedPattern:
        prefixes.length === 0 ? "^$" : `^(${prefixes.map((prefix) => prefix.replaceAll(".", "\\.")).join("|")})`,
      lowWater: this.#lowWater.bound(),
    };
  }
}

/** New rows are behind the mark: only a row set back by hand, or slower than its slack, waits. */
const IDLE_READ_INTERVAL_MS = 5000;

const STORED: InsertResult = { kind: "stored" };
const DUPLICATE: InsertResult = { kind: "duplicate" };
const RETURNS_NULL = "it returns NULL before the insert";
const SKIPPED = {
  kind: "refused",
  reason: `inbox.insert: a trigger on the inbox table skips the row: ${RETURNS_NULL}`,
  mayPassLater: true,
} as const satisfies InsertResult;

const keyValues = (rows: readonly NewInboxRow[]): Values => ({
  ids: uuidArray(rows.map(({ id }) => id)),
  sources: textArray(rows.map(({ source }) => source)),
  idempotencyKeys: textArray(rows.map(({ idempotencyKey }) => idempotencyKey)),
});

/** @param present rows of `inbox.present`. Ids are new: a row that is there was stored just now */
const knownOutcomes = (present: readonly Row[]): ReadonlyMap<unknown, InsertResult> =>
  new Map(present.map(({ id, is_stored }) => [id, is_stored === true ? STORED : DUPLICATE]));

/** The columns that the rows of a batch mostly have in common. */
const SHARED = ["source", "state", "consumption", "lastError"] as const;

function insertValues(rows: readonly NewInboxRow[], isAlike: boolean): Values {
  const column = (value: (row: NewInboxRow) => string | null): Buffer => textArray(rows.map(value));
  return {
    ids: uuidArray(rows.map((row) => row.id)),
    idempotencyKeys: column((row) => row.idempotencyKey),
    aggregateIds: column((row) => row.aggregateId),
    eventTypes: column((row) => row.eventType),
    payloads: column((row) => row.payload),
    correlationIds: column((row) => row.correlationId),
    headers: column(headersText()),
    ...(rows.some(isTimed) ? timeValues(column) : {}),
    ...Object.fromEntries(SHARED.map((name) => [name, isAlike ? rows[0]?.[name] : column((row) => row[name])])),
  };
}

const isTimed = ({ schedule, expiry }: NewInboxRow): boolean => schedule !== undefined || expiry !== undefined;

function timeValues(column: (value: (row: NewInboxRow) => string | null) => Buffer): Values {
  const text = (ms: number | null | undefined) => (ms === null || ms === undefined ? null : String(ms));
  return {
    delayMs: column(({ schedule }) => text(schedule?.delayMs ?? 0)),
    publishedMs: column(({ schedule }) => text(schedule?.publishedAt)),
    notBeforeMs: column(({ schedule }) => text(schedule?.notBefore)),
    expiresMs: column(({ expiry }) => text(expiry?.at)),
    liveMs: column(({ expiry }) => text(expiry?.afterMs)),
  };
}

/** The headers of a row as JSON. The messages of one request share theirs. */
function headersText(): (row: NewInboxRow) => string {
  let headers: NewInboxRow["headers"] | undefined;
  let text = "";
  return (row) => {
    if (row.headers !== headers) [headers, text] = [row.headers, JSON.stringify(row.headers)];
    return text;
  };
}

/** Inserts below these sizes are pipelined on one connection; larger ones are worth a connection of their own. */
const PIPELINED_ROWS = 64;
const PIPELINED_BYTES = 512 * 1024;

function bytesOf(values: Values): number {
  return Object.values(values).reduce<number>((sum, value) => sum + (Buffer.isBuffer(value) ? value.length : 0), 0);
}

function relayedOf(row: Row | undefined): Relayed {
  const dead = (row?.dead ?? []) as { id: MessageId; source: string; expired: boolean }[];
  return {
    relayed: Number(row?.relayed ?? 0),
    dead: dead.map(({ id, source, expired }) => ({ id, source, reason: expired ? EXPIRED : EMPTY_TOPIC })),
    candidates: Number(row?.candidates ?? 0),
  };
}
