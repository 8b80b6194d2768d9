import { isUtf8 } from "node:buffer";
import { v7 as uuidv7 } from "uuid";
import {
  type CellInsertResult,
  emptyHeaders,
  type Headers,
  type InsertResult,
  type MessageId,
  type NewInboxRow,
  type Rejection,
} from "../../model/rows.ts";
import { asRelayed, RECEIPT_HEADERS, traceFields, withReceiptContext } from "../../model/traceContext.ts";
import type { BrokerMessage, Intake } from "../../ports/source.ts";
import type { Random } from "../../time/clock.ts";
import { Backoff } from "../../time/wait.ts";
import type { Redact } from "../redaction/redact.ts";
import { type Attributes, CORRELATION_HEADER, correlationId, evidenceAttributes } from "./attributes.ts";
import { JsonDocument } from "./jsonDocument.ts";
import {
  createPreparation,
  drop,
  filterOf,
  type Prepared,
  REJECTION_METRICS,
  type ReceivedMessage,
  type SourceOptions,
  unavailable,
} from "./receive.ts";

export interface IntakeOptions extends SourceOptions {
  /** Stores rows, in one commit in each cell (`InboxStore.insert`). */
  readonly insert: (rows: readonly NewInboxRow[]) => Promise<readonly CellInsertResult[]>;
  /** Rejects with the signal's reason on abort. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Redacts every reason before it is stored. */
  readonly redact: Redact;
  readonly random: Random;
}

/**
 * Receives the messages of one broker source: header filter, attributes, transform, and one insert per batch. A message
 * that can never be accepted is stored as a dead row (spec, "States and transitions"), so that no input blocks a queue.
 *
 * @throws Error when the source's filter is invalid
 */
