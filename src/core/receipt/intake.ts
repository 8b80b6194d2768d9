import { isUtf8 } from "node:buffer";
import { v7 as uuidv7 } from "uuid";
import { errorText, StoreError } from "../../model/errors.ts";
import type { Consumption, Headers, InsertResult, MessageId, NewInboxRow, Rejection } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { BrokerMessage, Intake } from "../../ports/source.ts";
import { Backoff } from "../../time/backoff.ts";
import type { Clock, Random } from "../../time/clock.ts";
import type { Redact } from "../redaction/redact.ts";
import { type AttributePlan, type Attributes, droppedKey, evidenceAttributes } from "./attributes.ts";
import type { ExpirySettings } from "./expiry.ts";
import type { AttributeExpressions } from "./expressions.ts";
import { CORRELATION_HEADER, compileHeaderFilter, correlationId, type HeaderFilterSettings } from "./headers.ts";
import type { Journal } from "./journal.ts";
import { JsonDocument } from "./jsonDocument.ts";
import {
  createPreparation,
  type Prepared,
  REJECTION_METRICS,
  type ReceivedMessage,
  type SourceStage,
} from "./preparation.ts";
import type { ScheduleSettings } from "./schedule.ts";

export interface IntakeOptions {
  readonly source: string;
  readonly settings: {
    readonly consumption: Consumption;
    readonly filter?: HeaderFilterSettings | undefined;
    readonly cloudEvents?: boolean | undefined;
  } & ExpirySettings &
    ScheduleSettings;
  readonly attributes: AttributePlan;
  /** Compute attributes; none by default. */
  readonly expressions?: AttributeExpressions | undefined;
  readonly stage?: SourceStage | undefined;
  /** Stores rows in one commit (`InboxStore.insert`). */
  readonly insert: (rows: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>;
  /** Rejects with the signal's reason on abort. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Redacts every reason before it is stored. */
  readonly redact: Redact;
  /** None by default. */
  readonly journal?: Journal | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Log;
}

/**
 * Receives the messages of one broker source: header filter, attributes, transform, and one insert per batch. A message
 * that can never be accepted is stored as a dead row (spec, "States and transitions"), so that no input blocks a queue.
 *
 * @throws Error when the source's filter is invalid
 */
export function createIntake(options: IntakeOptions): Intake {
  const { source, settings, attributes, expressions, stage, journal, clock, metrics, log, redact } = options;
  const filter = settings.filter === undefined ? null : compileHeaderFilter(settings.filter);
  const prepare = createPreparation({ source, settings, attributes, expressions, stage, clock, log });
  const evidence = new Evidence({ source, consumption: settings.consumption, attributes, redact });
  const retries = new Retries(options);

  const admit = (message: BrokerMessage): Arrival | null => {
    const headers = storableHeaders(withOrigin(message));
    if (filter !== null && !filter(headers)) {
      metrics.inboxFiltered();
      journal?.filtered(source, () => {
        const { body, headers: stored, properties } = receivedMessage(message, headers);
        return {
          idempotencyKey: droppedKey(attributes, { body, headers: stored, properties }),
          correlationId: givenCorrelation(message, headers),
        };
      });
      return null;
    }
    return { id: uuidv7() as MessageId, given: message, message: receivedMessage(message, headers) };
  };

  /** One row per message, in order. */
  async function receiptsOf(part: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly Receipt[]> {
    const arrivals = part.map(admit).filter((arrival) => arrival !== null);
    const receipts = new Map<Arrival, Receipt>();
    for (let left = arrivals; left.length > 0; ) {
      const prepared = await Promise.all(
        left.map(({ given, message, id }) => unreadable(given) ?? prepare(message, id, false)),
      );
      let unavailable: string | undefined;
      left.forEach((arrival, i) => {
        const each = prepared[i];
        if (each === undefined || each.kind === "unavailable") unavailable = each?.reason;
        else receipts.set(arrival, receiptOf(arrival, each));
      });
      left = left.filter((arrival) => !receipts.has(arrival));
      if (left.length > 0) await retries.pause(signal, "received messages wait for their transform", unavailable);
    }
    return arrivals.flatMap((arrival) => receipts.get(arrival) ?? []);
  }

  function receiptOf(arrival: Arrival, prepared: Decided): Receipt {
    if (prepared.kind === "row") return { ...arrival, row: prepared.row, refusal: null, form: "whole" };
    const { rejection, reason, attributes: known } = prepared;
    return {
      ...arrival,
      row: evidence.rowOf(arrival.message, arrival.id, reason, known),
      refusal: { rejection, reason },
      form: "whole",
    };
  }

  /** @returns the messages that the table refuses in every form */
  async function store(receipts: readonly Receipt[], signal: AbortSignal): Promise<readonly BrokerMessage[]> {
    let left = receipts;
    const refused: BrokerMessage[] = [];
    let reason = "";
    while (left.length > 0) {
      const rows = left.map(({ row }) => row);
      const outcomes = await retries.until(signal, "received messages wait for the database", async () => {
        const answers = await options.insert(rows);
        // A message without an outcome would count as stored, and be acknowledged.
        if (answers.length === rows.length) return answers;
        throw new StoreError("other", `insert of ${rows.length} rows answered for ${answers.length}`);
      });
      left = left.flatMap((receipt, i) => {
        const outcome = outcomes[i];
        if (outcome?.kind !== "refused") {
          count(receipt, outcome?.kind === "duplicate");
          return [];
        }
        if (receipt.form !== "plainest") return [refusedReceipt(receipt, outcome.reason)];
        // Even the plainest row was refused: the table is at fault, not the message.
        refused.push(receipt.given);
        reason = outcome.reason;
        return [];
      });
    }
    if (refused.length === 0) return refused;
    for (const _ of refused) metrics.inboxRejection("storage_failed");
    log.error(
      { source, messages: refused.length, reason: redact(reason) },
      "the inbox table refuses messages, also as dead rows: correct its constraints or triggers; the messages stay with the broker and are tried again",
    );
    return refused;
  }

  /**
   * A refused message becomes a dead row; if that is refused too, a plain row under the same key, and in the end the
   * plain row that any table can hold.
   */
  function refusedReceipt(receipt: Receipt, why: string): Receipt {
    const { id, message, refusal, row, form } = receipt;
    if (refusal !== null) {
      const plainest = evidence.plainRowOf(message, id, refusal.reason);
      const { idempotencyKey } = row;
      if (form === "plain" || idempotencyKey === plainest.idempotencyKey)
        return { ...receipt, row: plainest, form: "plainest" };
      return { ...receipt, row: { ...plainest, idempotencyKey }, form: "plain" };
    }
    const reason = `the database cannot hold this message: ${why}`;
    return { ...receipt, row: evidence.rowOf(message, id, reason, row), refusal: { rejection: "unstorable", reason } };
  }

  function count({ row, refusal }: Receipt, isDuplicate: boolean): void {
    if (isDuplicate) {
      metrics.inboxMessages("duplicate", 1);
      journal?.duplicate(row);
    } else if (refusal === null) metrics.inboxMessages("new", 1);
    else {
      metrics.inboxRejection(REJECTION_METRICS[refusal.rejection]);
      // The reason may quote the body; it is in `last_error` of the row.
      log.warn({ source, id: row.id, rejection: refusal.rejection }, "a message was stored as a dead row");
    }
  }

  return {
    async take(messages, signal) {
      const refused: BrokerMessage[] = [];
      for (const part of inParts(messages)) {
        signal.throwIfAborted();
        refused.push(...(await store(await receiptsOf(part, signal), signal)));
      }
      return refused;
    },
  };
}

/** A message with the id of its future row. */
interface Arrival {
  readonly id: MessageId;
  /** As received from the source. */
  readonly given: BrokerMessage;
  readonly message: ReceivedMessage;
}

/** A message with its row. */
interface Receipt extends Arrival {
  readonly row: NewInboxRow;
  /** Why the row is dead; null when it was accepted. */
  readonly refusal: { readonly rejection: Rejection; readonly reason: string } | null;
  /** `plain`: without headers, and the body as base64. `plainest`: also with a key that needs nothing of the body. */
  readonly form: "whole" | "plain" | "plainest";
}

type Decided = Exclude<Prepared, { readonly kind: "unavailable" }>;

/** Retries without end: a database outage must not lose what a broker sent. */
class Retries {
  readonly #options: Pick<IntakeOptions, "source" | "wait" | "random" | "log">;
  readonly #backoff: Backoff;

  constructor(options: Pick<IntakeOptions, "source" | "wait" | "random" | "log">) {
    this.#options = options;
    this.#backoff = new Backoff(options.random);
  }

  async until<T>(signal: AbortSignal, what: string, attempt: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        const result = await attempt();
        this.#backoff.reset();
        return result;
      } catch (error) {
        await this.pause(signal, what, error instanceof StoreError ? error.message : errorText(error));
      }
    }
  }

