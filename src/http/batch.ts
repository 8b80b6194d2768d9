import type { IncomingMessage, ServerResponse } from "node:http";
import type { InboundAuth } from "../adapters/sources/http/schema.ts";
import { type BatchForm, parseListPath, type SplitBatch } from "../core/receipt/requestBatch.ts";
import type { Receipt } from "../model/rows.ts";
import { ERRORS, sendError, sendJson, tooManyMessage } from "./respond.ts";

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
interface Answer {
  readonly status: number;
  readonly body: object;
}

/** Answers for a message that came alone. */
export function answerReceipt(res: ServerResponse, receipt: Receipt): void {
  answer(res, receiptAnswer(receipt));
}

function answer(res: ServerResponse, { status, body }: Answer): void {
  // A full queue of transforms empties within seconds.
  if (status === 503) res.setHeader("Retry-After", 1);
  sendJson(res, status, body);
}

/** The answer to a receipt (spec, the status table of the route). */
function receiptAnswer(receipt: Receipt): Answer {
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
      return { status: 503, body: { error: ERRORS.transformUnavailable } };
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
    const { error } = decisive.body as { readonly error: string };
    answer(res, { ...decisive, body: { error: failed >= 0 ? error : `item ${refused}: ${error}`, items } });
  } else if (refused >= 0) sendJson(res, 207, { items });
  else sendJson(res, answers.some(({ status }) => status === 202) ? 202 : 200, { items });
}

/** Answers a request whose body holds no batch. @param maxItems `batch.maxItems` */
export function answerUnsplit(
  res: ServerResponse,
  split: Exclude<SplitBatch, { readonly kind: "messages" }>,
  maxItems: number,
): void {
  if (split.kind === "too_many") sendError(res, 413, tooManyMessage(maxItems));
  else sendError(res, 400, split.kind === "no_list" ? split.reason : "Invalid JSON");
}
