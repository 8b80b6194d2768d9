import { isUtf8 } from "node:buffer";
import { v7 as uuidv7 } from "uuid";
import { errorText, StoreError } from "../model/errors.ts";
import type { InsertOutcome, ReceiveOutcome } from "../model/outcomes.ts";
import type { Consumption, Headers, MessageId, NewInboxRow } from "../model/rows.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { Clock } from "../ports/runtime.ts";
import { type AttributePlan, type Attributes, type BrokerProperties, extractAttributes } from "./attributes.ts";
import { compileHeaderFilter, type HeaderFilterSettings } from "./headerFilter.ts";
import { JsonDocument } from "./jsonDocument.ts";

/** One message as a source hands it over. */
export interface ReceivedMessage {
  /** The body's bytes as they came. */
  readonly body: Buffer;
  /** The headers to store and to show to the transform: those of an HTTP source without its credential headers. */
  readonly headers: Headers;
  readonly correlationId: string | null;
  readonly properties?: BrokerProperties | undefined;
}

/** What a source transform sees beside the document (spec, "Transform stages and variables"). */
export interface SourceStageContext {
  readonly messageId: MessageId;
  readonly source: string;
  readonly eventType: string | null;
  readonly idempotencyKey: string;
  /** Receipt time, ISO-8601. */
  readonly timestamp: string;
  readonly headers: Headers;
}

export type SourceStageOutcome =
  /** Store the body as it came: `onError: Skip` swallowed a failure. */
  | { readonly kind: "unchanged" }
  /** Store this JSON text instead. */
  | { readonly kind: "replaced"; readonly payload: string }
  | { readonly kind: "rejected"; readonly reason: string }
  /** It could not be run, which is no fault of the message: its sender may send it again. */
  | { readonly kind: "unavailable"; readonly reason: string };

/**
 * The source's transform with its limits and `onError`; it never rejects.
 *
 * @param body JSON text, as it was received
 */
export type SourceStage = (body: string, context: SourceStageContext) => Promise<SourceStageOutcome>;

export interface ReceiverOptions {
  /** The source's name. */
  readonly source: string;
  readonly settings: { readonly consumption: Consumption; readonly filter?: HeaderFilterSettings | undefined };
  readonly attributes: AttributePlan;
  readonly stage?: SourceStage | undefined;
  /** Stores a row; resolves after the commit. */
  readonly insert: (row: NewInboxRow) => Promise<InsertOutcome>;
  readonly clock: Clock;
  readonly metrics: Metrics;
}

/** Receives the messages of one source, in two steps because an HTTP source answers a header between them. */
export interface Receiver {
  readonly source: string;
  /**
   * The header filter. A message that does not pass is counted and leaves no row.
   *
   * @param headers gives all received headers; called only when there is a rule to test
   */
  passes(headers: () => Headers): boolean;
  /** Everything after the filter: JSON, attributes, transform, insert. Counts the outcome; does not reject. */
  accept(message: ReceivedMessage): Promise<ReceiveOutcome>;
}

/**
 * Makes the receiver of one source.
 *
 * @throws Error when the source's filter is wrong
 */
export function createReceiver(options: ReceiverOptions): Receiver {
  const { source, settings, attributes: plan, stage, insert, clock, metrics } = options;
  const filter = settings.filter === undefined ? null : compileHeaderFilter(settings.filter);

  function passes(headers: () => Headers): boolean {
    if (filter === null || filter(headers())) return true;
    count({ kind: "filtered" }, metrics);
    return false;
  }

  async function accept(message: ReceivedMessage): Promise<ReceiveOutcome> {
    const outcome = await process(message);
    count(outcome, metrics);
    return outcome;
  }

  async function process(message: ReceivedMessage): Promise<ReceiveOutcome> {
    const { body, headers, properties } = message;
    const document = parseBody(body);
    if (document === null) {
      return { kind: "rejected", rejection: "invalid_json", reason: "the body is not a JSON document in UTF-8" };
    }
    const extraction = extractAttributes(plan, { body, document, headers, properties });
    if (extraction.kind === "failed") {
      return { kind: "rejected", rejection: "extraction_failed", reason: extraction.reason };
    }
    const id = uuidv7() as MessageId;
    const transformed = await runStage(id, document.text, extraction.attributes, headers);
    if (transformed.kind === "unavailable") return transformed;
    if (transformed.kind === "rejected") {
      return { kind: "rejected", rejection: "transform_failed", reason: transformed.reason };
    }
    return store({
      id,
      source,
      ...extraction.attributes,
      payload: transformed.kind === "replaced" ? transformed.payload : document.text,
      state: "pending",
      consumption: settings.consumption,
      correlationId: message.correlationId,
      headers,
      lastError: null,
    });
  }

  async function runStage(
    messageId: MessageId,
    body: string,
    { eventType, idempotencyKey }: Attributes,
    headers: Headers,
  ): Promise<SourceStageOutcome> {
    if (stage === undefined) return UNCHANGED;
    const timestamp = new Date(clock.now()).toISOString();
    return stage(body, { messageId, source, eventType, idempotencyKey, timestamp, headers });
  }

  async function store(row: NewInboxRow): Promise<ReceiveOutcome> {
    let outcome: InsertOutcome;
    try {
      outcome = await insert(row);
    } catch (error) {
      return { kind: "unavailable", reason: error instanceof StoreError ? error.message : errorText(error) };
    }
    switch (outcome.kind) {
      case "stored":
        return { kind: "stored", id: row.id };
      case "duplicate":
        return outcome;
      case "refused":
        return {
          kind: "rejected",
          rejection: "unstorable",
          reason: `the database cannot hold this message: ${outcome.reason}`,
        };
    }
  }

  return { source, passes, accept };
}

const UNCHANGED: SourceStageOutcome = { kind: "unchanged" };

/** @returns null when the bytes are not UTF-8 or the text is not JSON */
function parseBody(body: Buffer): JsonDocument | null {
  // Decoding would replace a wrong byte, and then store what nobody sent.
  if (!isUtf8(body)) return null;
  try {
    return new JsonDocument(body.toString("utf8"));
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

function count(outcome: ReceiveOutcome, metrics: Metrics): void {
  switch (outcome.kind) {
    case "stored":
      metrics.inboxMessages("new", 1);
      break;
    case "duplicate":
      metrics.inboxMessages("duplicate", 1);
      break;
    case "filtered":
      metrics.inboxFiltered();
      break;
    case "unavailable":
      metrics.inboxRejection("storage_failed");
      break;
    case "rejected":
      metrics.inboxRejection(REJECTION_METRICS[outcome.rejection]);
      break;
  }
}

const REJECTION_METRICS = {
  invalid_json: "extraction_failed",
  extraction_failed: "extraction_failed",
  transform_failed: "transform_failed",
  unstorable: "storage_failed",
} as const;
