import { errorText, isRefused, type StoreError, type StoreErrorCode } from "../../../model/errors.ts";
import { type InsertResult, type MessageId, type NewInboxRow, RELAY_DEATHS } from "../../../model/rows.ts";
import type { Log } from "../../../ports/runtime.ts";
import type {
  ClaimRequest,
  InboxStore,
  ReceiptClaim,
  RelayRequest,
  RelayResult,
  UnrelayedRows,
} from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { resolvesWithin } from "../../../time/wait.ts";
import { claimedRow } from "./claims.ts";
import {
  idsOf,
  type Named,
  oldestAgeMs,
  Quarantine,
  type Row,
  SHORT_REASON,
  type StatementRunner,
  tryInHalves,
  tryInParts,
} from "./rows.ts";
import { type Tried, Verdict } from "./verdict.ts";

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
  /** The same, rolled back, of a copy of the row that was processed last. @returns false without one */
  insertAccepted(): Promise<boolean>;
}

/** How a database relays, in one transaction each; it may refuse a row of it. */
export interface RelayCommands<S> {
  /** `markDead` makes a pending row dead and returns it; nothing when it is pending no more. */
  readonly sql: Named<S, "markDead" | "unrelayed">;
  /** Before each relay pass. @param isIdle the last one found nothing */
  prepareRelay(sources: readonly string[], isIdle: boolean): Promise<void>;
  /** Idle check: does any row of these sources wait for the relay? Costs a fraction of a relay pass. */
  anyWaits(sources: readonly string[]): Promise<boolean>;
  /** Undefined where the database cannot; asked after {@link prepareRelay}. */
  readonly insertRelayed?: InsertRelayed | undefined;
  /** @param named relays of these rows alone */
  relay(request: RelayRequest, named?: readonly MessageId[]): Promise<Relayed>;
  /** Relays a row, and rolls that back. @param id of the row; by default the one relayed last, under a new id */
  tryRelay(request: RelayRequest, id?: MessageId): Promise<Relayed>;
  /** The rows that a relay pass would move, with `id` and `source`, without some rows and the others of their keys. */
  waiting(request: RelayRequest, without: readonly MessageId[]): Promise<readonly Row[]>;
  /** A row with `oldest_ms`; none when no row waits. */
  oldestPending(sources: readonly string[]): Promise<Row | undefined>;
}

/**
 * Stores rows, and relays those that wait for nothing with them, in one statement.
 *
 * @param rows pending push rows of sources of the request, without times
 * @param claim claims outbox rows too; undefined for none
 */
export type InsertRelayed = (
  rows: readonly NewInboxRow[],
  request: RelayRequest,
  claim: ClaimRequest | undefined,
) => Promise<InsertedAndRelayed>;

