import { type Provider, providerOf } from "../../adapters/sources/http/kind.ts";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import { STORABLE } from "../../core/operations/syntax.ts";
import { CORRELATION_HEADER } from "../../core/receipt/attributes.ts";
import { hasExpressions } from "../../core/receipt/expressions.ts";
import { object, type Schema, TEXT } from "../../model/described.ts";
import { ERRORS, tooManyMessage } from "../exchange.ts";
import { type Answer, error, header, json, RETRY_AFTER, type RouteDescription, STORAGE_FAILED } from "./answers.ts";
import type { Parameter } from "./types.ts";

export interface DescribedSource {
  readonly consumption: "push" | "pull";
  /** Absent if the provider has its own place of the key. */
  readonly idempotencyKeyPath?: readonly string[] | undefined;
  readonly cloudEvents?: boolean | undefined;
  readonly idempotencyKeyHeader?: string | undefined;
  readonly idempotencyKeyExpression?: string | undefined;
  readonly eventTypeExpression?: string | undefined;
  readonly aggregateIdExpression?: string | undefined;
  readonly eventTypeHeader?: string | undefined;
  readonly aggregateIdHeader?: string | undefined;
  readonly eventTypePath?: readonly string[] | undefined;
  readonly aggregateIdPath?: readonly string[] | undefined;
  readonly filter?: object | undefined;
  readonly transform?: object | undefined;
  readonly rateLimit?: { readonly requestsPerMinute?: number } | undefined;
  readonly batch: { readonly path?: string | undefined; readonly atomic: boolean; readonly maxItems: number };
  readonly auth?: InboundAuth | undefined;
}

/** Describes the route of an HTTP source (spec, "POST <inbox.basePath><path>"). */
export function describeReceive(name: string, source: DescribedSource, maxBodyBytes: number): RouteDescription {
  return {
    summary: `Send a message to the source ${name}`,
    description: describe(source),
    parameters: [...CORRELATION, ...attributeHeaders(source)],
    body: {
      description: `One JSON document of at most ${maxBodyBytes} bytes; ${formText(source)}It may be sent with the \`Content-Encoding\` gzip, deflate or br.`,
      // The description names the place of the key.
      schema: {},
    },
    answers: answers(source),
  };
}

function providerIn({ auth }: DescribedSource): Provider | undefined {
  return auth?.kind === "provider" ? providerOf(auth.provider) : undefined;
}

function formText(source: DescribedSource): string {
  if (providerIn(source)?.form !== undefined) return "a form becomes one. ";
  return "it is read as JSON whatever `Content-Type` it has. ";
}

/** The headers that win over the body. The only place of the key is required. */
function attributeHeaders(source: DescribedSource): readonly Parameter[] {
  const isOnlyPlace =
    source.idempotencyKeyPath === undefined &&
    source.idempotencyKeyExpression === undefined &&
    providerIn(source) === undefined &&
    source.cloudEvents !== true;
  return [
    inHeader(source.idempotencyKeyHeader, "The idempotency key.", { ...TEXT, minLength: 1 }, isOnlyPlace),
    inHeader(source.eventTypeHeader, "The event type.", ATTRIBUTE),
    inHeader(source.aggregateIdHeader, AGGREGATE_ID, ATTRIBUTE),
  ].flat();
}

/** None if the source names no header. */
const inHeader = (name: string | undefined, description: string, schema: Schema, required = false): Parameter[] =>
  name === undefined ? [] : [{ name, in: "header", required, description, schema }];

const AGGREGATE_ID = "The aggregate id: messages with the same one stay in order.";

const atText = (paths: readonly string[]): string => paths.map((path) => `the value at \`${path}\``).join(", else ");

/** The place of the idempotency key, in words. */
function keyText(
  { idempotencyKeyHeader, idempotencyKeyExpression, idempotencyKeyPath, cloudEvents }: DescribedSource,
  title: string | undefined,
): string {
  const places = [
    ...(idempotencyKeyHeader === undefined ? [] : [`the header \`${idempotencyKeyHeader}\``]),
    ...(idempotencyKeyExpression === undefined ? [] : ["what the source computes from body and headers"]),
    ...(idempotencyKeyPath === undefined ? [] : [atText(idempotencyKeyPath)]),
    ...(idempotencyKeyPath === undefined && title !== undefined ? [`where ${title} puts it`] : []),
    ...(cloudEvents === true ? ["the `id` of the event"] : []),
  ];
  return `The idempotency key is ${places.join(", else ")}: a second message with the same one is a duplicate.`;
}

/**
 * Whether `Content-Type` may say what a request holds. Not if a signature leaves it out: anyone could resend a recorded
 * request as another one.
 */
export function trustsContentType({ auth }: Pick<DescribedSource, "auth">): boolean {
  if (auth?.kind === "hmac") return /\{\{\s*headers\.content-type\s*\}\}/i.test(auth.signedText ?? "");
  return auth?.kind !== "provider";
}

const takesBatches = (source: DescribedSource): boolean => source.batch.path !== undefined || trustsContentType(source);

function batchText(source: DescribedSource): string {
  const { path, atomic, maxItems } = source.batch;
  const isFree = trustsContentType(source);
  const types = ["a JSON text a line as `application/x-ndjson`", "a list as `application/cloudevents-batch+json`"];
  const forms = [
    ...(isFree ? types : []),
    ...(path === undefined ? [] : [`the items at \`${path}\` of ${isFree ? "any other" : "the"} document`]),
  ];
  return `${forms.join(", ")}; at most ${maxItems}, ${atomic ? "all are stored or none" : "each stored by itself"}`;
}

