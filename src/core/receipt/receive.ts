import { setImmediate } from "node:timers/promises";
import { v7 as uuidv7 } from "uuid";
import { errorText, StoreError } from "../../model/errors.ts";
import type {
  CellInsertResult,
  Consumption,
  Headers,
  InsertResult,
  MessageId,
  NewInboxRow,
  Receipt,
  Rejection,
} from "../../model/rows.ts";
import { compileTopicPattern } from "../../model/topicPattern.ts";
import { type TraceContext, withReceiptContext } from "../../model/traceContext.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import {
  type AttributePlan,
  type Attributes,
  type BrokerProperties,
  droppedKey,
  findAttributes,
  findHeader,
  storableAttributes,
  usableAttributes,
} from "./attributes.ts";
import { readEvent } from "./cloudEvents.ts";
import type { AttributeExpressions, ComputedAttributes } from "./expressions.ts";
import type { Journal } from "./journal.ts";
import { JsonDocument } from "./jsonDocument.ts";
import { createExpiry, createSchedule, type TimeSettings, warnOfTimes } from "./times.ts";

export interface ReceivedMessage {
  readonly body: Buffer;
  /** Stored, and visible to the transform; an HTTP source leaves out its credential headers. */
  readonly headers: Headers;
  readonly correlationId: string | null;
  readonly properties?: BrokerProperties | undefined;
  /** The span of its receipt, which is stored beside the headers; no transform or expression sees it. */
  readonly trace?: TraceContext | undefined;
  /** Its place among the messages of its request, from 0; undefined if it came alone. */
  readonly position?: number | undefined;
  /** Of a row that is received again: its key stays, and the others count if the message has none. */
  readonly stored?: Attributes | undefined;
}

/** What a source transform sees besides the document (spec, "Transform stages and variables"). */
export interface SourceStageContext {
  readonly messageId: MessageId;
  readonly source: string;
  readonly eventType: string | null;
  readonly idempotencyKey: string;
  /** Receipt time, ISO-8601. */
  readonly timestamp: string;
  readonly headers: Headers;
  /** Not for the transform. */
  readonly trace?: TraceContext | undefined;
}

type SourceStageOutcome =
  /** Store the body as received: `onError: Skip` swallowed a failure. */
  | { readonly kind: "unchanged" }
  /** Store this JSON text instead. */
  | { readonly kind: "replaced"; readonly payload: string }
  | { readonly kind: "rejected"; readonly reason: string }
  /** The evaluator failed, not the message: its sender may send it again. */
  | { readonly kind: "unavailable"; readonly reason: string };

/** A source's transform with its limits and `onError`. Never rejects. @param refusable if too many evaluations wait */
export type SourceStage = (
  body: string,
  context: SourceStageContext,
  refusable?: boolean,
) => Promise<SourceStageOutcome>;

