import {
  AT,
  as,
  bool,
  exampleOf,
  inCell,
  integer,
  list,
  maybe,
  nullable,
  object,
  oneOf,
  openObject,
  TEXT,
  TEXT_OR_NULL,
  TIME,
  TIME_OR_NULL,
  text,
  UUID,
  type ValueOf,
} from "../../model/described.ts";
import { type Headers, type MessageId, maxAttemptsInEffect, nowhere } from "../../model/rows.ts";
import { TRACE_ID_PLACEHOLDER, traceIdOf } from "../../model/traceContext.ts";
import type { SharedDestination } from "../../ports/destinationStore.ts";
import type { HistoryEntry } from "../../ports/historyStore.ts";
import type { JournalEntry, JournalPage } from "../../ports/journalStore.ts";
import type {
  InboxMessage,
  LockHolder,
  OutboxMessage,
  RowBefore,
  StoredDelivery,
  StoredMessage,
} from "../../ports/messageStore.ts";
import type { OperationsSettings } from "./shown.ts";

interface MessageFacts {
  readonly stored: StoredMessage;
  /** Oldest first; undefined if it cannot be read. */
  readonly history: readonly HistoryEntry[] | undefined;
  /** Of an outbox row that is not finished. */
  readonly before: RowBefore | undefined;
  readonly destinations: readonly SharedDestination[];
  /** Transactions that hold the row, or the row before it. */
  readonly held: ReadonlyMap<MessageId, LockHolder>;
  /** Undefined if they cannot be read. */
  readonly duplicates: JournalPage | undefined;
  /** Of the processes alive; undefined if that is not known. */
  readonly rolesAlive: ReadonlySet<string> | undefined;
}

const REASON = "POST https://billing.example/hook was answered 503: not today";

const EVENT = openObject(
  {
    at: [TIME_OR_NULL, "2025-01-31T12:00:01.000Z"],
    event: [
      oneOf([
        ...([
          "received",
          "duplicate",
          "created",
          "relayed",
          "died in the inbox",
          "expanded",
          "skipped",
          "sent",
        ] as const),
        ...(["retry", "park", "dead", "replayed", "retried", "discarded"] as const),
      ]),
      "retry",
    ],
    text: [TEXT, "failed, to be tried again"],
    attempt: [integer("1 for the first."), 1],
    actor: [text("The replica of an attempt, the operator of an action."), "relay-7f9c-1"],
    destination: [TEXT, "billing"],
    code: [text("Why it failed, such as `status_5xx` or `timeout`."), "status_5xx"],
    status: [text("The receiver's own code, such as an HTTP status."), "503"],
    durationMs: [as<number>({ type: "integer" }), 41],
    reason: [text("With the beginning of the receiver's answer."), REASON],
  },
  ["at", "event", "text"],
);
export type TimelineEvent = ValueOf<typeof EVENT>;

