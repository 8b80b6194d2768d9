import { DONE } from "../../model/cellPositions.ts";
import { CellError, cellNames, StoreError, withoutTable } from "../../model/errors.ts";
import type { Headers, MessageId } from "../../model/rows.ts";
import type { DestinationStore } from "../../ports/destinationStore.ts";
import type { HistoryStore } from "../../ports/historyStore.ts";
import type { JournalEntry, JournalStore } from "../../ports/journalStore.ts";
import type { FoundMessage, LockHolder, MessagePage, MessageStore, StoredMessage } from "../../ports/messageStore.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import type { Cells } from "../../ports/operatorStore.ts";
import type { SecretMasker } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { pullSourcesOf } from "../delivery/pull.ts";
import { storedForms } from "../receipt/attributes.ts";
import type { JsonPath } from "../receipt/jsonPath.ts";
import { HIDDEN, hidePayload, isReason, operatorView, withTexts } from "../redaction/hidePayload.ts";
import { watchNames } from "./leftOut.ts";
import { BEGINNING, type Found, isEnd, newest, once, type Place, parseCursor, timeOf } from "./pages.ts";
import type { OperationsSettings } from "./shown.ts";
import { isUuid } from "./syntax.ts";
import {
  correlationIdOf,
  type FilteredMessage,
  goesTo,
  type MESSAGE_STATES,
  type Timeline,
  timelineOf,
} from "./timeline.ts";

interface TraceOptions {
  readonly store: {
    readonly messages: MessageStore;
    readonly history: Pick<HistoryStore, "of">;
    readonly journal: Pick<JournalStore, "duplicatesOf" | "find">;
    readonly operations: Pick<OperationsStore, "processes">;
    readonly destinations: Pick<DestinationStore, "isAvailable" | "states">;
    readonly cells?: Pick<Cells, "names" | "watch"> | undefined;
  };
  readonly settings: OperationsSettings;
  /** Fields of payloads that nobody sees (`admin.redactPayloadPaths`). */
  readonly hiddenPaths: readonly JsonPath[];
  readonly secrets: Pick<SecretMasker, "mask">;
  readonly clock: Clock;
}

type MessageState = (typeof MESSAGE_STATES)[number];
export const MOST_MESSAGES = 500;

/** Which messages; the fields given are combined with AND. */
interface MessageFilter {
  /** What they have in hand, as of {@link Trace.meantMessages}. */
  readonly text?: string | undefined;
  readonly id?: MessageId | undefined;
  readonly idempotencyKey?: string | undefined;
  readonly source?: string | undefined;
  readonly correlationId?: string | undefined;
  readonly key?: string | undefined;
  readonly topic?: string | undefined;
  readonly destination?: string | undefined;
  readonly state?: MessageState | undefined;
  /** ISO-8601 in UTC; exclusive, as is `createdBefore`. */
  readonly createdAfter?: string | undefined;
  readonly createdBefore?: string | undefined;
}

interface MessageList {
  /** Newest first. */
  readonly messages: readonly FoundMessage[];
  /** Messages of the key or correlation id that a source's filter dropped; undefined if the filter names neither. */
  readonly filtered?: readonly FilteredMessage[] | undefined;
  /** Give it back for the next page; null when every row was read. A page may be empty and have a next one. */
  readonly cursor: string | null;
}

interface MeantMessages {
  /** Newest first, {@link MOST_MEANT} at most. */
  readonly ids: readonly MessageId[];
  readonly filtered: readonly FilteredMessage[];
}

/** What operators may see of a message; hidden fields and secrets are masked in every text. */
interface TracedMessage {
  readonly timeline: Timeline;
  /** Of the outbox row if there is one; null if fields are hidden and the payload is not JSON. */
  readonly payload: string | null;
  readonly headers: Headers;
}

/** Where is my message: finds messages, and tells what happened to one and why it waits. */
export class Trace {
  readonly #options: TraceOptions;
  readonly #pullSources: readonly string[];

  constructor(options: TraceOptions) {
    this.#options = options;
    this.#pullSources = pullSourcesOf(options.settings.sources);
  }

