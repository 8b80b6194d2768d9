import type { InsertResult, MessageId, NewInboxRow } from "../../../model/rows.ts";
import type { InboxStore, RelayRequest, RelayResult, UnrelayedRows } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { isRefused, oldestAgeMs, Quarantine, type Row, SHORT_REASON, tryInParts } from "./rows.ts";

/** Why a row whose topic renders empty is dead, on the row and in the log. */
export const EMPTY_TOPIC = "the topic template renders empty";

/** What the inbox of a database does in one transaction each; the database may refuse a row of it. */
export interface InboxCommands {
  /** @returns an outcome per row, in the order given */
  insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]>;
  /**
   * The same, unless the database refuses a row: then it stores none.
   *
   * @param isTrial stores none in any case
   * @throws StoreError when a row is refused
   */
  insertWhole(rows: readonly NewInboxRow[], isTrial: boolean): Promise<readonly InsertResult[]>;
  /** Before each relay pass. @param isIdle the last one found nothing */
  prepareRelay(sources: readonly string[], isIdle: boolean): Promise<void>;
  /** Idle check: does any row of these sources wait for the relay? Costs a fraction of a relay pass. */
  anyWaits(sources: readonly string[]): Promise<boolean>;
  relay(request: RelayRequest): Promise<Relayed>;
  relayNamed(request: RelayRequest, ids: readonly MessageId[]): Promise<Relayed>;
  /** The rows that a relay pass would move, with `id` and `source`, without some rows and the others of their keys. */
  waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]>;
  /** Makes a pending row dead. @returns false when it is pending no more */
  markDead(id: MessageId, reason: string): Promise<boolean>;
  /** A row with `oldest_ms`; none when no row waits. */
  oldestPending(sources: readonly string[]): Promise<Row | undefined>;
  unrelayed(sources: readonly string[], limit: number): Promise<readonly Row[]>;
}

export interface Relayed {
  readonly relayed: number;
  readonly dead: RelayResult["dead"];
  /** Waiting rows that the pass read. */
  readonly candidates: number;
}

export class SqlInbox implements InboxStore {
  readonly #commands: InboxCommands;
  readonly #quarantine: Quarantine;
  /** The last relay pass found no waiting row. */
  #isIdle = false;

  constructor(commands: InboxCommands, clock: Clock) {
    this.#commands = commands;
    this.#quarantine = new Quarantine(clock);
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    return await outcomesOf(rows, (part) => this.#commands.insert(part));
  }

  async insertAllOrNone(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    try {
      return await this.#commands.insertWhole(rows, false);
    } catch (failure) {
      if (!isRefused(failure)) throw failure;
      const outcomes = await outcomesOf(rows, (part) => this.#commands.insertWhole(part, true));
      // Each row would pass alone: the caller may try again.
      if (!outcomes.some(({ kind }) => kind === "refused")) throw failure;
      return outcomes;
    }
  }

  async relay(request: RelayRequest): Promise<RelayResult> {
    const sources = Object.keys(request.topics);
    if (sources.length === 0) return NOTHING;
    await this.#commands.prepareRelay(sources, this.#isIdle);
    if (this.#isIdle && !(await this.#commands.anyWaits(sources))) return NOTHING;
    if (this.#quarantine.ids().length > 0) return await this.#relayInParts(request);
    try {
      const { relayed, dead, candidates } = await this.#commands.relay(request);
      this.#isIdle = candidates === 0;
      return { relayed, dead, more: candidates >= request.limit };
    } catch (error) {
      if (!isRefused(error)) throw error;
      return await this.#relayInParts(request);
    }
  }

  async oldestPendingAgeMs(sources: readonly string[]): Promise<number | null> {
    return sources.length === 0 ? null : oldestAgeMs(await this.#commands.oldestPending(sources));
  }

  async unrelayed(sources: readonly string[], limit: number): Promise<readonly UnrelayedRows[]> {
    const rows = await this.#commands.unrelayed(sources, limit);
    return rows.map(({ source, count }) => ({ source: String(source), count: Number(count) }));
  }

  /**
   * Relays rows of which the outbox table refuses some: those become dead, in their order among the others. A row that
   * the inbox table does not let become dead either is quarantined.
   */
  async #relayInParts(request: RelayRequest): Promise<RelayResult> {
    const waiting = await this.#commands.waiting(request, this.#quarantine.ids());
    let relayed = 0;
    const dead: RelayResult["dead"][number][] = [];
    const quarantined: RelayResult["dead"][number][] = [];
    const relay = (part: readonly Row[]) =>
      this.#commands.relayNamed(
        request,
        part.map(({ id }) => id as MessageId),
      );
    for await (const tried of tryInParts(waiting, relay)) {
      if (!tried.isRefused) {
        relayed += tried.result.relayed;
        dead.push(...tried.result.dead);
        continue;
      }
      const [id, source] = [tried.item.id as MessageId, tried.item.source as string];
      const reason = `the outbox table refuses this message: ${tried.error.message}`;
      try {
        if (await this.#markDead(id, reason)) dead.push({ id, source, reason });
      } catch (error) {
        if (!isRefused(error)) throw error;
        quarantined.push({ id, source, reason: error.message });
      }
    }
    this.#quarantine.add(quarantined);
    return { relayed, dead, refused: quarantined, more: waiting.length >= request.limit };
  }

  async #markDead(id: MessageId, reason: string): Promise<boolean> {
    try {
      return await this.#commands.markDead(id, reason);
    } catch (error) {
      if (!isRefused(error)) throw error;
      return await this.#commands.markDead(id, SHORT_REASON);
    }
  }
}

/** The outcomes of rows of which the database may refuse some. @param insert inserts a part of them */
async function outcomesOf(
  rows: readonly NewInboxRow[],
  insert: (part: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>,
): Promise<readonly InsertResult[]> {
  const outcomes: InsertResult[] = [];
  for await (const tried of tryInParts(rows, insert)) {
    if (!tried.isRefused) outcomes.push(...tried.result);
    else {
      const { message, code } = tried.error;
      outcomes.push({ kind: "refused", reason: message, mayPassLater: code === "refused" });
    }
  }
  return outcomes;
}

const NOTHING: RelayResult = { relayed: 0, dead: [], more: false };

/** What identifies a received message. */
interface Keyed {
  readonly source: string;
  readonly idempotencyKey: string;
}

/**
 * An insert waits for the transaction that holds one of its keys. All batches of all processes insert their keys in
 * this order, so that two of them never wait for each other. Of two rows with one key the first stays first.
 */
export function inKeyOrder<T extends Keyed>(rows: readonly T[]): readonly T[] {
  return rows.toSorted((a, b) => byCodeUnits(a.source, b.source) || byCodeUnits(a.idempotencyKey, b.idempotencyKey));
}

/** The same in every process, whatever its locale. */
function byCodeUnits(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
