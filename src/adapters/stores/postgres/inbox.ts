import type { InsertResult, MessageId, NewInboxRow } from "../../../model/rows.ts";
import type { InboxStore, RelayRequest, RelayResult, UnrelayedRows } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { inKeyOrder } from "../sql/keyOrder.ts";
import { Marks } from "../sql/marks.ts";
import { EMPTY_TOPIC, insertAroundPoison, relayAroundPoison } from "../sql/poison.ts";
import { isRefused } from "../sql/refused.ts";
import { LeftOut } from "../sql/refusedClaims.ts";
import { oldestAgeMs } from "../sql/rows.ts";
import { textArray, uuidArray } from "./binaryArray.ts";
import type { InboxStatements } from "./inboxSql.ts";
import type { Looks } from "./looks.ts";
import { LowWater } from "./lowWater.ts";
import type { PostgresPool } from "./pool.ts";
import type { Row } from "./statement.ts";

/** The inbox on PostgreSQL: receipt in one statement per batch, relay in one statement per pass. */
export class PostgresInbox implements InboxStore {
  /** In `Pipeline`, as long as they are short and small. */
  readonly pipelinesInserts = true;
  readonly #pool: PostgresPool;
  readonly #sql: InboxStatements;
  readonly #looks: Looks;
  readonly #marks: Marks;
  readonly #lowWater: LowWater;
  readonly #leftOut: LeftOut;
  /** The last relay pass met no waiting row. */
  #idle = false;