const DELIVERY = object({
  id: [as<MessageId>(UUID), "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  destination: [TEXT_OR_NULL, "billing"],
  state: [oneOf(["pending", "processing", "sent", "dead", "parked"]), "sent"],
  attempt: [integer("Failed attempts."), 0],
  lastError: TEXT_OR_NULL,
  updatedAt: [TIME_OR_NULL, AT],
});

/** Why a message is unfinished; the text says what ends the wait. */
const WAIT = object({
  code: [as<WaitCode>(TEXT), "retry"],
  text: [TEXT, "failed 1 of 5 times: due at 2025-01-31T12:00:03.120Z"],
});
type WaitReason = ValueOf<typeof WAIT>;
type WaitCode =
  | ("locked" | "behind_row" | "retry" | "scheduled" | "parked" | "paused" | "breaker_open" | "rate_limited")
  | ("no_route" | "not_expanded" | "no_poller" | "no_relay" | "in_delivery" | "lease_expired" | "relay_disabled")
  | ("unknown_source" | "relay" | "pull_client" | "due");

/** Of `outbox.state` and `inbox.state`. */
export const MESSAGE_STATES = ["pending", "processing", "sent", "processed", "dead"] as const;

const RECEIVED = { at: AT, event: "received", text: "received from orders, idempotency key order-17" };

/** The fields of a message that operators see: of its outbox row if there is one, else of its inbox row. */
export const TIMELINE = {
  id: [as<MessageId>(UUID), "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  state: [oneOf([...MESSAGE_STATES, "parked"]), "pending"],
  source: [TEXT_OR_NULL, "orders"],
  idempotencyKey: [TEXT_OR_NULL, "order-17"],
  correlationId: [TEXT_OR_NULL, "c-17"],
  traceId: [nullable("string", "Of the trace in its headers."), "0af7651916cd43dd8448eb211c80319c"],
  traceUrl: nullable("string", "The URL of the trace (`tracing.urlTemplate`)."),
  topic: [TEXT_OR_NULL, "orders.created"],
  key: [TEXT_OR_NULL, "order-17"],
  destination: [nullable("string", "By the routes of this process."), "billing"],
  messageId: as<MessageId | null>(nullable("string", "Of a delivery of a list: its message.")),
  expandedTo: maybe(list(TEXT, "Of a message that was expanded: its destinations.")),
  deliveries: [list(DELIVERY, "Of a message that was expanded; without deleted ones."), []],
  summary: nullable("string", "What became of them, such as `2 of 3 delivered, 1 dead`."),
  attempts: [integer("Failed attempts."), 1],
  maxAttempts: [nullable("integer"), 5],
  lastError: [TEXT_OR_NULL, REASON],
  waits: list(WAIT, "Why it is not delivered yet, the first reason to look at first; empty for a finished message."),
  events: [list(EVENT, "Oldest first."), [RECEIVED, exampleOf(EVENT)]],
  hasHistory: [bool("False: attempts and actions are missing, their table cannot be read."), true],
  duplicates: [
    nullable(
      "integer",
      "How often it was received again in the last 24 hours, up to 1000; `events` has the newest 20. Null: not known.",
    ),
    0,
  ],
} as const;
export const TIMELINE_CELL = { cell: text("With cells: the cell of its outbox row, else of its inbox row.") };
export type Timeline = ValueOf<ReturnType<typeof object<typeof TIMELINE, typeof TIMELINE_CELL>>>;

/** A received message that a source's filter dropped: it has no row. */
export const FILTERED_MESSAGE = inCell({
  at: TIME,
  source: TEXT,
  idempotencyKey: nullable("string", "Null if it is not known; masked if fields are hidden."),
  correlationId: nullable("string", "Null if the sender gave none."),
  replica: TEXT,
});
export type FilteredMessage = ValueOf<typeof FILTERED_MESSAGE>;

export const FOUND_MESSAGE = inCell({
  id: [as<MessageId>(UUID), "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  table: [oneOf(["inbox", "outbox"], "The table that has the row."), "outbox"],
  createdAt: [TIME_OR_NULL, AT],
  source: nullable("string", "Null for outbox rows in a page."),
  topic: [nullable("string", "The topic, or the event type of an inbox row."), "orders.created"],
  key: [nullable("string", "The key, or the aggregate id of an inbox row."), "order-17"],
  state: [oneOf(MESSAGE_STATES), "dead"],
  destination: [nullable("string", "Of an outbox row, by the routes."), "billing"],
  expandedTo: nullable("integer", "Of a message of a list: the number of its destinations once it was expanded."),
  messageId: as<MessageId | null>(nullable("string", "Of a delivery of a list: its message.")),
  attempt: [integer("Failed attempts."), 5],
  lastError: [nullable("string", "Its beginning; null if `admin.redactPayloadPaths` hides fields."), REASON],
});

/** Puts together what happened to a message, and why it waits. @returns undefined when neither table has it */
export function timelineOf(facts: MessageFacts, settings: OperationsSettings): Timeline | undefined {
  const { inbox, outbox } = facts.stored;
  const id = outbox?.id ?? inbox?.id;
  if (id === undefined) return undefined;
  const destination = (outbox && goesTo(outbox, settings)) ?? null;
  const { cell, deliveries } = facts.stored;
  const locks = [...facts.held].map(([row, holder]) => lockWait(row === id ? "" : `row ${row} is `, holder));
  const waits = outbox === undefined ? inboxWaits(facts, settings) : outboxWaits(outbox, destination, facts, settings);
  return {
    id,
    cell,
    state: outbox?.isParked ? "parked" : (outbox?.state ?? inbox?.state ?? "pending"),
    source: inbox?.source ?? null,
    idempotencyKey: inbox?.idempotencyKey ?? null,
    correlationId: inbox?.correlationId ?? correlationIdOf(outbox) ?? null,
    ...traceOf((outbox ?? inbox)?.headers, settings),
    topic: outbox?.topic ?? null,
    key: outbox?.key ?? inbox?.aggregateId ?? null,
    destination,
    messageId: outbox?.messageId ?? null,
    expandedTo: outbox?.expandedTo ?? null,
    deliveries,
    summary: outbox?.expandedTo ? summaryOf(outbox.expandedTo.length, deliveries) : null,
    attempts: outbox?.attempt ?? inbox?.attempt ?? 0,
    maxAttempts: outbox === undefined ? null : limitOf(outbox, destination, settings),
    lastError: outbox?.lastError ?? inbox?.lastError ?? null,
    waits: locks.length === 0 ? waits : [...locks, ...waits.filter(({ code }) => code !== "due" && code !== "relay")],
    events: eventsOf(facts).toSorted((a, b) => (a.at?.getTime() ?? 0) - (b.at?.getTime() ?? 0)),
    hasHistory: facts.history !== undefined,
    duplicates: facts.duplicates?.count ?? null,
  };
}

function traceOf(headers: Headers = {}, { traceUrlTemplate }: OperationsSettings) {
  const traceId = traceIdOf(headers) ?? null;
  const traceUrl = traceId === null ? null : (traceUrlTemplate?.replace(TRACE_ID_PLACEHOLDER, traceId) ?? null);
  return { traceId, traceUrl };
}

/** The destination of an outbox row; undefined without one, and for a message that was expanded. */
export function goesTo(row: OutboxMessage, { destinationOf }: OperationsSettings): string | undefined {
  return row.expandedTo === null ? destinationOf(row) : undefined;
}

function summaryOf(total: number, deliveries: readonly StoredDelivery[]): string {
  const states = (["processing", "pending", "parked", "dead"] as const).map(
    (state) => [state, deliveries.filter((each) => each.state === state).length] as const,
  );
  const sent = deliveries.filter(({ state }) => state === "sent").length;
  const others = [...states, ["deleted", total - deliveries.length] as const].filter(([, count]) => count > 0);
  return [`${sent} of ${total} delivered`, ...others.map(([state, count]) => `${count} ${state}`)].join(", ");
}

export function correlationIdOf(row: OutboxMessage | undefined): string | undefined {
  return Object.entries(row?.headers ?? {}).find(([header]) => header.toLowerCase() === "x-correlation-id")?.[1];
}

function eventsOf({ stored: { inbox, outbox }, history = [], duplicates }: MessageFacts): readonly TimelineEvent[] {
  const first: TimelineEvent[] = [];
  if (inbox !== undefined) {
    const text = `received from ${inbox.source}, idempotency key ${inbox.idempotencyKey}`;
    first.push({ at: inbox.createdAt, event: "received", text });
    if (inbox.state === "dead") {
      const [at, reason] = [inbox.processedAt ?? inbox.createdAt, inbox.lastError ?? ""];
      first.push({ at, event: "died in the inbox", text: "dead in the inbox", reason });
    }
  }
  if (outbox !== undefined) {
    const [event, how] =
      inbox === undefined ? (["created", "inserted"] as const) : (["relayed", "relayed to the outbox"] as const);
    first.push({ at: inbox?.processedAt ?? outbox.createdAt, event, text: `${how} with the topic ${outbox.topic}` });
  }
  const again = (duplicates?.entries ?? []).map(receivedAgain);
  return [...first, ...again, ...history.map(eventOf), ...withoutHistory(outbox, history)];
}

function receivedAgain({ at, source, correlationId, replica }: JournalEntry): TimelineEvent {
  const of = correlationId === null ? "" : `, correlation id ${correlationId}`;
  return { at, event: "duplicate", text: `received again from ${source} as a duplicate${of}`, actor: replica };
}

/** The last state of a row whose end is not in the history: a success that is not kept, or an end from before. */
function withoutHistory(outbox: OutboxMessage | undefined, history: readonly HistoryEntry[]): readonly TimelineEvent[] {
  const state = outbox?.state;
  if (outbox === undefined || (state !== "sent" && state !== "dead")) return [];
  const { expandedTo, updatedAt: at } = outbox;
  if (expandedTo !== null) return [{ at, event: "expanded", text: `expanded to ${expandedTo.join(", ") || "none"}` }];
  const last = history.at(-1)?.event;
  if (last === state || (state === "dead" && last === "discarded")) return [];
  const reason = state === "dead" ? (outbox.lastError ?? undefined) : undefined;
  return [{ at, event: state, text: TEXTS[state], ...(reason === undefined ? {} : { reason }) }];
}

const TEXTS: Readonly<Record<HistoryEntry["event"], string>> = {
  sent: "delivered",
  retry: "failed, to be tried again",
  park: "failed for good, parked",
  dead: "dead",
  replayed: "replayed",
  retried: "retried by an operator",
  discarded: "discarded by an operator",
  skipped: "not delivered",
};

function eventOf(entry: HistoryEntry): TimelineEvent {
  const { at, event, attempt, actor, destination, code, status, durationMs, reason } = entry;
  const known = Object.entries({ attempt, actor, destination, code, status, durationMs, reason });
  return {
    at,
    event,
    text: TEXTS[event] ?? event,
    ...Object.fromEntries(known.filter(([, value]) => value !== null)),
  };
}

function inboxWaits(
  { stored: { now, inbox }, rolesAlive }: MessageFacts,
  settings: OperationsSettings,
): readonly WaitReason[] {
  if (inbox === undefined || inbox.state !== "pending") return [];
  if (inbox.consumption === "pull") return [pullWait(inbox, now)];
  if (!Object.hasOwn(settings.sources, inbox.source)) {
    const text = `the source ${inbox.source} is not configured: configure it, and a relay copies its rows`;
    return [{ code: "unknown_source", text }];
  }
  if (!settings.isRelayEnabled) {
    return [{ code: "relay_disabled", text: "inbox.relay.enabled is false: no relay copies it into the outbox" }];
  }
  if (rolesAlive?.has("relay") === false) return [{ code: "no_relay", text: notAlive("relay") }];
  const due = heldUntil(inbox, now);
  if (due !== undefined) return [{ code: "scheduled", text: `delayed by its source: a relay copies it at ${due}` }];
  const text = "waits in the inbox for a process with the role relay, behind earlier rows";
  return [{ code: "relay", text }];
}

function lockWait(row: string, { pid, user, application, state, stateMs, seenBy }: LockHolder): WaitReason {
  if (pid === null) return { code: "locked", text: `${row}locked by a prepared transaction: see pg_prepared_xacts` };
  const of = [application === null ? "" : `, application ${application}`, user === null ? "" : `, user ${user}`].join(
    "",
  );
  const does =
    state === null
      ? `${of} (GRANT pg_read_all_stats TO ${seenBy} shows what it does)`
      : `, ${state} for ${durationText(stateMs ?? 0)}${of}`;
  return { code: "locked", text: `${row}locked by pid ${pid}${does}: it waits until that transaction ends` };
}

/** In seconds, minutes or hours, at least two of the larger ones. */
export function durationText(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function notAlive(role: "relay" | "poller"): string {
  return `no process with the role ${role} was seen in the last minute: start one (svc status shows those alive)`;
}

function pullWait(inbox: InboxMessage, now: Date): WaitReason {
  const { leaseUntil, isClaimed, scheduledAt, attempt, source } = inbox;
  if (isClaimed && leaseUntil !== null && leaseUntil > now) {
    return { code: "in_delivery", text: `a pull client has claimed it until ${leaseUntil.toISOString()}` };
  }
  if (attempt > 0 && scheduledAt !== null && scheduledAt > now) {
    return { code: "retry", text: `a pull client rejected it: due again at ${scheduledAt.toISOString()}` };
  }
  const due = heldUntil(inbox, now);
  if (due !== undefined) return { code: "scheduled", text: `delayed by its source: pull clients get it at ${due}` };
  return { code: "pull_client", text: `waits for a client to pull the source ${source}` };
}

/** @returns when a row that was put off at its receipt is due, ISO 8601; undefined for any other row */
function heldUntil({ createdAt, scheduledAt, attempt }: InboxMessage, now: Date): string | undefined {
  if (attempt > 0 || scheduledAt === null || scheduledAt <= now) return undefined;
  return createdAt !== null && scheduledAt <= createdAt ? undefined : scheduledAt.toISOString();
}

function outboxWaits(
  row: OutboxMessage,
  destination: string | null,
  { stored: { now }, before, destinations, rolesAlive }: MessageFacts,
  settings: OperationsSettings,
): readonly WaitReason[] {
  if (row.state === "sent" || row.state === "dead") return [];
  const noPoller: readonly WaitReason[] =
    rolesAlive?.has("poller") === false ? [{ code: "no_poller", text: notAlive("poller") }] : [];
  if (row.state === "processing") return [deliveryWait(row, now), ...noPoller];
  if (row.isParked) {
    const text = "parked: svc parked retry delivers it again, svc parked discard makes it dead";
    return [{ code: "parked", text }];
  }
  const { scheduledAt, attempt, isAhead } = row;
  const own: WaitReason[] = [];
  if (isAhead) {
    const due = scheduledAt === null ? "never due" : `due at ${scheduledAt.toISOString()}`;
    own.push(
      attempt > 0
        ? { code: "retry", text: `failed ${attempt} of ${limitOf(row, destination, settings)} times: ${due}` }
        : { code: "scheduled", text: `scheduled ahead: ${due}` },
    );
  }
  if (before !== undefined) own.push(behind(before, row));
  own.push(...destinationWaits(row, destination, destinations, settings));
  if (own.length > 0 || noPoller.length > 0) return [...own, ...noPoller];
  return [{ code: "due", text: "due: waits for a free slot of a process with the role poller" }];
}

function deliveryWait({ claimedAt, leaseUntil }: OutboxMessage, now: Date): WaitReason {
  const since = claimedAt === null ? "" : ` since ${claimedAt.toISOString()}`;
  if (leaseUntil !== null && leaseUntil < now) {
    const text = `claimed${since}, but its lease ended at ${leaseUntil.toISOString()}: a poller takes it again`;
    return { code: "lease_expired", text };
  }
  return { code: "in_delivery", text: `claimed${since}: its delivery is under way` };
}

/** The attempts after which the row is dead or parked. */
function limitOf(row: OutboxMessage, destination: string | null, { destinations }: OperationsSettings): number {
  return maxAttemptsInEffect(
    row.maxAttempts,
    destination === null ? undefined : destinations[destination]?.maxAttempts,
  );
}

function behind({ id, state, isParked, attempt, scheduledAt }: RowBefore, { key }: OutboxMessage): WaitReason {
  const what = isParked
    ? "is parked"
    : state === "processing"
      ? "is in delivery"
      : attempt > 0
        ? `has failed ${attempt} times and is retried at ${scheduledAt?.toISOString() ?? "once"}`
        : "is pending";
  return { code: "behind_row", text: `waits behind row ${id} of the key ${key}, which ${what}` };
}

function destinationWaits(
  outbox: OutboxMessage,
  destination: string | null,
  destinations: readonly SharedDestination[],
  settings: OperationsSettings,
): readonly WaitReason[] {
  if (outbox.topic === null) return [];
  const list = destination === null && !outbox.isPinned ? settings.listOf(outbox.topic) : undefined;
  if (list !== undefined) return [{ code: "not_expanded", text: `waits to be expanded to ${list.join(", ")}` }];
  if (destination === null) return [{ code: "no_route", text: `${nowhere(outbox)}; the next claim makes it dead` }];
  const waits: WaitReason[] = [];
  const shared = destinations.find(({ name }) => name === destination);
  const pause = shared?.pause;
  if (pause) {
    const until = pause.until === null ? "" : ` until ${pause.until.toISOString()}`;
    const text = `${destination} is paused${until} by ${pause.by}: ${pause.reason}`;
    waits.push({ code: "paused", text });
  }
  if (shared !== undefined && shared.breaker.state !== "closed") {
    const next = Math.ceil(shared.breaker.remainingMs / 1000);
    const text = `the circuit breaker of ${destination} is ${shared.breaker.state} (${shared.breaker.reason ?? "failures"}): next probe in ${next} s`;
    waits.push({ code: "breaker_open", text });
  }
  const perSecond = settings.destinations[destination]?.rateLimit?.perSecond;
  if (perSecond !== undefined && shared !== undefined && shared.takenPerSecond >= perSecond * ALMOST_ALL) {
    const text = `the rate limit of ${destination} (${perSecond} per second) is reached: the row waits its turn`;
    waits.push({ code: "rate_limited", text });
  }
  return waits;
}

/** Share of the limit from which on rows wait for it. */
const ALMOST_ALL = 0.8;