interface InsertedAndRelayed {
  /** False where some are not, such as duplicates. */
  readonly areAllStored: boolean;
  /** Rows that were stored and relayed. */
  readonly relayed: "all" | ReadonlySet<MessageId>;
  /** For `claimedRow`. */
  readonly claimed: readonly Row[];
  /** None was relayed, as triggers of the owner may change the rows or take long. */
  readonly hasTriggers: boolean;
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
  readonly #receiptVerdict = new Verdict();
  readonly #relayVerdict = new Verdict();
  /** The last relay pass found no waiting row. */
  #isIdle = false;
  /** What this process relays, unless the last pass left rows for the next one. */
  #caughtUp: RelayRequest | undefined;
  /** Receipts relay no rows before, in ms of the monotonic clock. */
  #relaysAt = 0;
  /** A receipt that relays, or a pass of the relay, that runs now. */
  #turn: Promise<void> | undefined;
  /** Why a receipt could not relay, as it was logged last. */
  #refusal: string | undefined;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(runner: StatementRunner<S>, receipt: ReceiptCommands, relay: RelayCommands<S>, clock: Clock, log: Log) {
    this.#runner = runner;
    this.#receipt = receipt;
    this.#relay = relay;
    this.#clock = clock;
    this.#log = log;
    this.#quarantine = new Quarantine(clock);
  }

  async insert(rows: readonly NewInboxRow[], claim?: ReceiptClaim): Promise<readonly InsertResult[]> {
    try {
      const outcomes = (await this.#insertRelayed(rows, claim)) ?? (await this.#receipt.insert(rows));
      this.#receiptVerdict.passed();
      return outcomes;
    } catch (error) {
      if (!isRefused(error)) throw this.#failed(error);
      return await this.#outcomesOf(
        rows,
        tryInHalves(rows, error, (part) => this.#receipt.insert(part)),
      );
    }
  }

  readonly #failed = (failure: unknown): StoreError =>
    this.#receiptVerdict.failed(failure as StoreError, () => this.#receipt.insertAccepted());

  async check(): Promise<void> {
    await this.#receiptVerdict.check();
  }

  /** The outcomes of a batch with rows that the database refuses. @throws StoreError when the table is the cause */
  async #outcomesOf(
    rows: readonly NewInboxRow[],
    parts: AsyncIterable<Tried<NewInboxRow, readonly InsertResult[]>>,
  ): Promise<readonly InsertResult[]> {
    const outcomes = new Map<NewInboxRow, InsertResult | undefined>();
    const judged = this.#receiptVerdict.of(parts, {
      proves: (results) => results.some(({ kind }) => kind === "stored"),
      accepted: () => this.#receipt.insertAccepted(),
      again: (row) => this.#receipt.insertWhole([row], true),
    });
    for await (const tried of judged) {
      if (!tried.isRefused) for (const [n, row] of tried.items.entries()) outcomes.set(row, tried.result[n]);
      else {
        const { message, code } = tried.error;
        outcomes.set(tried.item, { kind: "refused", reason: message, mayPassLater: !IS_OF_DATA.has(code) });
      }
    }
    return rows.flatMap((row) => outcomes.get(row) ?? []);
  }

  get insertsInTurn(): boolean {
    return this.#relaying() !== undefined;
  }

  /** With what a receipt relays its rows now; undefined where it leaves them to the relay. */
  #relaying(): { readonly request: RelayRequest; readonly insertRelayed: InsertRelayed } | undefined {
    const request = this.#caughtUp;
    const { insertRelayed } = this.#relay;
    if (request === undefined || insertRelayed === undefined) return undefined;
    return this.#clock.monotonic() < this.#relaysAt ? undefined : { request, insertRelayed };
  }

  /**
   * Where this process relays, and has caught up, a receipt does the relay's work too: half of the row versions, and no
   * pass. Undefined where it cannot, for whatever reason: the outbox's trouble must not be that of receipts.
   */
  async #insertRelayed(
    rows: readonly NewInboxRow[],
    claim: ReceiptClaim | undefined,
  ): Promise<readonly InsertResult[] | undefined> {
    const relaying = this.#relaying();
    if (relaying === undefined) return undefined;
    const { request, insertRelayed } = relaying;
    if (rows.length === 0 || !rows.every((row) => isRelayedAtOnce(row, request))) return undefined;
    if (areHeadersLarge(rows)) return undefined;
    const inserted = await this.#inTurn(() => insertRelayed(rows, request, claim?.request));
    if (inserted === undefined) return undefined;
    try {
      const { areAllStored, relayed, claimed, hasTriggers } = await inserted.step;
      if (hasTriggers) this.#leaveToRelay("the inbox or the outbox has triggers on inserts");
      claim?.onClaimed(claimed.map((row) => claimedRow(row, claim.request.token)));
      const claimedIds = new Set(idsOf(claimed));
      const outcomes = areAllStored ? undefined : await this.#receipt.insert(rows);
      return rows.map(({ id }, n): InsertResult => {
        if (relayed !== "all" && !relayed.has(id)) return outcomes?.[n] ?? { kind: "stored" };
        return { kind: "stored", relayed: claimedIds.has(id) ? "claimed" : "pending" };
      });
    } catch (error) {
      const { code } = error as Partial<StoreError>;
      if (code === "unavailable" || code === "elsewhere") throw error;
      this.#leaveToRelay(errorText(error));
      return undefined;
    }
  }

  #leaveToRelay(reason: string): void {
    this.#rest(REST_MS);
    if (reason !== this.#refusal) this.#log.info({ reason }, "receipts leave their rows to the relay for a while");
    this.#refusal = reason;
  }

  /** Receipts leave their rows to the relay for so many ms: each that tries to relay them waits for its turn. */
  #rest(ms: number): void {
    this.#relaysAt = Math.max(this.#relaysAt, this.#clock.monotonic() + ms);
  }

  /**
   * Begins a receipt that relays, or a pass of the relay, when no other of this process is under way: the database would
   * let the receipt only store its rows, or the pass wait.
   *
   * @returns undefined when it did not begin
   */
  async #inTurn<T>(begin: () => Promise<T>): Promise<{ readonly step: Promise<T> } | undefined> {
    while (this.#turn !== undefined) {
      if (await resolvesWithin(LONGEST_TURN_MS, this.#turn)) continue;
      // One that is slow keeps no other row from being stored, nor do those after it.
      this.#rest(AFTER_SLOW_TURN_MS);
      return undefined;
    }
    const step = begin();
    const end = () => {
      this.#turn = undefined;
    };
    this.#turn = step.then(end, end);
    return { step };
  }

  async insertAllOrNone(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    try {
      return await this.#receipt.insertWhole(rows, false);
    } catch (failure) {
      if (!isRefused(failure)) throw this.#failed(failure);
      const outcomes = await this.#outcomesOf(
        rows,
        tryInParts(rows, (part) => this.#receipt.insertWhole(part, true)),
      );
      // Each row would pass alone: the caller may try again.
      if (!outcomes.some(({ kind }) => kind === "refused")) throw failure;
      return outcomes;
    }
  }

  async relay(request: RelayRequest): Promise<RelayResult> {
    const sources = Object.keys(request.topics);
    if (sources.length === 0) return NOTHING;
    await this.#relay.prepareRelay(sources, this.#isIdle);
    if (this.#isIdle && !(await this.#relay.anyWaits(sources))) {
      this.#caughtUp = request;
      return NOTHING;
    }
    if (this.#quarantine.ids().length > 0) return await this.#relayInParts(request);
    try {
      const turn = await this.#inTurn(() => this.#relay.relay(request));
      const { relayed, dead, candidates } = await (turn === undefined ? this.#relay.relay(request) : turn.step);
      this.#isIdle = candidates === 0;
      const more = candidates >= request.limit;
      // Not before the pass: what arrives meanwhile waits for its turn, or the next pass would have rows for ever.
      this.#caughtUp = more ? undefined : request;
      return { relayed, dead, more };
    } catch (error) {
      if (isRefused(error)) return await this.#relayInParts(request);
      this.#caughtUp = undefined;
      throw error;
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
   * Relays a batch with rows that the outbox table refuses: rows to blame become dead, and the next pass relays what is
   * behind them. A row that the inbox table does not let become dead either is quarantined.
   */
  async #relayInParts(request: RelayRequest): Promise<RelayResult> {
    this.#caughtUp = undefined;
    const waiting = await this.#relay.waiting(request, this.#quarantine.ids());
    let relayed = 0;
    const dead: RelayResult["dead"][number][] = [];
    const quarantined: RelayResult["dead"][number][] = [];
    const parts = tryInParts(waiting, (part) => this.#relay.relay(request, idsOf(part)));
    const judged = this.#relayVerdict.of(parts, {
      proves: (result) => result.relayed > 0,
      accepted: async () => (await this.#relay.tryRelay(request)).relayed > 0,
      again: async ({ id }) => (await this.#relay.tryRelay(request, id as MessageId)).candidates > 0,
    });
    for await (const tried of judged) {
      if (!tried.isRefused) {
        relayed += tried.result.relayed;
        dead.push(...tried.result.dead);
        continue;
      }
      const [id, source] = [tried.item.id as MessageId, tried.item.source as string];
      const reason = `${RELAY_DEATHS.outbox_refused}: ${tried.error.message}`;
      try {
        // It may be relayed later; or the inbox table lets it not become dead either.
        if (tried.error.code === "busy" || tried.error.code === "skipped") throw tried.error;
        if ((await this.#markDead(id, reason)).length > 0) dead.push({ id, source, reason });
      } catch (error) {
        if (!isRefused(error)) throw error;
        quarantined.push({ id, source, reason: error.message });
      }
    }
    this.#quarantine.add(quarantined);
    return { relayed, dead, refused: quarantined, more: dead.length > 0 || waiting.length >= request.limit };
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

/** Whether a receipt may relay the row: nothing is left to decide by the time. */
function isRelayedAtOnce(
  { source, state, consumption, schedule, expiry }: NewInboxRow,
  request: RelayRequest,
): boolean {
  return (
    state === "pending" &&
    consumption === "push" &&
    schedule === undefined &&
    expiry === undefined &&
    Object.hasOwn(request.topics, source)
  );
}

/** Whether the headers are too large to be sent twice: those of one request are sent with each of its messages. */
function areHeadersLarge(rows: readonly NewInboxRow[]): boolean {
  let [total, ofRow] = [0, 0];
  let last: NewInboxRow["headers"] | undefined;
  for (const { headers } of rows) {
    if (headers !== last) {
      last = headers;
      ofRow = 0;
      for (const name in headers) ofRow += name.length + (headers[name]?.length ?? 0);
    }
    total += ofRow;
  }
  return total > MOST_HEADERS;
}

/** Refusals that a sender can correct. */
const IS_OF_DATA: ReadonlySet<StoreErrorCode> = new Set(["data", "duplicate"]);

/** Characters. */
const MOST_HEADERS = 8 * 1024 * 1024;

/** Far longer than one takes that does not wait itself: some ms for each hundred rows, and the commit. */
const LONGEST_TURN_MS = 100;

/** After a turn that took longer, in ms: a stall of the machine is over soon. */
const AFTER_SLOW_TURN_MS = 1000;

/** After a receipt could not relay, in ms. */
const REST_MS = 5000;

const NOTHING: RelayResult = { relayed: 0, dead: [], more: false };
