import type { IncomingMessage } from "node:http";
import type { InboundAuth } from "../adapters/sources/http/schema.ts";
import { type BatchForm, parseListPath } from "../core/receipt/requestBatch.ts";

/** How the messages of a request to a source are written; undefined where it is one message. */
type FormOf = (req: IncomingMessage) => BatchForm | undefined;

/** What of a source decides which requests have several messages. */
interface BatchSource {
  readonly batch: { readonly path?: string | undefined };
  readonly auth?: InboundAuth | undefined;
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
 * Whether `Content-Type` may say what a request holds. Not if a signature leaves it out: anyone could resend a recorded
 * request as another one.
 */
export function trustsContentType({ auth }: Pick<BatchSource, "auth">): boolean {
  if (auth?.kind === "hmac") return /\{\{\s*headers\.content-type\s*\}\}/i.test(auth.signedText ?? "");
  return auth?.kind !== "provider";
}

/** The media types of several messages. */
const BATCH_TYPES: Readonly<Record<string, BatchForm | undefined>> = Object.assign(Object.create(null), {
  "application/x-ndjson": { kind: "lines" },
  "application/ndjson": { kind: "lines" },
  "application/cloudevents-batch+json": { kind: "list", names: [] },
} satisfies Record<string, BatchForm>);
