import { groupBy } from "../../../model/collections.ts";
import { isRefused, type StoreError, type StoreErrorCode } from "../../../model/errors.ts";
import {
  type Headers,
  type InsertResult,
  type MessageId,
  type NewInboxRow,
  RELAY_DEATHS,
} from "../../../model/rows.ts";
import { listOfMessage } from "../../../model/topics.ts";
import { asRelayed } from "../../../model/traceContext.ts";
import type {
  ClaimRequest,
  InboxStore,
  RelayedReceipt,
  RelayRequest,
  RelayResult,
  RelayRules,
  UnrelayedRows,
} from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { RefusalCheck, Resting, type Tried } from "./refusalCheck.ts";
import {
  claimedRow,
  idsOf,
  type Named,
  oldestAgeMs,
  type Row,
  type StatementRunner,
  tryInHalves,
  tryInParts,
} from "./rows.ts";

/** Stores received messages, in one transaction for each call. */
export interface ReceiptCommands {
  insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]>;
  /**
   * Stores none if the database refuses a row.
   *
   * @param isTrial stores none in any case
   * @throws StoreError when a row is refused
   */
  insertWhole(rows: readonly NewInboxRow[], isTrial: boolean): Promise<readonly InsertResult[]>;
  /** The same, rolled back, of a copy of the row that was processed last. @returns false without one */
  insertAccepted(): Promise<boolean>;
}

/** Relays in one transaction for each call. */
export interface RelayCommands<S> {
  /** `markDead` makes a pending row dead and returns it; nothing when it is pending no more. */
  readonly sql: Named<S, "markDead" | "unrelayed">;
  /** Idle check: does any row of these sources wait for the relay? Costs a fraction of a relay pass. */
  anyWaits(sources: readonly string[]): Promise<boolean>;
  /** Undefined if the database has no such statement. */
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

/** See `InboxStore.insertRelayed`. */
export type InsertRelayed = (
  rows: readonly NewInboxRow[],
  relay: RelayRules,
  claim: ClaimRequest | undefined,
) => Promise<InsertedAndRelayed>;

interface InsertedAndRelayed {
  /** False if some are not, such as duplicates. */
  readonly areAllStored: boolean;
  readonly relayed: "all" | ReadonlySet<MessageId>;
  /** For `claimedRow`. */
  readonly claimed: readonly Row[];
}

export interface Relayed extends Pick<RelayResult, "relayed" | "dead" | "traces"> {
  readonly candidates: number;
}

export class SqlInbox<S> implements InboxStore {
  readonly #runner: StatementRunner<S>;
  readonly #receipt: ReceiptCommands;
  readonly #relay: RelayCommands<S>;
  readonly #resting: Resting;
  readonly #receiptRefusals = new RefusalCheck();
  readonly #relayRefusals = new RefusalCheck();
  #isIdle = false;

  constructor(runner: StatementRunner<S>, receipt: ReceiptCommands, relay: RelayCommands<S>, clock: Clock) {
    this.#runner = runner;
    this.#receipt = receipt;
    this.#relay = relay;
    this.#resting = new Resting(clock);
  }

