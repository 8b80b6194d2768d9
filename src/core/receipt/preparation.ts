import type { Consumption, Headers, MessageId, NewInboxRow, Rejection } from "../../model/rows.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import {
  type AttributePlan,
  type Attributes,
  type BrokerProperties,
  findAttributes,
  storableAttributes,
  usableAttributes,
} from "./attributes.ts";
import { readEvent } from "./cloudEvents.ts";
import { createExpiry, type ExpirySettings } from "./expiry.ts";
import type { AttributeExpressions, ComputedAttributes } from "./expressions.ts";
import { JsonDocument } from "./jsonDocument.ts";
import { createSchedule, type ScheduleSettings } from "./schedule.ts";
import { UnreadableTimes } from "./times.ts";

/** One message as a source received it. */
export interface ReceivedMessage {
  readonly body: Buffer;
  /** Stored, and visible to the transform; an HTTP source leaves out its credential headers. */
  readonly headers: Headers;
  readonly correlationId: string | null;
  readonly properties?: BrokerProperties | undefined;
  /** Its place among the messages of its request, from 0; undefined where it came alone. */
  readonly position?: number | undefined;
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
}

type SourceStageOutcome =
  /** Store the body as received: `onError: Skip` swallowed a failure. */
  | { readonly kind: "unchanged" }
  /** Store this JSON text instead. */
  | { readonly kind: "replaced"; readonly payload: string }
  | { readonly kind: "rejected"; readonly reason: string }
  /** The evaluator failed, not the message: its sender may send it again. */
  | { readonly kind: "unavailable"; readonly reason: string };

/**
 * A source's transform with its limits and `onError`. Never rejects.
 *
 * @param body JSON text as received
 * @param refusable whether the message may be refused when too many evaluations wait. Default false
 */
export type SourceStage = (
  body: string,
  context: SourceStageContext,
  refusable?: boolean,
) => Promise<SourceStageOutcome>;

interface PreparationOptions {
  readonly source: string;
  readonly settings: {
    readonly consumption: Consumption;
    /** Whether messages are CloudEvents, of which others are refused. */
    readonly cloudEvents?: boolean | undefined;
  } & ExpirySettings &
    ScheduleSettings;
  readonly attributes: AttributePlan;
  /** None by default. */
  readonly expressions?: AttributeExpressions | undefined;
  readonly stage?: SourceStage | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** What a received message has become. */
export type Prepared =
  | { readonly kind: "row"; readonly row: NewInboxRow }
  | {
      readonly kind: "rejected";
      readonly rejection: Rejection;
      readonly reason: string;
      /** As far as they are known, for a row that is kept as evidence. */
      readonly attributes?: Attributes;
      /** It may be accepted when it is sent again: the expression for its key, which is nowhere else, took too long. */
      readonly mayPassLater?: boolean;
    }
  | { readonly kind: "unavailable"; readonly reason: string };

/**
 * Makes the inbox row of a message without storing it: JSON, attributes, transform. Never rejects.
 *
 * @param id the row's id. Ids order the rows of one insert: draw them in the order of receipt
 * @param refusable whether the message may be refused when too many evaluations wait: for senders without a limit of
 *   their own
 */
type Prepare = (message: ReceivedMessage, id: MessageId, refusable: boolean) => Promise<Prepared>;

/**
 * Compiles what one source does with each message before it is stored (spec, "POST <inbox.basePath><path>", steps 5 to
 * 7).
 */
export function createPreparation({
  source,
  settings,
  attributes: plan,
  expressions,
  stage,
  clock,
  log,
}: PreparationOptions): Prepare {
  const { consumption, cloudEvents = false } = settings;
  const unreadableTimes = new UnreadableTimes({ source, log, clock });
  const expiryOf = createExpiry(settings, unreadableTimes);
  const scheduleOf = createSchedule(settings, unreadableTimes);

  async function runStage(
    messageId: MessageId,
    body: string,
    { eventType, idempotencyKey }: Attributes,
    headers: Headers,
    refusable: boolean,
  ): Promise<SourceStageOutcome> {
    if (stage === undefined) return UNCHANGED;
    const timestamp = new Date(clock.now()).toISOString();
    return stage(body, { messageId, source, eventType, idempotencyKey, timestamp, headers }, refusable);
  }

  return async (message, id, refusable) => {
    const { correlationId, properties, position } = message;
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
    const found = { ...places, ...computed.values };
    const extraction = usableAttributes(found, places.noKeyReason);
    if (extraction.kind === "failed") {
      const attributes = storableAttributes(found, message.body);
      const mayPassLater = computed.isKeyLate === true && found.idempotencyKey === null;
      return { kind: "rejected", rejection: "extraction_failed", reason: extraction.reason, attributes, mayPassLater };
    }
    const { attributes } = extraction;
    const transformed = await runStage(id, text, attributes, headers, refusable);
    if (transformed.kind === "unavailable") return transformed;
    if (transformed.kind === "rejected") {
      return { kind: "rejected", rejection: "transform_failed", reason: transformed.reason, attributes };
    }
    const row: NewInboxRow = {
      id,
      source,
      ...attributes,
      payload: transformed.kind === "replaced" ? transformed.payload : text,
      state: "pending",
      consumption,
      correlationId,
      headers,
      lastError: null,
      ...(schedule === undefined ? {} : { schedule }),
      ...(expiry === undefined ? {} : { expiry }),
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
