import { v7 as uuidv7 } from "uuid";
import { EMPTY_TOPIC, EXPIRED, type MessageId, type NewInboxRow } from "../../../model/rows.ts";
import type { ClaimRequest, RelayRequest, RelayRules } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import type { InsertRelayed, RelayCommands, Relayed } from "../sql/inbox.ts";
import { inKeyOrder, type Row, type Values } from "../sql/rows.ts";
import { PostgresLowWater } from "./lowWater.ts";
import type { PostgresPool } from "./pool.ts";
import { receivedValues, renderedValues } from "./receipt.ts";
import type { Statement } from "./statement.ts";
import type { TableStatements } from "./statements.ts";

/** The relay on PostgreSQL: one statement per pass. */
export class PostgresRelay implements RelayCommands<Statement> {
  readonly #pool: PostgresPool;
  readonly sql: TableStatements["relay"];
  readonly #receipt: Statement | undefined;
  readonly #lowWater: PostgresLowWater;
  readonly #outboxLowWater: PostgresLowWater;

  /** @param outboxLowWater the marks of the outbox, which its claims refresh */
  constructor(
    pool: PostgresPool,
    sql: Pick<TableStatements, "relay" | "relayedReceipt">,
    outboxLowWater: PostgresLowWater,
    clock: Clock,
  ) {
    this.#pool = pool;
    this.sql = sql.relay;
    this.#receipt = sql.relayedReceipt;
    this.#lowWater = new PostgresLowWater(pool, sql.relay, clock);
    this.#outboxLowWater = outboxLowWater;
  }

  async prepareRelay(sources: readonly string[], isIdle: boolean): Promise<void> {
    await this.#lowWater.refreshIfDue(isIdle ? IDLE_READ_INTERVAL_MS : undefined, { sources });
  }

  async anyWaits(sources: readonly string[]): Promise<boolean> {
    const values = { newest: this.#lowWater.marks.newest, sources };
    const [row] = await this.#pool.run(this.sql.waits, values);
    return row?.answer === true;
  }

  /** On Citus, which would run the statement in parts, receipts do not relay. */
  get insertRelayed(): InsertRelayed | undefined {
    const receipt = this.#receipt;
    return receipt && ((rows, relay, claim) => this.#insertRelayed(receipt, rows, relay, claim));
  }

  async #insertRelayed(
    receipt: Statement,
    rows: readonly NewInboxRow[],
    relay: RelayRules,
    claim: ClaimRequest | undefined,
  ): ReturnType<InsertRelayed> {
    const inOrder = inKeyOrder(rows);
    const outboxLowWater = this.#outboxLowWater.bound();
    const [row, ...claimed] = await this.#pool.run(receipt, {
      rules: rulesOf(relay),
      maxAttempts: relay.maxAttempts,
      lowWater: this.#lowWater.bound(),
      relayedSources: Object.keys(relay.topics),
      ...receivedValues(inOrder),
      ...renderedValues(inOrder, relay),
      ...(claim ?? NO_CLAIM),
      outboxLowWater,
    });
    const last = claimed.at(-1)?.sequence;
    if (last !== undefined) this.#outboxLowWater.marks.saw(String(last));
    const relayed = row?.relayed === null ? "all" : new Set(row?.relayed as readonly MessageId[]);
    return { areAllStored: row?.all_stored === true, relayed, claimed };
  }

  async relay(request: RelayRequest, named?: readonly MessageId[]): Promise<Relayed> {
    const statement = named === undefined ? this.sql.relay : this.sql.relayNamed;
    const [row] = await this.#pool.run(statement, this.#valuesOf(request, this.#lowWater.boundOfParts(), named));
    if (named === undefined && typeof row?.last === "string") this.#lowWater.marks.saw(row.last);
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
    const { limit, topics, maxAttempts, droppedHeaders } = request;
    return {
      limit,
      sources: Object.keys(topics),
      rules: rulesOf(request),
      maxAttempts,
      droppedNames: droppedHeaders.names,
      droppedPrefixes: droppedHeaders.prefixes,
      lowWater,
      ids: named,
    };
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

/** New rows are behind the mark: only a row set back by hand, or slower than its slack, waits. */
const IDLE_READ_INTERVAL_MS = 5000;

const rulesOf = ({ topics, ownKeySources, routes }: RelayRules): string =>
  JSON.stringify({ topics, ownKeySources, routes });

const NO_CLAIM = { limit: 0, token: null, leaseMs: 0, claimTimeoutMs: 0, heldTokens: [] };

function relayedOf(row: Row | undefined): Relayed {
  const dead = (row?.dead ?? []) as { id: MessageId; source: string; expired: boolean }[];
  return {
    relayed: Number(row?.relayed ?? 0),
    dead: dead.map(({ id, source, expired }) => ({ id, source, reason: expired ? EXPIRED : EMPTY_TOPIC })),
    candidates: Number(row?.candidates ?? 0),
  };
}