export function createIntake(options: IntakeOptions): Intake {
  const { source, journal, metrics, log, redact } = options;
  const filter = filterOf(options);
  const prepare = createPreparation(options);
  const backoff = new Backoff(options.random);

  const admit = (message: BrokerMessage): Arrival | null => {
    const headers = storableHeaders(withOrigin(message));
    if (filter === undefined || filter(headers))
      return { id: uuidv7() as MessageId, given: message, message: receivedMessage(message, headers) };
    const correlationId = givenCorrelation(message, headers);
    drop(options, () => ({ ...receivedMessage(message, headers), correlationId }));
    return null;
  };

  /** One row per message, in order. */
  async function decideAll(part: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly DecidedArrival[]> {
    const arrivals = part.map(admit).filter((arrival) => arrival !== null);
    const decided = new Map<Arrival, DecidedArrival>();
    for (let left = arrivals; left.length > 0; ) {
      const prepared = await Promise.all(
        left.map(({ given, message, id }) => unreadable(given) ?? prepare(message, id, false)),
      );
      let unavailable: string | undefined;
      left.forEach((arrival, i) => {
        const each = prepared[i];
        if (each === undefined || each.kind === "unavailable") unavailable = each?.reason;
        else decided.set(arrival, decidedArrival(arrival, each));
      });
      left = left.filter((arrival) => !decided.has(arrival));
      if (left.length > 0) await pause(signal, "received messages wait for their transform", unavailable);
    }
    return arrivals.flatMap((arrival) => decided.get(arrival) ?? []);
  }

  function decidedArrival(arrival: Arrival, prepared: Decided): DecidedArrival {
    // The spread last, as in `outcomeOf` of deliveries.
    if (prepared.kind === "row") return { row: prepared.row, refusal: null, isPlain: false, ...arrival };
    const { rejection, reason, attributes: known } = prepared;
    return {
      ...arrival,
      row: evidenceRow(options, arrival, reason, known),
      refusal: { rejection, reason },
      isPlain: false,
    };
  }

  /** @returns the messages that the table refuses in every form */
  async function store(decided: readonly DecidedArrival[], signal: AbortSignal): Promise<readonly BrokerMessage[]> {
    let left = decided;
    const refused: BrokerMessage[] = [];
    let reason = "";
    while (left.length > 0) {
      const outcomes = await insert(
        left.map(({ row }) => row),
        signal,
      );
      left = left.flatMap((arrival, i) => {
        const outcome = outcomes[i];
        if (outcome?.kind !== "refused") {
          count(arrival, outcome?.kind === "duplicate");
          return [];
        }
        if (!arrival.isPlain) return [refusedArrival(arrival, outcome.reason)];
        // The table refused even the plain row, so it refuses every message.
        refused.push(arrival.given);
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

  /** Retries without end: a database outage must not lose what a broker sent. */
  async function insert(rows: readonly NewInboxRow[], signal: AbortSignal): Promise<readonly InsertResult[]> {
    const inserted = new Map<NewInboxRow, InsertResult>();
    for (let left = rows; left.length > 0; ) {
      let reason = "";
      try {
        const outcomes = await options.insert(left);
        left.forEach((row, n) => {
          const outcome = outcomes[n] as CellInsertResult;
          if (outcome.kind === "unavailable") reason = outcome.reason;
          else inserted.set(row, outcome);
        });
        left = left.filter((row) => !inserted.has(row));
        if (left.length === 0) break;
      } catch (error) {
        ({ reason } = unavailable(error));
      }
      await pause(signal, "received messages wait for the database", reason);
    }
    backoff.reset();
    return rows.flatMap((row) => inserted.get(row) ?? []);
  }

  /** @throws the signal's reason on abort */
  async function pause(signal: AbortSignal, what: string, reason: string | undefined): Promise<void> {
    const delayMs = backoff.next();
    log.warn({ source, reason, failures: backoff.failures, delayMs }, what);
    await options.wait(delayMs, signal);
  }

  /** A refused message becomes a dead row, and if that is refused too, a plain one under the same key. */
  function refusedArrival(arrival: DecidedArrival, why: string): DecidedArrival {
    const { refusal, row } = arrival;
    if (refusal !== null) return { ...arrival, row: plainEvidenceRow(options, arrival, refusal.reason), isPlain: true };
    const reason = `the database cannot hold this message: ${why}`;
    return {
      ...arrival,
      row: evidenceRow(options, arrival, reason, row),
      refusal: { rejection: "unstorable", reason },
    };
  }

  function count({ row, refusal }: DecidedArrival, isDuplicate: boolean): void {
    if (isDuplicate) {
      metrics.inboxMessages("duplicate", 1);
      journal?.duplicate(row);
    } else if (refusal === null) metrics.inboxMessages("new", 1);
    else {
      metrics.inboxRejection(REJECTION_METRICS[refusal.rejection]);
      metrics.inboxDead(REJECTION_METRICS[refusal.rejection]);
      // The reason may quote the body; it is in `last_error` of the row.
      const trace = traceFields(asRelayed(row.headers));
      log.warn({ source, id: row.id, rejection: refusal.rejection, ...trace }, "a message was stored as a dead row");
    }
  }

  return {
    async take(messages, signal) {
      const refused: BrokerMessage[] = [];
      for (const part of inParts(messages)) {
        signal.throwIfAborted();
        refused.push(...(await store(await decideAll(part, signal), signal)));
      }
      return refused;
    },
  };
}

interface Arrival {
  readonly id: MessageId;
  readonly given: BrokerMessage;
  readonly message: ReceivedMessage;
}

interface DecidedArrival extends Arrival {
  readonly row: NewInboxRow;
  /** Why the row is dead; null when it was accepted. */
  readonly refusal: { readonly rejection: Rejection; readonly reason: string } | null;
  /** Whether the row has no headers, and the body as base64. */
  readonly isPlain: boolean;
}

type Decided = Exclude<Prepared, { readonly kind: "unavailable" }>;

/** In `last_error` of a dead row whose body no text column can hold. */
export const IN_BASE64 = "the payload is its bytes in base64";
/** A tombstone is stored as the JSON document `null`. */
const NULL_DOCUMENT = Buffer.from("null");
const CORRELATION_NAME = CORRELATION_HEADER.toLowerCase();
const NOT_STORED: ReadonlySet<string> = new Set([CORRELATION_NAME, ...RECEIPT_HEADERS]);

function givenCorrelation({ correlationId: ofProperty }: BrokerMessage, headers: Headers): string | undefined {
  return Object.entries(headers).findLast(([name]) => name.toLowerCase() === CORRELATION_NAME)?.[1] ?? ofProperty;
}

function receivedMessage(message: BrokerMessage, headers: Headers): ReceivedMessage {
  const stored = emptyHeaders();
  for (const [name, value] of Object.entries(headers)) {
    if (!NOT_STORED.has(name.toLowerCase())) stored[name] = value;
  }
  return {
    body: message.body ?? NULL_DOCUMENT,
    headers: stored,
    correlationId: correlationId(givenCorrelation(message, headers)),
    trace: message.trace,
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

/** The headers of a message and its broker's, which no sender can forge. */
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

/**
 * A dead row of a message that can never be accepted (spec, "States and transitions"). Its sender got an
 * acknowledgement, so it is kept for inspection. A body that no text column can hold (invalid UTF-8, a NUL) is stored
 * as base64.
 *
 * @param reason redacted here
 */
function evidenceRow(options: IntakeOptions, arrival: Arrival, reason: string, known?: Attributes): NewInboxRow {
  const { body, headers, properties, trace } = arrival.message;
  const read = () => {
    const document = JsonDocument.parse(body) ?? NO_DOCUMENT;
    return evidenceAttributes(options.attributes, { body, document, headers, properties });
  };
  const { idempotencyKey, eventType, aggregateId } = known ?? read();
  const isText = isUtf8(body) && !body.includes(0);
  return {
    ...deadFrame(options, arrival),
    idempotencyKey,
    eventType,
    aggregateId,
    payload: isText ? body.toString("utf8") : body.toString("base64"),
    headers: withReceiptContext(headers, trace),
    lastError: options.redact(isText ? reason : `${reason}; ${IN_BASE64}`),
  };
}

/** A dead row that any inbox table can hold, also with a payload column of type json: the key, the body as base64. */
function plainEvidenceRow(options: IntakeOptions, arrival: DecidedArrival, reason: string): NewInboxRow {
  return {
    ...deadFrame(options, arrival),
    idempotencyKey: arrival.row.idempotencyKey,
    eventType: null,
    aggregateId: null,
    payload: JSON.stringify(arrival.message.body.toString("base64")),
    headers: {},
    lastError: options.redact(`${reason}; ${IN_BASE64}, the headers are left out`),
  };
}

function deadFrame({ source, settings: { consumption } }: IntakeOptions, { id, message }: Arrival) {
  return { id, source, consumption, correlationId: message.correlationId, state: "dead" } as const;
}

const NO_DOCUMENT = new JsonDocument("null");
