import { isRefused, mayPass, StoreError } from "../../model/errors.ts";
import { type MessageId, type NewInboxRow, relayDeath } from "../../model/rows.ts";
import { RECEIPT_HEADERS, receiptContext, without } from "../../model/traceContext.ts";
import type { ReplayStore } from "../../ports/finishedRows.ts";
import type { FoundMessage, InboxMessage, MessageStore } from "../../ports/messageStore.ts";
import { IN_BASE64 } from "../receipt/intake.ts";
import { createPreparation, filterOf, type SourceOptions } from "../receipt/receive.ts";
import type { Redact } from "../redaction/redact.ts";
import { FailedGroups } from "./reasons.ts";
import type { Moves, ReplayPreview, ReplayRequest } from "./replayRequest.ts";

interface InboxReplayOptions {
  readonly messages: Pick<MessageStore, "get" | "inboxPage">;
  readonly store: Pick<ReplayStore, "receiveAgain">;
  /** Every source of the configuration, asked for once; rows of others stay dead. */
  readonly sources: () => readonly SourceOptions[];
  readonly redact: Redact;
}

type DeadRow = Pick<FoundMessage, "id" | "cell" | "source" | "topic" | "key" | "attempt" | "createdAt" | "lastError">;

interface Left {
  readonly reason: string;
  /** It could not be written now. */
  readonly isHeld?: boolean;
}

type Persistently = <T>(statement: () => Promise<T>) => Promise<T>;

/**
 * Receives dead inbox rows again, one by one in the order of their receipt, under their id and key: they pass filter,
 * attributes and transform of their source, and are `pending`. What is refused again stays dead, with the new reason.
 */
export class InboxReplay {
  readonly #options: InboxReplayOptions;
  #sources: readonly SourceOptions[] | undefined;

  constructor(options: InboxReplayOptions) {
    this.#options = options;
  }