  constructor(pool: PostgresPool, statements: InboxStatements, looks: Looks, clock: Clock) {
    this.#pool = pool;
    this.#sql = statements;
    this.#looks = looks;
    this.#marks = new Marks(clock);
    this.#leftOut = new LeftOut(clock);
    this.#lowWater = new LowWater(pool, statements.mark, clock, this.#marks);
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    return await insertAroundPoison(rows, (part) => this.#insertAll(part));
  }

  async relay(request: RelayRequest): Promise<RelayResult> {
    const sources = Object.keys(request.topics);
    await this.#lowWater.refreshIfDue(this.#idle ? IDLE_MARK_INTERVAL_MS : undefined, [sources]);
    // Looking costs a fraction of planning a relay pass, which an idle relay would do ten times a second.
    if (
      this.#idle &&
      !(await this.#looks.ask(this.#sql.waits, [this.#marks.mark, this.#lowWater.clock(), ...sources]))
    ) {
      return NOTHING;
    }
    if (this.#leftOut.ids().length > 0) return await this.#relayAroundPoison(request);
    try {
      const [row] = await this.#pool.run(this.#sql.relay, this.#relayValues(request));
      this.#idle = Number(row?.candidates ?? 0) === 0;
      if (typeof row?.last === "string") this.#marks.meet(row.last);
      return relayResult(row, request.limit);
    } catch (error) {
      if (!isRefused(error)) throw error;
      return await this.#relayAroundPoison(request);
    }
  }

  async oldestPendingAgeMs(sources: readonly string[]): Promise<number | null> {
    const [row] = await this.#pool.run(this.#sql.oldestPending, [this.#lowWater.bound(), sources]);
    return oldestAgeMs(row);
  }

  async unrelayed(sources: readonly string[], limit: number): Promise<readonly UnrelayedRows[]> {
    const rows = await this.#pool.run(this.#sql.unrelayed, [sources, limit]);
    return rows.map(({ source, count }) => ({ source: String(source), count: Number(count) }));
  }

  async #insertAll(rows: readonly NewInboxRow[]): Promise<InsertResult[]> {
    const [first] = rows;
    if (first === undefined) return [];
    const isAlike = rows.every((row) => SHARED.every((name) => row[name] === first[name]));
    const statement = isAlike ? this.#sql.insert : this.#sql.insertMixed;
    const values = insertValues(inKeyOrder(rows), isAlike);
    const pipelined = rows.length < PIPELINED_ROWS && bytesOf(values) < PIPELINED_BYTES;
    const stored = await this.#pool.change({ ...statement, pipelined }, values);
    if (stored === rows.length) return rows.map(() => STORED);
    if (stored === 0) return rows.map(() => DUPLICATE);
    // The ids are new: those that are there were stored just now.
    const present = await this.#pool.run(this.#sql.present, [uuidArray(rows.map(({ id }) => id))]);
    const ids = new Set(present.map(({ id }) => id as string));
    return rows.map(({ id }) => (ids.has(id) ? STORED : DUPLICATE));
  }

  /** Some row of the batch is refused by the outbox table: relays the others and buries that one, in their order. */
  async #relayAroundPoison(request: RelayRequest): Promise<RelayResult> {
    const { limit, topics, ownKeySources = [] } = request;
    const values = [
      limit,
      Object.keys(topics),
      this.#lowWater.bound(),
      this.#leftOut.ids(),
      JSON.stringify(ownKeySources),
    ];
    const waiting = await this.#pool.run(this.#sql.waiting, values);
    const result = await relayAroundPoison(
      waiting,
      async (ids) => {
        const [row] = await this.#pool.run(this.#sql.relayOnly, [...this.#relayValues(request), ids]);
        return relayResult(row, request.limit);
      },
      async (id, reason) => (await this.#pool.run(this.#sql.bury, [id, reason])).length > 0,
    );
    this.#leftOut.add(result.refused ?? []);
    return { ...result, more: waiting.length >= request.limit };
  }

  #relayValues(request: RelayRequest): unknown[] {
    const { names, prefixes } = request.droppedHeaders;
    return [
      request.limit,
      Object.keys(request.topics),
      JSON.stringify({ topics: request.topics, ownKeySources: request.ownKeySources }),
      request.maxAttempts,
      names,
      // Prefixes are header name characters; the only one that means something in a pattern is the dot.
      prefixes.length === 0 ? "^$" : `^(${prefixes.map((prefix) => prefix.replaceAll(".", "\\.")).join("|")})`,
      this.#lowWater.bound(),
    ];
  }
}

/** Receipts lie behind the mark: only what takes longer than its slack, or is set back by hand, waits for the next one. */
const IDLE_MARK_INTERVAL_MS = 5000;

const STORED: InsertResult = { kind: "stored" };
const DUPLICATE: InsertResult = { kind: "duplicate" };

const NOTHING: RelayResult = { relayed: 0, dead: [], more: false };

/** The columns that the rows of a batch mostly have in common, in the order of the statement's parameters. */
const SHARED = ["source", "state", "consumption", "lastError"] as const;

function insertValues(rows: readonly NewInboxRow[], isAlike: boolean): unknown[] {
  const column = (value: (row: NewInboxRow) => string | null): Buffer => textArray(rows.map(value));
  return [
    uuidArray(rows.map((row) => row.id)),
    column((row) => row.idempotencyKey),
    column((row) => row.aggregateId),
    column((row) => row.eventType),
    column((row) => row.payload),
    column((row) => row.correlationId),
    column((row) => JSON.stringify(row.headers)),
    ...SHARED.map((name) => (isAlike ? rows[0]?.[name] : column((row) => row[name]))),
  ];
}

/** Inserts below these sizes go behind one another on one connection; larger ones are worth a connection, and a core of the server, of their own. */
const PIPELINED_ROWS = 64;
const PIPELINED_BYTES = 512 * 1024;

function bytesOf(values: readonly unknown[]): number {
  return values.reduce<number>((sum, value) => sum + (Buffer.isBuffer(value) ? value.length : 0), 0);
}

function relayResult(row: Row | undefined, limit: number): RelayResult {
  const dead = (row?.dead ?? []) as { id: MessageId; source: string }[];
  return {
    relayed: Number(row?.relayed ?? 0),
    dead: dead.map(({ id, source }) => ({ id, source, reason: EMPTY_TOPIC })),
    more: Number(row?.candidates ?? 0) >= limit,
  };
}