function describe(source: DescribedSource): string {
  const { eventTypePath, aggregateIdPath, consumption } = source;
  const provider = providerIn(source);
  const title = provider?.title;
  const perMinute = source.rateLimit?.requestsPerMinute;
  const sentences = [
    "A 202 with a `messageId` means that the message is stored, not that a destination has received it.",
    consumption === "push"
      ? "It is then relayed into the outbox and delivered."
      : "It then waits in the inbox until a pull client claims it.",
    title && `It takes the webhooks of ${title}.`,
    source.cloudEvents &&
      `It takes CloudEvents 1.0, structured as JSON${trustsContentType(source) ? " or binary" : ""}.`,
    provider?.handshake && "Its handshake is answered and not stored.",
    keyText(source, title),
    aggregateIdPath && `Messages with the same aggregate id, ${atText(aggregateIdPath)}, stay in order.`,
    eventTypePath && `The event type is ${atText(eventTypePath)}.`,
    source.filter && "Messages that do not pass the source's header filter are not stored.",
    takesBatches(source) && `Several messages may come in one request: ${batchText(source)}.`,
    source.transform && "The source's transform runs before the message is stored.",
    perMinute && `At most ${perMinute} requests a minute, of all callers together.`,
    "Repeating a request that got a 4xx answer other than 429 gives the same answer; after a 500 or 503 send it again.",
  ];
  return sentences.filter((sentence) => typeof sentence === "string").join(" ");
}

const MESSAGE_ID = "0198b2f4-7c1e-7000-8000-1c5a9f0d2e43";

const CORRELATION = inHeader(
  CORRELATION_HEADER,
  "Stored and delivered with the message; a new UUID when absent. A value over 255 characters, or with control " +
    "characters, is stored as `sha256:` and the hexadecimal digest of its text.",
  TEXT,
);

const CORRELATED = header(CORRELATION_HEADER, "The correlation id of the message, as sent or as generated.", TEXT);

/** The answers of the specification's table that this source can give. */
function answers(source: DescribedSource): readonly Answer[] {
  return [
    json(202, "The new message is stored.", "Stored", { messageId: MESSAGE_ID }, CORRELATED),
    json(200, "The source already has a message with this key.", "Duplicate", { status: "duplicate" }, CORRELATED),
    error(400, "The body is not JSON, or has no usable idempotency key.", "Invalid JSON", "Error", CORRELATED),
    STORAGE_FAILED,
    ...(source.filter === undefined ? [] : [FILTERED]),
    ...(source.transform === undefined ? [] : [TRANSFORM_FAILED]),
    ...(source.transform === undefined && !hasExpressions(source) ? [] : [TRANSFORM_BUSY]),
    ...(source.rateLimit?.requestsPerMinute === undefined ? [] : [RATE_LIMITED]),
    ...(takesBatches(source) ? batchAnswers(source) : []),
    ...handshakeAnswers(providerIn(source)),
  ];
}

function handshakeAnswers(provider: Provider | undefined): readonly Answer[] {
  const answers = provider?.handshake?.answers ?? {};
  return Object.entries(answers).map(([status, example]): Answer => {
    const description = `The handshake of ${provider?.title}; nothing is stored.`;
    if (typeof example === "object") return json(Number(status), description, { type: "object" }, example);
    const content = { "text/plain": { schema: TEXT, examples: { example: { value: example } } } };
    return [Number(status), example === "" ? { description } : { description, content }];
  });
}

function batchAnswers(source: DescribedSource): readonly Answer[] {
  const { transform, batch } = source;
  const stored = { status: 202, body: { messageId: MESSAGE_ID } };
  const duplicate = { status: 200, body: { status: "duplicate" } };
  const refused = { status: 400, body: { error: "Invalid JSON" } };
  const storageFailed = { status: 500, body: { error: ERRORS.storageFailed } };
  const refusal = (status: number, error: string, items: readonly object[]): Answer =>
    json(status, "Several messages: this one decides for all of them.", "BatchRefused", { error, items }, CORRELATED);
  return [
    json(202, "Several messages: each is stored, or was.", "Batch", { items: [stored, duplicate] }, CORRELATED),
    json(200, "Several messages: none is new.", "Batch", { items: [duplicate] }, CORRELATED),
    json(207, "Several messages: some are refused.", "Batch", { items: [stored, refused] }, CORRELATED),
    refusal(400, "item 0: Invalid JSON", [refused]),
    error(413, `More than ${batch.maxItems} messages.`, tooManyMessage(batch.maxItems), "Error", CORRELATED),
    refusal(500, ERRORS.storageFailed, [storageFailed]),
    ...(transform === undefined ? [] : [refusal(422, "item 0: Transform failed: no", [])]),
    ...(transform === undefined && !hasExpressions(source) ? [] : [refusal(503, "busy", [])]),
  ];
}

const FILTERED = json(202, "The header filter drops the message; nothing is stored.", "Filtered", {
  status: "filtered",
});

const TRANSFORM_FAILED = json(
  422,
  "The source's transform refused the message; nothing is stored.",
  object({ error: { type: "string", pattern: "^Transform failed: " } }),
  { error: "Transform failed: the expression gave no result" },
  CORRELATED,
);

const TRANSFORM_BUSY = error(
  503,
  "The transform, or an expression that computes attributes, cannot run now; nothing is stored. Send the message again.",
  ERRORS.transformUnavailable,
  "TransformUnavailable",
  RETRY_AFTER,
);

const RATE_LIMITED: Answer = [429, { description: "Too many requests in this minute.", headers: RETRY_AFTER }];

/** Of a header that may be absent. */
const ATTRIBUTE: Schema = { maxLength: 1024, pattern: STORABLE.schema.pattern };