  /** Row by row: a repetition finds what is still dead. */
  async *moves(request: ReplayRequest, persistently: Persistently): AsyncGenerator<Moves> {
    /** Of rows that could not be written now: later rows of these keys would be relayed first. */
    const heldKeys = new Set<string>();
    for (const { id, source, key } of (await this.#find(request, persistently)).rows) {
      const inKey = JSON.stringify([source, key ?? id]);
      const left = heldKeys.has(inKey) ? { reason: BEHIND } : await this.#receive(id, persistently);
      if (left?.isHeld) heldKeys.add(inKey);
      yield { rows: 1, changed: left === undefined ? 1 : 0, refusal: left && `${id}: ${left.reason}` };
    }
  }

  /** As `Replay.preview`. Some of the rows may be refused again. */
  async preview(request: ReplayRequest, sampleSize: number): Promise<ReplayPreview> {
    const { rows, isAll } = await this.#find(request, (statement) => statement());
    const sample = rows.slice(0, sampleSize).map(({ id, cell, topic, key, attempt, createdAt, lastError }) => {
      const ofOutbox = { sequence: "0", destination: null, isPinned: false };
      return { id, cell, topic, key, state: "dead", attempt, createdAt, lastError, ...ofOutbox } as const;
    });
    const groups = new FailedGroups();
    const view = { destinationOf: () => undefined, redact: this.#options.redact };
    for (const row of rows) groups.add({ ...row, destination: null, isPinned: false }, view);
    return { count: rows.length, sample, groups: groups.shown, isExact: isAll };
  }

  /** The dead rows that match, in the order of their receipt: the first {@link MOST_ROWS}. */
  async #find({ ids, source, createdAfter, createdBefore }: ReplayRequest, persistently: Persistently) {
    const { messages } = this.#options;
    let rows: readonly DeadRow[] = [];
    let isAll = true;
    for (const id of new Set(ids)) {
      const { inbox } = await persistently(() => messages.get(id, false));
      const at = Number(inbox?.createdAt);
      const isOther = inbox?.state !== "dead" || (source !== undefined && inbox.source !== source);
      if (isOther || at <= Date.parse(createdAfter ?? "") || at >= Date.parse(createdBefore ?? "")) continue;
      rows = [...rows, { ...inbox, topic: inbox.eventType, key: inbox.aggregateId }];
    }
    if (ids !== undefined) return { rows: rows.toSorted(byReceipt), isAll };
    // Pages begin with the newest row.
    let before = createdBefore === undefined ? null : `${createdBefore} ${FIRST_ID}`;
    const search = { source, createdAfter, createdBefore, state: "dead", pullSources: [] } as const;
    do {
      const from = before;
      const page = await persistently(() => messages.inboxPage(search, from, PAGE_ROWS));
      const found: readonly DeadRow[] = [...page.rows.toReversed(), ...rows];
      isAll &&= found.length <= MOST_ROWS;
      rows = found.slice(0, MOST_ROWS);
      before = page.next;
    } while (before !== null && !isBefore(before, createdAfter));
    return { rows, isAll };
  }

  /** @returns why the row is left; undefined if it is `pending` */
  async #receive(id: MessageId, persistently: Persistently): Promise<Left | undefined> {
    const { inbox, cell } = await persistently(() => this.#options.messages.get(id, true));
    if (inbox?.state !== "dead") return { reason: NOT_DEAD };
    this.#sources ??= this.#options.sources();
    const source = this.#sources.find(({ source }) => source === inbox.source);
    if (source === undefined) return { reason: `the configuration lacks its source ${JSON.stringify(inbox.source)}` };
    if (filterOf(source)?.(inbox.headers) === false) return { reason: "the filter of its source excludes it" };
    const row = await this.#again(source, inbox);
    if ("reason" in row) return { reason: row.reason, isHeld: true };
    try {
      const isWritten = await persistently(() => this.#options.store.receiveAgain({ ...row, cell }));
      if (!isWritten) return { reason: NOT_DEAD };
      return row.lastError === null ? undefined : { reason: REFUSED_AGAIN };
    } catch (error) {
      if (!isRefused(error) && !(error instanceof StoreError && error.code === "contention")) throw error;
      return { reason: error.message, isHeld: mayPass(error) };
    }
  }

  /**
   * What its source makes of a row now. A row that was accepted, and died later, keeps what a transform made of it: no
   * payload is transformed twice.
   */
  async #again(source: SourceOptions, inbox: InboxMessage): Promise<NewInboxRow | { readonly reason: string }> {
    const { id, correlationId, attempt, lastError } = inbox;
    const { consumption } = source.settings;
    const payload = inbox.payload ?? "null";
    const stored: NewInboxRow = { ...inbox, payload, consumption, state: "pending", lastError: null };
    const wasAccepted = source.keepsRefused !== true || attempt > 0 || relayDeath(lastError ?? "") !== undefined;
    if (source.stage !== undefined && wasAccepted) return stored;
    const isEncoded = lastError?.includes(IN_BASE64) === true;
    // It may be in a JSON string.
    const body = isEncoded ? Buffer.from(payload.replaceAll('"', ""), "base64") : Buffer.from(payload);
    const headers = without(inbox.headers, RECEIPT_HEADERS);
    const message = { body, headers, correlationId, stored: inbox, trace: receiptContext(inbox.headers) };
    const prepared = await createPreparation(source)(message, id, false);
    if (prepared.kind !== "rejected") return prepared.kind === "row" ? prepared.row : prepared;
    const reason = isEncoded ? `${prepared.reason}; ${IN_BASE64}` : prepared.reason;
    return { ...stored, state: "dead", lastError: this.#options.redact(reason) };
  }
}

/** Whether a position of `inboxPage` is before a time; of cells, and of times that no `Date` can hold, unknown: false. */
const isBefore = (position: string, time = ""): boolean =>
  Date.parse(position.slice(0, position.indexOf(" "))) < Date.parse(time);

const byReceipt = (a: DeadRow, b: DeadRow): number =>
  Number(a.createdAt) - Number(b.createdAt) || (a.id < b.id ? -1 : 1);

/** Without the reason, which may quote the body: what is left is logged. */
const REFUSED_AGAIN = "its source refuses it again: see its last_error";
const NOT_DEAD = "it is no longer dead, or a trigger drops the change";
const BEHIND = "an earlier row of its key could not be replayed: repeat the replay";
const PAGE_ROWS = 1000;
/** Of one replay: a repetition moves the next ones. */
const MOST_ROWS = 50_000;
const FIRST_ID = "00000000-0000-0000-0000-000000000000";