  async insert(rows: readonly NewInboxRow[]): Promise<readonly InsertResult[]> {
    try {
      const outcomes = await this.#receipt.insert(rows);
      const dropped = outcomes.filter(({ kind }) => kind === "refused").length;
      this.#receiptRefusals.noteBatch(outcomes.length - dropped, dropped);
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
    this.#receiptRefusals.failed(failure as StoreError, () => this.#receipt.insertAccepted());

  async check(): Promise<void> {
    await this.#receiptRefusals.check();
  }

  /** @throws StoreError when the table is the cause */
  async #outcomesOf(
    rows: readonly NewInboxRow[],
    parts: AsyncIterable<Tried<NewInboxRow, readonly InsertResult[]>>,
  ): Promise<readonly InsertResult[]> {
    const outcomes = new Map<NewInboxRow, InsertResult | undefined>();
    const judged = this.#receiptRefusals.of(parts, {
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

  get insertRelayed(): InboxStore["insertRelayed"] {
    const { insertRelayed } = this.#relay;
    return insertRelayed && ((rows, relay, claim) => this.#insertRelayed(insertRelayed, rows, relay, claim));
  }

  async #insertRelayed(
    insertRelayed: InsertRelayed,
    rows: readonly NewInboxRow[],
    relay: RelayRules,
    claim: ClaimRequest | undefined,
  ): Promise<RelayedReceipt> {
    const storeAlone = async () => ({ outcomes: await this.insert(rows), claimed: [] });
    if (rows.length === 0 || !rows.every((row) => isRelayedAtOnce(row, relay))) return await storeAlone();
    let inserted: InsertedAndRelayed;
    try {
      inserted = await insertRelayed(rows, relay, claim);
    } catch (error) {
      if ((error as Partial<StoreError>).code === "unavailable") throw this.#failed(error);
      // The trouble of the outbox must not be that of receipts.
      return await storeAlone();
    }
    const { areAllStored, relayed, claimed } = inserted;
    this.#receiptRefusals.passed();
    const claimedOf = groupBy(claimed, (row) => (row.message_id ?? row.id) as MessageId);
    const others = areAllStored ? undefined : await this.insert(rows);
    const outcomes = rows.map((row, n): InsertResult => {
      const { id } = row;
      if (relayed !== "all" && !relayed.has(id)) return others?.[n] ?? { kind: "stored" };
      const deliveries = listOfMessage(row, relay)?.length;
      const isClaimed = claimedOf.get(id)?.length === (deliveries ?? 1);
      const stored = { kind: "stored", relayed: isClaimed ? "claimed" : "pending" } as const;
      return deliveries === undefined || deliveries === 0 ? stored : { ...stored, isExpanded: true };
    });
    return { outcomes, claimed: claim === undefined ? [] : claimed.map((row) => claimedRow(row, claim.token)) };
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
    if (this.#isIdle && !(await this.#relay.anyWaits(sources))) return NOTHING;
    if (this.#resting.ids().length > 0) return await this.#relayInParts(request);
    try {
      const { candidates, ...result } = await this.#relay.relay(request);
      this.#isIdle = candidates === 0;
      return { ...result, more: candidates >= request.limit };
    } catch (error) {
      if (isRefused(error)) return await this.#relayInParts(request);
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
   * Rows to blame become dead, and the next pass relays the rows behind them. A row rests if a trigger drops it, or if
   * the inbox table refuses to make it dead.
   */
  async #relayInParts(request: RelayRequest): Promise<RelayResult> {
    const waiting = await this.#relay.waiting(request, this.#resting.ids());
    let relayed = 0;
    const traces: string[] = [];
    const dead: RelayResult["dead"][number][] = [];
    const waits: RelayResult["dead"][number][] = [];
    const parts = tryInParts(waiting, (part) => this.#relay.relay(request, idsOf(part)));
    const judged = this.#relayRefusals.of(parts, {
      proves: (result) => result.relayed > 0,
      accepted: async () => (await this.#relay.tryRelay(request)).relayed > 0,
      again: async ({ id }) => (await this.#relay.tryRelay(request, id as MessageId)).candidates > 0,
    });
    for await (const tried of judged) {
      if (!tried.isRefused) {
        relayed += tried.result.relayed;
        traces.push(...(tried.result.traces ?? []));
        dead.push(...tried.result.dead);
        continue;
      }
      const [id, source] = [tried.item.id as MessageId, tried.item.source as string];
      const reason = `${RELAY_DEATHS.outbox_refused}: ${tried.error.message}`;
      try {
        // It may be relayed later; or the inbox table lets it not become dead either.
        if (tried.error.code === "busy" || tried.error.code === "skipped") throw tried.error;
        if ((await this.#runner.run(this.#relay.sql.markDead, { id, reason })).length > 0)
          dead.push({ id, source, reason });
      } catch (error) {
        if (!isRefused(error)) throw error;
        waits.push({ id, source, reason: error.message });
      }
    }
    this.#resting.add(waits);
    return { relayed, traces, dead, refused: waits, more: dead.length > 0 || waiting.length >= request.limit };
  }
}

/** Whether a receipt may relay the row: nothing is left to decide by the time. */
function isRelayedAtOnce({ source, state, consumption, schedule, expiry }: NewInboxRow, relay: RelayRules): boolean {
  return (
    state === "pending" &&
    consumption === "push" &&
    schedule === undefined &&
    expiry === undefined &&
    Object.hasOwn(relay.topics, source)
  );
}

/** Refusals that a sender can correct. */
const IS_OF_DATA: ReadonlySet<StoreErrorCode> = new Set(["data", "duplicate"]);

const NOTHING: RelayResult = { relayed: 0, dead: [], more: false };

export interface ReceivedRow {
  readonly id: MessageId;
  readonly source: string;
  readonly eventType: string | null;
  readonly idempotencyKey: string;
  readonly correlationId: string | null;
  readonly headers: Headers;
}

/**
 * The headers of a received message in the outbox: its own without dropped ones and without a `content-type` other than
 * JSON, and the headers that identify it and its trace, which win over received ones of the same name.
 *
 * @param dropped names and prefixes in lower case; received names match in any letter case
 */
export function renderHeaders(row: ReceivedRow, dropped: RelayRequest["droppedHeaders"]): Headers {
  const kept = Object.entries(asRelayed(row.headers)).filter(([name, value]) =>
    travels(lowerCase(name), value, dropped),
  );
  const added = [
    ["x-correlation-id", row.correlationId],
    ["x-inbox-id", row.id],
    ["x-source", row.source],
    ["x-idempotency-key", row.idempotencyKey],
  ].filter(([, value]) => value !== null);
  // From entries, and not by assignment: a header may be called `__proto__`.
  return Object.fromEntries([...kept, ...added]);
}

/** Of ASCII alone, as header names are compared (RFC 9110, section 5.1), and the same in every database. */
function lowerCase(name: string): string {
  return NOT_ASCII.test(name) ? name.replace(/[A-Z]+/g, (some) => some.toLowerCase()) : name.toLowerCase();
}

const NOT_ASCII = /[^\p{ASCII}]/u;

function travels(lowerCaseName: string, value: string, dropped: RelayRequest["droppedHeaders"]): boolean {
  if (lowerCaseName === "content-type" && !/[/+]json/i.test(value)) return false;
  return !dropped.names.includes(lowerCaseName) && !dropped.prefixes.some((prefix) => lowerCaseName.startsWith(prefix));
}
