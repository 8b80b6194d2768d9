import { v7 as uuidv7 } from "uuid";
import { EMPTY_TOPIC, EXPIRED, type MessageId } from "../../../model/rows.ts";
import type { ClaimRequest, RelayRequest } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import type { InsertRelayed, RelayCommands, Relayed } from "../sql/inbox.ts";
import { inKeyOrder, type Row, type Values } from "../sql/rows.ts";
import { isLockTimeout } from "./errors.ts";
import { PostgresLowWater } from "./lowWater.ts";
import type { PostgresPool } from "./pool.ts";
import { fenceValues, receivedValues, renderedValues } from "./receipt.ts";
import type { Statement } from "./statement.ts";
import type { TableStatements } from "./statements.ts";

/** The relay on PostgreSQL: one statement per pass. */
export class PostgresRelay implements RelayCommands<Statement> {
  readonly #pool: PostgresPool;
  readonly sql: TableStatements["relay"];
  readonly #receipts: TableStatements["relayedReceipt"];
  readonly #lowWater: PostgresLowWater;
  readonly #outboxLowWater: PostgresLowWater;
  readonly #clock: Clock;
  /** Passes take the lock from this time on; monotonic ms. */
  #locksFrom = Number.NEGATIVE_INFINITY;

  /** @param outboxLowWater the marks of the outbox, which its claims refresh */
  constructor(
    pool: PostgresPool,
    sql: Pick<TableStatements, "relay" | "relayedReceipt">,
    outboxLowWater: PostgresLowWater,
    clock: Clock,
  ) {
    this.#pool = pool;
    this.sql = sql.relay;
    this.#receipts = sql.relayedReceipt;
    this.#lowWater = new PostgresLowWater(pool, sql.relay, clock);
    this.#outboxLowWater = outboxLowWater;
    this.#clock = clock;
  }

  async prepareRelay(sources: readonly string[], isIdle: boolean): Promise<void> {
    await this.#lowWater.refreshIfDue(isIdle ? IDLE_READ_INTERVAL_MS : undefined, { sources });
  }

  async anyWaits(sources: readonly string[]): Promise<boolean> {
    const values = { newest: this.#lowWater.marks.newest, clock: this.#lowWater.clock(), sources };
    const [row] = await this.#pool.run(this.sql.waits, values);
    return row?.answer === true;
  }

  /** Not on Citus, which would run it in parts: the order of its rows rests on one snapshot behind the lock. */
  get insertRelayed(): InsertRelayed | undefined {
    return this.#lowWater.isCitus ? undefined : this.#insertRelayed;
  }

  readonly #insertRelayed: InsertRelayed = async (rows, request, claim) => {
    const fence = fenceValues(rows);
    const inOrder = inKeyOrder(rows);
    const { insertRelayed, insertClaimed } = fence.buckets === undefined ? this.#receipts : this.#receipts.fenced;
    const values = {
      ...fence,
      ...this.#rulesOf(request),
      lowWater: this.#lowWater.bound(),
      relayedSources: Object.keys(request.topics),
      ...receivedValues(inOrder),
      ...(insertRelayed.parameters?.includes("outboxHeaders") ? renderedValues(inOrder, request) : {}),
    };
    const [row, ...claimed] = await (claim === undefined
      ? this.#pool.run(insertRelayed, values)
      : this.#pool.run(insertClaimed, { ...values, ...this.#claimValues(claim) }));
    // Without it the mark would stay where a pass last found a row: receipts leave none to find.
    if (typeof row?.received === "string") this.#lowWater.marks.saw(row.received);
    const last = claimed.at(-1)?.sequence;
    if (last !== undefined) this.#outboxLowWater.marks.saw(String(last));
    const relayed = row?.relayed === null ? "all" : new Set(row?.relayed as readonly MessageId[]);
    return { areAllStored: row?.all_stored === true, relayed, claimed, hasTriggers: row?.has_triggers === true };
  };

  #claimValues(request: ClaimRequest): Values {
    const outboxLowWater = this.#outboxLowWater.bound();
    return { ...request, outboxLowWater, heldTokens: this.#outboxLowWater.held.begin(request) };
  }

  #rulesOf({ topics, ownKeySources, maxAttempts, droppedHeaders: { names, prefixes } }: RelayRequest): Values {
    return {
      rules: JSON.stringify({ topics, ownKeySources }),
      maxAttempts,
      droppedNames: names,
      droppedPrefixes: prefixes,
    };
  }

  async relay(request: RelayRequest, named?: readonly MessageId[]): Promise<Relayed> {
    const statement = named === undefined ? this.sql.relay : this.sql.relayNamed;
    const [row] = await this.#runLocked(statement, this.#valuesOf(request, this.#lowWater.boundOfParts(), named));
    // What comes until the clock is right again would lie below the marks.
    if (row?.has_gone_back === true) this.#lowWater.forget();
    else if (named === undefined && typeof row?.last === "string") this.#lowWater.marks.saw(row.last);
    return relayedOf(row);
  }

  async tryRelay(request: RelayRequest, id?: MessageId): Promise<Relayed> {
    const newId = uuidv7({ msecs: 0 });
    return await this.#pool.runAndRollBack(async (run) => {
      if (id === undefined) await run(this.sql.setBack, { sources: Object.keys(request.topics), id: newId });
      // The row keeps its old place, in front of those received with it: it waits for no other of its key.
      const values = this.#valuesOf(request, this.#lowWater.noBound(), [id ?? (newId as MessageId)]);
      const [row] = await run(this.sql.relayNamed, values);
      return relayedOf(row);
    });
  }

  #valuesOf(request: RelayRequest, lowWater: readonly string[], named: readonly MessageId[] | undefined): Values {
    const { limit, topics } = request;
    return { limit, sources: Object.keys(topics), ...this.#rulesOf(request), lowWater, ids: named };
  }

  /**
   * A receipt whose process is cut off from the database may keep the lock for long: then without, for a while. On Citus
   * no receipt takes it; and what comes with it would end a pass that is long between two of its parts.
   */
  async #runLocked(statement: Statement, values: Values): Promise<readonly Row[]> {
    if (!this.#lowWater.isCitus && this.#clock.monotonic() >= this.#locksFrom) {
      try {
        return await this.#pool.run(statement, values);
      } catch (error) {
        if (!isLockTimeout(error)) throw error;
        this.#locksFrom = this.#clock.monotonic() + UNLOCKED_MS;
      }
    }
    return await this.#pool.run({ ...statement, first: undefined }, values);
  }

  async waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]> {
    const { limit, topics, ownKeySources = [] } = request;
    return await this.#pool.run(this.sql.waiting, {
      limit,
      sources: Object.keys(topics),
      lowWater: this.#lowWater.bound(),
      without,
      ownKeySources: JSON.stringify(ownKeySources),
    });
  }

  async oldestPending(sources: readonly string[]): Promise<Row | undefined> {
    const [row] = await this.#pool.run(this.sql.oldestPending, { lowWater: this.#lowWater.bound(), sources });
    return row;
  }
}

const UNLOCKED_MS = 60_000;

/** New rows are behind the mark: only a row set back by hand, or slower than its slack, waits. */
const IDLE_READ_INTERVAL_MS = 5000;

function relayedOf(row: Row | undefined): Relayed {
  const dead = (row?.dead ?? []) as { id: MessageId; source: string; expired: boolean }[];
  return {
    relayed: Number(row?.relayed ?? 0),
    dead: dead.map(({ id, source, expired }) => ({ id, source, reason: expired ? EXPIRED : EMPTY_TOPIC })),
    candidates: Number(row?.candidates ?? 0),
  };
}