/** What messages are received with, whatever the kind of their source. */
export interface SourceOptions {
  readonly source: string;
  readonly settings: {
    readonly consumption: Consumption;
    readonly filter?: HeaderFilterSettings | undefined;
    /** Whether the source refuses messages that are not CloudEvents. */
    readonly cloudEvents?: boolean | undefined;
    readonly aggregateIdPath?: string | readonly string[] | undefined;
    readonly aggregateIdHeader?: string | undefined;
    readonly aggregateIdExpression?: string | undefined;
  } & TimeSettings;
  readonly attributes: AttributePlan;
  /** Compute attributes; none by default. */
  readonly expressions?: AttributeExpressions | undefined;
  readonly stage?: SourceStage | undefined;
  /** Whether refused messages become dead rows, as those of brokers. */
  readonly keepsRefused?: boolean;
  /** None by default. */
  readonly journal?: Journal | undefined;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

export interface Receipts {
  add(row: NewInboxRow): Promise<InsertResult>;
  addRequest(rows: readonly NewInboxRow[], isAtomic: boolean): Promise<readonly CellInsertResult[]>;
}

export interface ReceiverOptions extends SourceOptions {
  readonly batcher: Receipts;
  /** Longest time in ms for the transforms of one request of several messages. Default 60,000. */
  readonly requestTimeoutMs?: number | undefined;
}

/** Receives the messages of one source, in two steps because an HTTP source answers a header in between. */
export interface Receiver {
  readonly source: string;
  /** The source's header filter, which a message is to pass; undefined without one. */
  readonly filter: HeaderFilter | undefined;
  drop(read: () => DroppedMessage): void;
  /** Everything after the filter: JSON, attributes, transform, insert. Counts the outcome. Never rejects. */
  accept(message: ReceivedMessage): Promise<Receipt>;
  /**
   * The same for the messages of one request, in one commit; none is stored while the transform of one cannot run.
   *
   * @param isAtomic stores all of them or none; duplicates count as stored
   */
  acceptRequest(messages: readonly ReceivedMessage[], isAtomic: boolean): Promise<readonly Receipt[]>;
}

/** @throws Error when the source's filter is invalid */
export function createReceiver(options: ReceiverOptions): Receiver {
  const { source, batcher, requestTimeoutMs = REQUEST_TIMEOUT_MS, journal, clock, metrics } = options;
  const prepare = createPreparation(options);

  async function accept(message: ReceivedMessage): Promise<Receipt> {
    const prepared = await prepare(message, uuidv7() as MessageId, true);
    let receipt: Receipt;
    try {
      receipt =
        prepared.kind === "row" ? receiptOf(prepared.row, await batcher.add(prepared.row)) : refusalOf(prepared);
    } catch (error) {
      receipt = unavailable(error);
    }
    count(receipt, metrics);
    return receipt;
  }

  function receiptOf(row: NewInboxRow, outcome: CellInsertResult): Receipt {
    switch (outcome.kind) {
      case "unavailable":
        return outcome;
      case "stored":
        return { kind: "stored", id: row.id };
      case "duplicate":
        journal?.duplicate(row);
        return outcome;
      case "refused":
        if (outcome.mayPassLater === true) return { kind: "unavailable", reason: outcome.reason };
        return {
          kind: "rejected",
          rejection: "unstorable",
          reason: `the database cannot hold this message: ${outcome.reason}`,
        };
    }
  }

  async function acceptRequest(messages: readonly ReceivedMessage[], isAtomic: boolean): Promise<readonly Receipt[]> {
    const receipts = await processRequest(messages, isAtomic);
    for (const receipt of receipts) count(receipt, metrics);
    return receipts;
  }

  async function processRequest(messages: readonly ReceivedMessage[], isAtomic: boolean): Promise<readonly Receipt[]> {
    const all = await prepareAll(messages);
    const busy = all.find((prepared) => prepared.kind === "unavailable");
    if (busy !== undefined) return messages.map(() => ({ kind: "busy", reason: busy.reason }));
    const rows = all.flatMap((prepared) => (prepared.kind === "row" ? [prepared.row] : []));
    const isStored = rows.length > 0 && !(isAtomic && rows.length < all.length);
    const stored = isStored ? await storeRequest(rows, isAtomic) : rows.map(() => WITHHELD);
    const ofRows = new Map(rows.map((row, n) => [row, stored[n] ?? WITHHELD]));
    return all.map((prepared) => {
      return prepared.kind === "row" ? (ofRows.get(prepared.row) ?? WITHHELD) : refusalOf(prepared);
    });
  }

  /** In slices, so that other requests have their turn. Only the first slice may be refused as busy. */
  async function prepareAll(messages: readonly ReceivedMessage[]): Promise<readonly Prepared[]> {
    const all: Prepared[] = [];
    const endsAt = clock.monotonic() + requestTimeoutMs;
    for (let start = 0; start < messages.length; start += SLICE) {
      if (start > 0) await setImmediate();
      if (clock.monotonic() > endsAt) {
        const reason = `its messages waited longer than ${requestTimeoutMs} ms for their transforms`;
        return [...all, { kind: "unavailable", reason }];
      }
      const slice = messages.slice(start, start + SLICE);
      const refusable = start === 0;
      all.push(...(await Promise.all(slice.map((message) => prepare(message, uuidv7() as MessageId, refusable)))));
      if (all.slice(start).some(({ kind }) => kind === "unavailable")) break;
    }
    return all;
  }

  async function storeRequest(rows: readonly NewInboxRow[], isAtomic: boolean): Promise<readonly Receipt[]> {
    try {
      const outcomes = await batcher.addRequest(rows, isAtomic);
      const isNone = isAtomic && outcomes.some(({ kind }) => kind === "refused");
      return rows.map((row, n) => {
        const outcome = outcomes[n];
        return outcome === undefined || (isNone && outcome.kind !== "refused") ? WITHHELD : receiptOf(row, outcome);
      });
    } catch (error) {
      return rows.map(() => unavailable(error));
    }
  }

  return { source, filter: filterOf(options), drop: (read) => drop(options, read), accept, acceptRequest };
}

/** Without what only a row kept as evidence needs. */
function refusalOf(prepared: Exclude<Prepared, { readonly kind: "row" }>): Receipt {
  const { kind, reason } = prepared;
  if (kind === "unavailable" || prepared.mayPassLater === true) return { kind: "busy", reason };
  return { kind, rejection: prepared.rejection, reason };
}

/** The receipt of a message that could not be stored. A StoreError's cause is left out: it may quote the row. */
export const unavailable = (error: unknown): { readonly kind: "unavailable"; readonly reason: string } => ({
  kind: "unavailable",
  reason: error instanceof StoreError ? error.message : errorText(error),
});

const WITHHELD: Receipt = { kind: "withheld" };
const REQUEST_TIMEOUT_MS = 60_000;
/** Messages of a request that are prepared at a time. */
const SLICE = 64;

function count(outcome: Receipt, metrics: Metrics): void {
  switch (outcome.kind) {
    case "stored":
      metrics.inboxMessages("new", 1);
      break;
    case "duplicate":
      metrics.inboxMessages("duplicate", 1);
      break;
    case "unavailable":
      metrics.inboxRejection("storage_failed");
      break;
    case "busy":
      metrics.inboxRejection("transform_unavailable");
      break;
    case "filtered": // The filter has counted it.
    case "withheld":
      break;
    case "rejected":
      metrics.inboxRejection(REJECTION_METRICS[outcome.rejection]);
      break;
  }
}

/** The header filter of a source; undefined without one. @throws Error when it is invalid */
export function filterOf({ settings: { filter } }: SourceOptions): HeaderFilter | undefined {
  return filter === undefined ? undefined : compileHeaderFilter(filter);
}

interface DroppedMessage extends Pick<ReceivedMessage, "body" | "headers" | "properties"> {
  /** As the sender gave it. */
  readonly correlationId: string | undefined;
}

/** Counts and journals a message that does not pass the filter. @param read called after the sender has its answer */
export function drop({ source, attributes, journal, metrics }: SourceOptions, read: () => DroppedMessage): void {
  metrics.inboxFiltered();
  journal?.filtered(source, () => {
    const { correlationId, ...message } = read();
    return { idempotencyKey: droppedKey(attributes, message), correlationId };
  });
}

export type Prepared =
  | { readonly kind: "row"; readonly row: NewInboxRow }
  | {
      readonly kind: "rejected";
      readonly rejection: Rejection;
      readonly reason: string;
      /** The known ones, for a row that is kept as evidence. */
      readonly attributes?: Attributes;
      /** It may be accepted when it is sent again: the expression for its key, which is nowhere else, took too long. */
      readonly mayPassLater?: boolean;
    }
  | { readonly kind: "unavailable"; readonly reason: string };

/** Makes the inbox row of a message without storing it. Never rejects. @param id draw ids in the order of receipt */
type Prepare = (message: ReceivedMessage, id: MessageId, refusable: boolean) => Promise<Prepared>;

/** Compiles what one source does before messages are stored (spec, "POST <inbox.basePath><path>", steps 5 to 7). */
export function createPreparation(options: SourceOptions): Prepare {
  const { source, settings, attributes: plan, expressions, stage, clock, metrics } = options;
  const { consumption, cloudEvents = false } = settings;
  const { aggregateIdPath, aggregateIdHeader, aggregateIdExpression } = settings;
  const expectsAggregateId = (aggregateIdPath ?? aggregateIdHeader ?? aggregateIdExpression) !== undefined;
  const onUnreadable = warnOfTimes(source, options);
  const expiryOf = createExpiry(settings, onUnreadable);
  const scheduleOf = createSchedule(settings, onUnreadable);

  return async (message, id, refusable) => {
    const { correlationId, properties, position, stored, trace } = message;
    const event = cloudEvents ? readEvent(message) : message;
    if ("kind" in event && event.kind === "failed")
      return { kind: "rejected", rejection: "extraction_failed", reason: event.reason };
    const { body, headers } = event;
    const document = JsonDocument.parse(body);
    if (document === null) {
      return { kind: "rejected", rejection: "invalid_json", reason: "the body is not a JSON document in UTF-8" };
    }
    const input = { body, document, headers, properties, position };
    const places = findAttributes(plan, input);
    const expiry = expiryOf?.(input);
    const schedule = scheduleOf?.(input);
    // Only the text is needed now: the parsed values can be freed while expressions and the transform wait.
    const { text } = document;
    const computed = expressions === undefined ? NOTHING : await expressions({ text, headers, position, refusable });
    if (computed.kind === "unavailable") return computed;
    const read = { ...places, ...computed.values };
    const found = {
      idempotencyKey: stored?.idempotencyKey ?? read.idempotencyKey,
      eventType: read.eventType ?? stored?.eventType ?? null,
      aggregateId: read.aggregateId ?? stored?.aggregateId ?? null,
    };
    const extraction = usableAttributes(found, places.noKeyReason);
    if (extraction.kind === "failed") {
      const attributes = storableAttributes(found, message.body);
      const mayPassLater = computed.isKeyLate === true && found.idempotencyKey === null;
      return { kind: "rejected", rejection: "extraction_failed", reason: extraction.reason, attributes, mayPassLater };
    }
    const { attributes } = extraction;
    let transformed = UNCHANGED;
    if (stage !== undefined) {
      const { eventType, idempotencyKey } = attributes;
      const timestamp = new Date(clock.now()).toISOString();
      transformed = await stage(
        text,
        { messageId: id, source, eventType, idempotencyKey, timestamp, headers, trace },
        refusable,
      );
    }
    if (transformed.kind === "unavailable") return transformed;
    if (transformed.kind === "rejected") {
      return { kind: "rejected", rejection: "transform_failed", reason: transformed.reason, attributes };
    }
    const { idempotencyKey, aggregateId, eventType } = attributes;
    if (expectsAggregateId && aggregateId === null) metrics.inboxWithoutAggregateId(source);
    const row: Required<NewInboxRow> = {
      id,
      source,
      idempotencyKey,
      aggregateId,
      eventType,
      payload: transformed.kind === "replaced" ? transformed.payload : text,
      state: "pending",
      consumption,
      correlationId,
      headers: withReceiptContext(headers, trace),
      lastError: null,
      schedule,
      expiry,
    };
    return { kind: "row", row };
  };
}

/** The `svc_inbox_rejections_total` reason of each rejection. */
export const REJECTION_METRICS = {
  invalid_json: "extraction_failed",
  extraction_failed: "extraction_failed",
  transform_failed: "transform_failed",
  unstorable: "storage_failed",
} as const;

const NOTHING: ComputedAttributes = { kind: "computed", values: {} };
const UNCHANGED: SourceStageOutcome = { kind: "unchanged" };

/** One rule: a header name, in any letter case, and exactly one test (spec, "Header filter"). */
export interface HeaderRule {
  readonly header: string;
  readonly equals?: string | undefined;
  readonly in?: readonly string[] | undefined;
  /** A topic glob for the whole value. */
  readonly matches?: string | undefined;
  readonly exists?: boolean | undefined;
}

interface HeaderFilterSettings {
  /** The message must match all of these. */
  readonly require?: readonly HeaderRule[] | undefined;
  /** The message must match none of these. */
  readonly exclude?: readonly HeaderRule[] | undefined;
}

type HeaderFilter = (headers: Headers) => boolean;

/**
 * @param settings the source's `filter` block; without rules everything passes
 * @throws Error that names the header of a rule without exactly one test, or with an invalid glob
 */
export function compileHeaderFilter(settings: HeaderFilterSettings): HeaderFilter {
  const required = (settings.require ?? []).map(compileRule);
  const excluded = (settings.exclude ?? []).map(compileRule);
  return (headers) => required.every((matches) => matches(headers)) && !excluded.some((matches) => matches(headers));
}

function compileRule(rule: HeaderRule): HeaderFilter {
  const name = rule.header.toLowerCase();
  const test = compileTest(rule);
  return (headers) => {
    const value = findHeader(headers, name);
    return value !== undefined && test(value);
  };
}

function compileTest(rule: HeaderRule): (value: string) => boolean {
  const tests = [
    rule.equals === undefined ? [] : [equalTo(rule.equals)],
    rule.in === undefined ? [] : [oneOf(rule.in)],
    rule.matches === undefined ? [] : [compileTopicPattern(rule.matches)],
    rule.exists === true ? [present] : [],
  ].flat();
  const [test] = tests;
  if (test === undefined || tests.length > 1) {
    throw new Error(
      `the filter rule on header ${JSON.stringify(rule.header)} has ${tests.length} tests; ` +
        "give exactly one of equals, in, matches or exists: true",
    );
  }
  return test;
}

const equalTo = (expected: string) => (value: string) => value === expected;
const oneOf = (allowed: readonly string[]) => {
  const values = new Set(allowed);
  return (value: string) => values.has(value);
};
const present = () => true;