  /** @throws the signal's reason on abort */
  async pause(signal: AbortSignal, what: string, reason: string | null | undefined): Promise<void> {
    const { source, wait, log } = this.#options;
    const delayMs = this.#backoff.next();
    log.warn({ source, reason, failures: this.#backoff.failures, delayMs }, what);
    await wait(delayMs, signal);
  }
}

/** A tombstone is stored as the JSON document `null`. */
const NULL_DOCUMENT = Buffer.from("null");
const CORRELATION_NAME = CORRELATION_HEADER.toLowerCase();

/** The correlation id that a message came with. */
function givenCorrelation({ correlationId: ofProperty }: BrokerMessage, headers: Headers): string | undefined {
  return Object.entries(headers).findLast(([name]) => name.toLowerCase() === CORRELATION_NAME)?.[1] ?? ofProperty;
}

function receivedMessage(message: BrokerMessage, headers: Headers): ReceivedMessage {
  const stored: Record<string, string> = Object.create(null);
  let correlation = message.correlationId;
  for (const [name, value] of Object.entries(headers)) {
    if (name.toLowerCase() === CORRELATION_NAME) correlation = value;
    else stored[name] = value;
  }
  return {
    body: message.body ?? NULL_DOCUMENT,
    headers: stored,
    correlationId: correlationId(correlation),
    properties: {
      messageId: message.messageId,
      recordKey: message.recordKey,
      streamPlace: message.streamPlace,
      publishedAt: message.publishedAt,
    },
  };
}

function unreadable({ undecodable }: BrokerMessage): Decided | undefined {
  return undecodable === undefined
    ? undefined
    : { kind: "rejected", rejection: "extraction_failed", reason: undecodable };
}

/** The headers of a message with those that its broker adds, which no sender can forge. */
function withOrigin({ headers, origin }: BrokerMessage): Headers {
  if (origin === undefined) return headers;
  const own = Object.entries(headers).filter(([name]) => !Object.hasOwn(origin, name.toLowerCase()));
  const added = Object.entries(origin).filter((entry): entry is [string, string] => entry[1] !== null);
  return Object.fromEntries([...own, ...added]);
}

/** No database stores a NUL or a lone surrogate. Both become U+FFFD: a header is not worth losing its message. */
function storableHeaders(headers: Headers): Headers {
  for (const [name, value] of Object.entries(headers)) {
    if (UNSTORABLE.test(name) || UNSTORABLE.test(value)) return Object.fromEntries(Object.entries(headers).map(mended));
  }
  return headers;
}

function mended([name, value]: [string, string]): [string, string] {
  return [name.replace(EVERY_UNSTORABLE, "\ufffd"), value.replace(EVERY_UNSTORABLE, "\ufffd")];
}

const UNSTORABLE = /\0|\p{Surrogate}/u;
const EVERY_UNSTORABLE = /\0|\p{Surrogate}/gu;

const MAX_PART_ROWS = 500;
const MAX_PART_BYTES = 8 * 1024 * 1024;

/** Splits a batch into inserts of bounded size. */
function* inParts(messages: readonly BrokerMessage[]): Generator<readonly BrokerMessage[]> {
  let part: BrokerMessage[] = [];
  let bytes = 0;
  for (const message of messages) {
    const size = message.body?.length ?? 0;
    if (part.length > 0 && (part.length >= MAX_PART_ROWS || bytes + size > MAX_PART_BYTES)) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(message);
    bytes += size;
  }
  if (part.length > 0) yield part;
}

interface EvidenceOptions {
  readonly source: string;
  readonly consumption: Consumption;
  readonly attributes: AttributePlan;
  readonly redact: Redact;
}

/**
 * Makes dead rows of messages that can never be accepted: the original payload with the reason (spec, "States and
 * transitions"). Their sender got an acknowledgement, so they are kept for inspection.
 */
class Evidence {
  readonly #options: EvidenceOptions;

  constructor(options: EvidenceOptions) {
    this.#options = options;
  }

  /**
   * A dead row that keeps everything. A body that no text column can hold (invalid UTF-8, a NUL) is stored as base64.
   *
   * @param reason why the message is dead; redacted here
   * @param known its attributes; undefined where they were not read
   */
  rowOf(message: ReceivedMessage, id: MessageId, reason: string, known?: Attributes): NewInboxRow {
    const { redact } = this.#options;
    const { body, headers } = message;
    const { idempotencyKey, eventType, aggregateId } = known ?? this.#attributesOf(message);
    const isText = isUtf8(body) && !body.includes(0);
    return {
      ...this.#frame(message, id),
      idempotencyKey,
      eventType,
      aggregateId,
      payload: isText ? body.toString("utf8") : body.toString("base64"),
      headers,
      lastError: redact(isText ? reason : `${reason}; the payload is its bytes in base64`),
    };
  }

  /**
   * A dead row that any inbox table can hold, even with a payload column of type json: the body as base64 in a JSON
   * string, and nothing else from outside.
   *
   * @param reason why the message is dead; redacted here
   */
  plainRowOf(message: ReceivedMessage, id: MessageId, reason: string): NewInboxRow {
    const { attributes, redact } = this.#options;
    const { body, headers, properties } = message;
    const { idempotencyKey } = evidenceAttributes(attributes, { body, document: NO_DOCUMENT, headers, properties });
    return {
      ...this.#frame(message, id),
      idempotencyKey,
      eventType: null,
      aggregateId: null,
      payload: JSON.stringify(body.toString("base64")),
      headers: {},
      lastError: redact(`${reason}; the payload is its bytes in base64, the headers are left out`),
    };
  }

  #attributesOf({ body, headers, properties }: ReceivedMessage): Attributes {
    const document = JsonDocument.parse(body) ?? NO_DOCUMENT;
    return evidenceAttributes(this.#options.attributes, { body, document, headers, properties });
  }

  #frame({ correlationId }: ReceivedMessage, id: MessageId) {
    const { source, consumption } = this.#options;
    return { id, source, consumption, correlationId, state: "dead" } as const;
  }
}

const NO_DOCUMENT = new JsonDocument("null");
