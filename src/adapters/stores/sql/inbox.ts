import type { InsertResult, MessageId, NewInboxRow } from "../../../model/rows.ts";
import type { InboxStore, RelayRequest, RelayResult, UnrelayedRows } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import {
  idsOf,
  isRefused,
  type Named,
  oldestAgeMs,
  Quarantine,
  type Row,
  SHORT_REASON,
  type StatementRunner,
  type Tried,
  tryInHalves,
  tryInParts,
} from "./rows.ts";

/** How a database stores received messages, in one transaction each; it may refuse a row of it. */
export interface ReceiptCommands {
  /** @returns an outcome per row, in the order given */
  insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]>;
  /**
   * The same, unless the database refuses a row: then it stores none.
   *
   * @param isTrial stores none in any case
   * @throws StoreError when a row is refused
   */
  insertWhole(rows: readonly NewInboxRow[], isTrial: boolean): Promise<readonly InsertResult[]>;
}

/** How a database relays, in one transaction each; it may refuse a row of it. */
export interface RelayCommands<S> {
  /** `markDead` makes a pending row dead and returns it; nothing when it is pending no more. */
  readonly sql: Named<S, "markDead" | "unrelayed">;
  /** Before each relay pass. @param isIdle the last one found nothing */
  prepareRelay(sources: readonly string[], isIdle: boolean): Promise<void>;
  /** Idle check: does any row of these sources wait for the relay? Costs a fraction of a relay pass. */
  anyWaits(sources: readonly string[]): Promise<boolean>;
  /** @param named relays of these rows alone */
  relay(request: RelayRequest, named?: readonly MessageId[]): Promise<Relayed>;
  /** The rows that a relay pass would move, with `id` and `source`, without some rows and the others of their keys. */
  waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]>;
  /** A row with `oldest_ms`; none when no row waits. */
  oldestPending(sources: readonly string[]): Promise<Row | undefined>;
}

export interface Relayed {
  readonly relayed: number;
  readonly dead: RelayResult["dead"];
  /** Waiting rows that the pass read. */
  readonly candidates: number;
}

export class SqlInbox<S> implements InboxStore {
  readonly #runner: StatementRunner<S>;
  readonly #receipt: ReceiptCommands;
  readonly #relay: RelayCommands<S>;
  readonly #quarantine: Quarantine;
  /** The last relay pass found no waiting row. */
  #isIdle = false;

  constructor(runner: StatementRunner<S>, receipt: ReceiptCommands, relay: RelayCommands<S>, clock: Clock) {
    this.#runner = runner;
    this.#receipt = receipt;
    this.#relay = relay;
    this.#quarantine = new Quarantine(clock);
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    try {
      return await this.#receipt.insert(rows);
    } catch (error) {
      return await outcomesOf(tryInHalves(rows, error, (part) => this.#receipt.insert(part)));
    }
  }

  async insertAllOrNone(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    try {
      return await this.#receipt.insertWhole(rows, false);
    } catch (failure) {
      if (!isRefused(failure)) throw failure;
      const outcomes = await outcomesOf(tryInParts(rows, (part) => this.#receipt.insertWhole(part, true)));
      // Each row would pass alone: the caller may try again.
      if (!outcomes.some(({ kind }) => kind === "refused")) throw failure;
      return outcomes;
    }
  }

  async relay(request: RelayRequest): Promise<RelayResult> {
    const sources = Object.keys(request.topics);
    if (sources.length === 0) return NOTHING;
    await this.#relay.prepareRelay(sources, this.#isIdle);
    if (this.#isIdle && !(await this.#relay.anyWaits(sources))) return NOTHING;
    if (this.#quarantine.ids().length > 0) return await this.#relayInParts(request);
    try {
      const { relayed, dead, candidates } = await this.#relay.relay(request);
      this.#isIdle = candidates === 0;
      return { relayed, dead, more: candidates >= request.limit };
    } catch (error) {
      if (!isRefused(error)) throw error;
      return await this.#relayInParts(request);
    }
  }

  async oldestPendingAgeMs(sources: readonly string[]): Promise<number | null> {
    return sources.length === 0 ? null : oldestAgeMs(await this.#relay.oldestPending(sources));
  }

  async unrelayed(sources: readonly string[], limit: number): Promise<readonly UnrelayedRows[]> {
    const rows = await this.#runner.run(this.#relay.sql.unrelayed, { sources, limit });
    return rows.map(({ source, count }) => ({ source: String(source), count: Number(count) }));
  }

  /**
   * Relays rows of which the outbox table refuses some: those become dead, in their order among the others. A row that
   * the inbox table does not let become dead either is quarantined.
   */
  async #relayInParts(request: RelayRequest): Promise<RelayResult> {
    const waiting = await this.#relay.waiting(request, this.#quarantine.ids());
    let relayed = 0;
    const dead: RelayResult["dead"][number][] = [];
    const quarantined: RelayResult["dead"][number][] = [];
    for await (const tried of tryInParts(waiting, (part) => this.#relay.relay(request, idsOf(part)))) {
      if (!tried.isRefused) {
        relayed += tried.result.relayed;
        dead.push(...tried.result.dead);
        continue;
      }
      const [id, source] = [tried.item.id as MessageId, tried.item.source as string];
      const reason = `the outbox table refuses this message: ${tried.error.message}`;
      try {
        if ((await this.#markDead(id, reason)).length > 0) dead.push({ id, source, reason });
      } catch (error) {
        if (!isRefused(error)) throw error;
        quarantined.push({ id, source, reason: error.message });
      }
    }
    this.#quarantine.add(quarantined);
    return { relayed, dead, refused: quarantined, more: waiting.length >= request.limit };
  }

  async #markDead(id: MessageId, reason: string): Promise<readonly Row[]> {
    const { markDead } = this.#relay.sql;
    try {
      return await this.#runner.run(markDead, { id, reason });
    } catch (error) {
      if (!isRefused(error)) throw error;
      return await this.#runner.run(markDead, { id, reason: SHORT_REASON });
    }
  }
}

/** The outcomes of rows of which the database refuses some. */
async function outcomesOf(parts: AsyncIterable<Tried<NewInboxRow, readonly InsertResult[]>>) {
  const outcomes: InsertResult[] = [];
  for await (const tried of parts) {
    if (!tried.isRefused) outcomes.push(...tried.result);
    else {
      const { message, code } = tried.error;
      outcomes.push({ kind: "refused", reason: message, mayPassLater: code === "refused" });
    }
  }
  return outcomes;
}

const NOTHING: RelayResult = { relayed: 0, dead: [], more: false };