  /** @returns what happened to a message; undefined without one @throws StoreError */
  async timeline(id: MessageId): Promise<TracedMessage | undefined> {
    const { store, settings, hiddenPaths, secrets } = this.#options;
    const [stored, history, destinations, duplicates, processes] = await Promise.all([
      store.messages.get(id, true),
      store.history.of(id, MOST_ENTRIES).catch(withoutTable),
      store.destinations.isAvailable ? store.destinations.states().catch(withoutExtras) : [],
      this.#duplicatesOf(id),
      store.operations.processes().catch(withoutExtras),
    ]);
    const { outbox } = stored;
    const to = outbox && (goesTo(outbox, settings) ?? outbox.destination);
    const before = to === undefined || isFinished(stored) ? undefined : await store.messages.rowBefore(id, to);
    // One after the other: deliveries and receipts need the other connections.
    const held = new Map<MessageId, LockHolder>();
    for (const each of isFinished(stored) ? [] : [id, ...(before === undefined ? [] : [before.id])]) {
      const holder = await store.messages.lockHolder(each).catch(withoutExtras);
      if (holder !== undefined) held.set(each, holder);
    }
    const rolesAlive = processes && new Set(processes.flatMap(({ roles }) => roles));
    // Why a breaker is open says another message.
    const shown = operatorView(secrets, hiddenPaths)(destinations ?? []);
    const facts = { stored, history, before, destinations: shown, duplicates, rolesAlive, held };
    const timeline = timelineOf(facts, settings);
    if (timeline === undefined) return undefined;
    const row = stored.outbox ?? stored.inbox;
    const payloads = [stored.outbox, stored.inbox].map((each) => each && hidePayload(each.payload, hiddenPaths));
    const hide = (text: string) => payloads.reduce((hidden, each) => each?.hideIn(hidden) ?? hidden, text);
    const mask = (text: string) => secrets.mask(hide(text), false);
    // The answer to a batch, and what a pull client says of its claim, may repeat other messages.
    const parts = [timeline, ...timeline.deliveries, ...timeline.events];
    const isOfMany =
      parts.some((each) => settings.destinations[each.destination ?? ""]?.batch) ||
      this.#pullSources.includes(timeline.source ?? "");
    const hidesReasons = hiddenPaths.length > 0 && (isOfMany || payloads.some((each) => each?.text === null));
    const { text = null } = payloads.find((each) => each !== undefined) ?? {};
    const headers = Object.entries(row?.headers ?? {}).map(([name, value]) => [mask(name), mask(value)] as const);
    return {
      timeline: withTexts(timeline, (told, name) =>
        hidesReasons && isReason(name) ? HIDDEN : secrets.mask(hide(told), false, true),
      ),
      payload: text === null ? null : mask(text),
      headers: Object.fromEntries(headers),
    };
  }

  /**
   * The messages that an operator may mean: by id, idempotency key, correlation id, key, or the correlation id of a
   * duplicate, whichever finds some first; and those of that key or correlation id that a filter dropped.
   *
   * @throws StoreError, also if nothing is found while some cell could not be asked
   */
  async meantMessages(text: string): Promise<MeantMessages> {
    const leftOut = watchNames(this.#options.store.cells);
    const meant = await this.#meantMessages(text);
    const missing = leftOut();
    if (missing.length === 0 || meant.ids.length + meant.filtered.length > 0) return meant;
    const message = `${cellNames(missing)} could not be asked; the others have no such message`;
    throw new CellError("unavailable", missing, message);
  }

  async #meantMessages(text: string): Promise<MeantMessages> {
    const [ofKey, ofCorrelation] = await Promise.all([
      this.#filtered({ idempotencyKey: text }),
      this.#filtered({ correlationId: text }),
    ]);
    const filtered = ofKey.length > 0 ? ofKey : ofCorrelation;
    const stored = await this.#storedAs(text);
    if (stored.length > 0) return { ids: stored, filtered };
    // Other messages may share a correlation id; a key that a filter dropped needs no search.
    return { ids: ofKey.length > 0 ? [] : await this.#searchIds(text), filtered };
  }

  /** By an index. */
  async #storedAs(text: string): Promise<readonly MessageId[]> {
    const { messages } = this.#options.store;
    if (isUuid(text)) {
      const id = text.toLowerCase() as MessageId;
      const found = await messages.get(id, false).catch(withoutCell);
      if (found?.inbox !== undefined || found?.outbox !== undefined) return [id];
    }
    return await this.#ofKey(Object.keys(this.#options.settings.sources), text);
  }

