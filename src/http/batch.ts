import type { IncomingMessage, ServerResponse } from "node:http";
import type { InboundAuth } from "../adapters/sources/http/schema.ts";
import { type BatchForm, parseListPath, type SplitBatch } from "../core/receipt/requestBatch.ts";
import type { Receipt } from "../model/rows.ts";
import { ERRORS, sendJson, tooManyMessage } from "./respond.ts";

/** How the messages of a request to a source are written; undefined where it is one message. */
type FormOf = (req: IncomingMessage) => BatchForm | undefined;

/** What of a source decides which requests have several messages. */
interface BatchSource {
  readonly batch: { readonly path?: string | undefined };
  readonly auth?: InboundAuth | undefined;
  readonly idempotencyKeyHeader?: string | undefined;
  readonly idempotencyKeyExpression?: string | undefined;
}

/** @throws Error when `batch.path` is not a path to a list */
export function createFormOf(source: BatchSource): FormOf {
  const { path } = source.batch;
  const configured: BatchForm | undefined =
    path === undefined ? undefined : { kind: "list", names: parseListPath(path) };
  if (!trustsContentType(source)) return () => configured;
  return (req) => {
    const [type = ""] = (req.headers["content-type"] ?? "").split(";", 1);
    return BATCH_TYPES[type.trim().toLowerCase()] ?? configured;
  };
}

/**
 * Whether `Content-Type` may say that a request has several messages. Signatures do not cover it: who resends a
 * recorded request with another one would give its messages new idempotency keys, unless these are in their bodies.
 */
export function trustsContentType({ auth, batch, ...key }: BatchSource): boolean {
  // An expression may read headers, and the position.
  const isInBody = key.idempotencyKeyHeader === undefined && key.idempotencyKeyExpression === undefined;
  // A line may hold the whole list, with an id of its own.
  const isAlwaysSplit = batch.path !== undefined;
  return auth?.kind !== "provider" && (auth?.kind !== "hmac" || (isInBody && !isAlwaysSplit));
}

/** The media types of several messages. */
const BATCH_TYPES: Readonly<Record<string, BatchForm | undefined>> = Object.assign(Object.create(null), {
  "application/x-ndjson": { kind: "lines" },
  "application/ndjson": { kind: "lines" },
  "application/cloudevents-batch+json": { kind: "list", names: [] },
} satisfies Record<string, BatchForm>);

/** What one message gets when it is sent alone. */
interface ReceiptAnswer {
  readonly status: number;
  readonly body: object;
  readonly headers?: Readonly<Record<string, number>>;
}

/** A full queue of transforms empties within seconds. */
const BUSY_RETRY_AFTER_SECONDS = 1;

/** The answer to a receipt (spec, the status table of the route). */
export function receiptAnswer(receipt: Receipt): ReceiptAnswer {
  switch (receipt.kind) {
    case "stored":
      return { status: 202, body: { messageId: receipt.id } };
    case "filtered":
      return { status: 202, body: { status: "filtered" } };
    case "duplicate":
      return { status: 200, body: { status: "duplicate" } };
    case "rejected":
      return REJECTION_ANSWERS[receipt.rejection](receipt.reason);
    case "unavailable":
      return { status: 500, body: { error: ERRORS.storageFailed } };
    case "busy":
      return {
        status: 503,
        body: { error: ERRORS.transformUnavailable },
        headers: { "Retry-After": BUSY_RETRY_AFTER_SECONDS },
      };
    case "withheld":
      return { status: 424, body: { error: WITHHELD } };
  }
}

const WITHHELD = "not stored: another item of this batch was refused";

const REJECTION_ANSWERS = {
  invalid_json: () => ({ status: 400, body: { error: "Invalid JSON" } }),
  extraction_failed: (reason: string) => ({ status: 400, body: { error: reason } }),
  unstorable: (reason: string) => ({ status: 400, body: { error: reason } }),
  transform_failed: (reason: string) => ({ status: 422, body: { error: `Transform failed: ${reason}` } }),
} as const;

/**
 * Answers for all messages of a request. The status is for a sender that reads nothing else: after a 2xx none is worth
 * sending again, after a 500 or 503 all are, since those that are stored become duplicates.
 *
 * @param isAtomic all are stored or none
 */
export function answerBatch(res: ServerResponse, receipts: readonly Receipt[], isAtomic: boolean): void {
  const answers = receipts.map(receiptAnswer);
  const items = answers.map(({ status, body }) => ({ status, body }));
  const failed = answers.findIndex(({ status }) => status >= 500);
  const refused = answers.findIndex(({ status }) => status === 400 || status === 422);
  const isNoneTaken = refused >= 0 && (isAtomic || answers.every(({ status }) => status >= 400));
  const decisive = answers[failed >= 0 ? failed : refused];
  if (decisive !== undefined && (failed >= 0 || isNoneTaken)) {
    for (const [name, value] of Object.entries(decisive.headers ?? {})) res.setHeader(name, value);
    const { error } = decisive.body as { readonly error: string };
    sendJson(res, decisive.status, { error: failed >= 0 ? error : `item ${refused}: ${error}`, items });
  } else if (refused >= 0) sendJson(res, 207, { items });
  else sendJson(res, answers.some(({ status }) => status === 202) ? 202 : 200, { items });
}

/** Why the body of a request holds no batch. @param maxItems `batch.maxItems` */
export function unsplitAnswer(
  split: Exclude<SplitBatch, { readonly kind: "messages" }>,
  maxItems: number,
): { readonly status: number; readonly error: string } {
  switch (split.kind) {
    case "invalid_json":
      return { status: 400, error: "Invalid JSON" };
    case "no_list":
      return { status: 400, error: split.reason };
    case "too_many":
      return { status: 413, error: tooManyMessage(maxItems) };
  }
}