  /** @param key in its stored form, or as the sender gave it */
  async #ofKey(sources: readonly string[], key: string): Promise<readonly MessageId[]> {
    for (const form of storedForms(key)) {
      const found = await this.#options.store.messages.byIdempotencyKey(sources, form);
      if (found.length > 0) return found;
    }
    return [];
  }

  async #searchIds(text: string): Promise<readonly MessageId[]> {
    for (const filter of [{ correlationId: text }, { key: text }]) {
      const found = await this.#first(filter);
      if (found.length > 0) return found;
    }
    const duplicates = await this.#entriesOf({ outcome: "duplicate", correlationId: text });
    return [...new Set(duplicates.flatMap(({ messageId }) => messageId ?? []))];
  }

  /**
   * Messages that match: reads for about a third of a second at most; the cursor continues. A text is searched to its
   * end at once, and its list has no cursor.
   *
   * @throws StoreError, or CursorError
   */
  async list(filter: MessageFilter, cursor: string | undefined, limit: number): Promise<MessageList> {
    if (filter.text !== undefined) {
      const { ids, filtered } = await this.meantMessages(filter.text);
      return { messages: await this.#ofIds(ids, filter), filtered, cursor: null };
    }
    const filtered = cursor === undefined ? await this.#filtered(filter) : [];
    const found = await this.#readList(filter, cursor, limit);
    return isOfDropped(filter) ? { ...found, filtered } : found;
  }

  async #readList(filter: MessageFilter, cursor: string | undefined, limit: number): Promise<MessageList> {
    const named = await this.#named(filter);
    if (named !== undefined) return { messages: named, cursor: null };
    const { clock } = this.#options;
    const deadline = clock.monotonic() + MOST_MS;
    const found: Found = { outbox: [], inbox: [] };
    const begin = cursor === undefined ? BEGINNING : parseCursor(cursor);
    let place = begin;
    // Mostly every row matches, or few do.
    let rows = Math.max(limit, LEAST_ROWS);
    do {
      const outbox = await this.#outboxPage(filter, place, rows);
      const inbox = await this.#inboxPage(filter, place, rows);
      rows = MOST_ROWS;
      found.outbox.push(...outbox.rows);
      found.inbox.push(...(await this.#notInOutbox(inbox.rows, filter)));
      place = { outbox: outbox.next ?? DONE, inbox: inbox.next ?? DONE };
    } while (found.outbox.length + found.inbox.length < limit && !isEnd(place) && clock.monotonic() < deadline);
    const { messages, cursor: next } = newest(found, limit, begin, place);
    return { messages, cursor: next };
  }

  /** Undefined if the journal cannot be read. */
  async #duplicatesOf(id: MessageId) {
    const page = await this.#options.store.journal.duplicatesOf(id, MOST_DUPLICATES).catch(withoutExtras);
    if (page === undefined || this.#options.hiddenPaths.length === 0) return page;
    // Nobody knows whether the correlation id is a hidden value: the payload is not there to look.
    return { ...page, entries: page.entries.map((entry) => ({ ...entry, correlationId: null })) };
  }

  /** The newest messages that match and that a source's filter dropped. */
  async #filtered(filter: MessageFilter): Promise<readonly FilteredMessage[]> {
    const { idempotencyKey, correlationId, source } = filter;
    if (!isOfDropped(filter) || filter.id !== undefined || OF_ROWS.some((name) => filter[name] !== undefined))
      return [];
    const forms = idempotencyKey === undefined ? [] : storedForms(idempotencyKey);
    const ofKey = forms.map((form) => ({ idempotencyKey: form }));
    const searches = idempotencyKey === undefined ? [{ correlationId: correlationId ?? "" }] : ofKey;
    const entries = await Promise.all(searches.map((search) => this.#entriesOf({ outcome: "filtered", ...search })));
    const found = entries
      .flat()
      .toSorted((a, b) => b.at.getTime() - a.at.getTime())
      .filter(
        (each) =>
          (source === undefined || each.source === source) &&
          (correlationId === undefined || each.correlationId === correlationId) &&
          isCreatedWithin(filter, each.at),
      );
    const { hiddenPaths, secrets } = this.#options;
    const hide = (text: string) => secrets.mask(text, false);
    const shown = (text: string | null, searched: readonly (string | undefined)[]) =>
      text === null || searched.includes(text) || hiddenPaths.length === 0 ? text && hide(text) : HIDDEN;
    return found.map(({ at, cell, source, replica, ...entry }) => ({
      at,
      cell,
      source: hide(source),
      idempotencyKey: shown(entry.idempotencyKey, forms),
      correlationId: shown(entry.correlationId, [correlationId]),
      replica: hide(replica),
    }));
  }

  async #entriesOf(search: Parameters<JournalStore["find"]>[0]): Promise<readonly JournalEntry[]> {
    return (await this.#options.store.journal.find(search, MOST_MEANT).catch(withoutExtras)) ?? [];
  }

  /** Without the inbox rows whose outbox row the same search finds: it may be on another page. */
  async #notInOutbox(rows: readonly FoundMessage[], filter: MessageFilter): Promise<readonly FoundMessage[]> {
    if (filter.correlationId === undefined || filter.source !== undefined) return rows;
    const alone: FoundMessage[] = [];
    // One after the other: deliveries and receipts need the other connections.
    for (const row of rows) {
      const stored = await this.#options.store.messages.get(row.id, false);
      if (
        !foundOf(stored, this.#options.settings).some(
          (each) => each.table === "outbox" && this.#matches(each, stored, filter),
        )
      )
        alone.push(row);
    }
    return alone;
  }

  async #first(filter: MessageFilter): Promise<readonly MessageId[]> {
    let cursor: string | undefined;
    for (let pages = 0; pages < MOST_PAGES; pages += 1) {
      const { messages, cursor: next } = await this.list(filter, cursor, MOST_MEANT);
      // The deliveries of a message have its key, and its correlation id.
      const ids = new Set(messages.map(({ id, messageId }) => messageId ?? id));
      if (ids.size > 0) return [...ids].slice(0, MOST_MEANT);
      if (next === null) break;
      cursor = next;
    }
    return [];
  }

  /** Those with an id or an idempotency key, which an index finds; undefined if neither is given. */
  async #named(filter: MessageFilter): Promise<readonly FoundMessage[] | undefined> {
    const { id, idempotencyKey, source } = filter;
    if (id === undefined && idempotencyKey === undefined) return undefined;
    const sources = source === undefined ? Object.keys(this.#options.settings.sources) : [source];
    const ids = id !== undefined ? [id] : await this.#ofKey(sources, idempotencyKey ?? "");
    return await this.#ofIds(ids, filter);
  }

  async #ofIds(ids: readonly MessageId[], filter: MessageFilter): Promise<readonly FoundMessage[]> {
    const stored = await Promise.all(ids.map((each) => this.#options.store.messages.get(each, false)));
    const { settings } = this.#options;
    const found = stored.flatMap((each) => foundOf(each, settings).filter((row) => this.#matches(row, each, filter)));
    return once(found.toSorted((a, b) => timeOf(b) - timeOf(a)));
  }

  /** Whether the pages of the same filter contain this row of the message. */
  #matches(
    { topic, key, state, destination, createdAt, table }: FoundMessage,
    { inbox, outbox }: StoredMessage,
    filter: MessageFilter,
  ): boolean {
    const correlationId = table === "inbox" ? inbox?.correlationId : correlationIdOf(outbox);
    const isSame = (wanted: string | undefined, value: string | null | undefined) =>
      wanted === undefined || wanted === value;
    return (
      isSame(filter.source, inbox?.source) &&
      (filter.idempotencyKey === undefined ||
        storedForms(filter.idempotencyKey).includes(inbox?.idempotencyKey ?? "")) &&
      isSame(filter.correlationId, correlationId) &&
      isSame(filter.topic, topic) &&
      isSame(filter.key, key) &&
      isSame(filter.state, state) &&
      isSame(filter.destination, destination) &&
      isCreatedWithin(filter, createdAt)
    );
  }

  async #outboxPage(
    { source, state, ...filter }: MessageFilter,
    { outbox }: Place,
    rows: number,
  ): Promise<MessagePage> {
    // The source of a message is known of its inbox row alone.
    if (outbox === DONE || source !== undefined || state === "processed") return NOTHING;
    return await this.#options.store.messages.outboxPage({ ...filter, state }, outbox, rows);
  }

  async #inboxPage(filter: MessageFilter, { inbox }: Place, rows: number): Promise<MessagePage> {
    const { source, state, topic, destination, key, correlationId } = filter;
    const isOfOutbox = topic !== undefined || destination !== undefined || state === "processing" || state === "sent";
    if (inbox === DONE || isOfOutbox) return NOTHING;
    const isUnrelayed = source === undefined && correlationId === undefined && state !== "processed";
    const search = { ...filter, state, aggregateId: key, isUnrelayed, pullSources: this.#pullSources };
    return await this.#options.store.messages.inboxPage(search, inbox, rows);
  }
}

const NOTHING: MessagePage = { rows: [], next: null };

function isOfDropped({ idempotencyKey, correlationId }: MessageFilter): boolean {
  return idempotencyKey !== undefined || correlationId !== undefined;
}

function isCreatedWithin({ createdAfter, createdBefore }: MessageFilter, createdAt: Date | null): boolean {
  const at = createdAt?.getTime() ?? Number.NaN;
  return (
    (createdAfter === undefined || at > Date.parse(createdAfter)) &&
    (createdBefore === undefined || at < Date.parse(createdBefore))
  );
}

/** What only a row has. */
const OF_ROWS = ["key", "topic", "destination", "state"] as const;

function isFinished({ inbox, outbox }: StoredMessage): boolean {
  const state = outbox?.state ?? inbox?.state;
  return state !== "pending" && state !== "processing";
}

/** Without the tables for operators the rest is still worth showing. @throws what is not an error of the database */
function withoutExtras(error: unknown): undefined {
  if (!(error instanceof StoreError)) throw error;
}

/** A text may be found in another way if some cell could not be asked. @throws any other error */
function withoutCell(error: unknown): undefined {
  if (!(error instanceof CellError)) throw error;
}

function foundOf({ cell, inbox, outbox }: StoredMessage, settings: OperationsSettings): readonly FoundMessage[] {
  const found: FoundMessage[] = [];
  const unlike = { cell, position: "", destination: null, expandedTo: null, messageId: null };
  if (inbox !== undefined) {
    const { id, createdAt, source, eventType: topic, aggregateId: key, state, attempt, lastError } = inbox;
    found.push({ ...unlike, id, table: "inbox", createdAt, source, topic, key, state, attempt, lastError });
  }
  if (outbox !== undefined) {
    const { id, createdAt, topic, key, state, attempt, lastError, messageId } = outbox;
    const source = inbox?.source ?? null;
    const own = {
      destination: goesTo(outbox, settings) ?? null,
      expandedTo: outbox.expandedTo?.length ?? null,
      messageId,
    };
    found.push({ ...unlike, ...own, id, table: "outbox", createdAt, source, topic, key, state, attempt, lastError });
  }
  return found;
}

/** Rows that one statement reads: the first one, and those behind it. */
const LEAST_ROWS = 100;
const MOST_ROWS = 2000;
/** For how long one request reads, in ms. */
const MOST_MS = 300;
/** Entries of a row that a timeline has: the newest. */
const MOST_ENTRIES = 200;
/** Receipts as duplicates that a timeline has: the newest. */
const MOST_DUPLICATES = 20;
/** Messages that one text may mean. */
export const MOST_MEANT = 20;
/** Requests in which a text is searched: the newest messages of about ten seconds' reading. */
const MOST_PAGES = 30;
