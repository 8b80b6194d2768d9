import { isUtf8 } from "node:buffer";
import type { IncomingMessage, ServerResponse } from "node:http";
import {
  createProviderCheck,
  credentialsOf,
  formToJson,
  type HandshakeAnswer,
  isForm,
  jsonOf,
  type Provider,
  providerOf,
  verifyTokensOf,
} from "../adapters/sources/http/kind.ts";
import type { InboundAuth, ProviderAuth } from "../adapters/sources/http/schema.ts";
import { CORRELATION_HEADER, correlationId } from "../core/receipt/attributes.ts";
import { JsonDocument } from "../core/receipt/jsonDocument.ts";
import { REJECTION_METRICS, type ReceivedMessage, type Receiver } from "../core/receipt/receive.ts";
import { type BatchForm, parseListPath, type SplitBatch, splitBatch } from "../core/receipt/requestBatch.ts";
import { emptyHeaders, type Headers, type Receipt } from "../model/rows.ts";
import { madeOf } from "../model/secret.ts";
import { isCredentialHeader } from "../model/text.ts";
import { RECEIPT_HEADERS } from "../model/traceContext.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { Clock } from "../time/clock.ts";
import { accessOf, createVerifier, credentialHeaderNames } from "./credentials.ts";
import {
  ANSWERED,
  admit,
  type BodyBudget,
  ERRORS,
  JSON_TYPE,
  send,
  sendError,
  sendJson,
  TEXT_TYPE,
  tooManyMessage,
} from "./exchange.ts";
import { type DescribedSource, describeReceive, trustsContentType } from "./openapi/sources.ts";
import { type HttpRoute, httpRoute, type RouteHandler, sourceIds } from "./routes.ts";

/** One HTTP source: its configuration, and what receives its messages. */
export interface HttpSource {
  readonly settings: { readonly path: string } & DescribedSource & {
      readonly auth?: InboundAuth;
      readonly webhookOrigins?: readonly string[];
    };
  readonly receiver: Receiver;
  /** Takes status and body of every answer to its senders; nothing by default. */
  readonly onAnswer?: HttpRoute["onAnswer"] | undefined;
}

interface InboxOptions {
  readonly inbox: {
    readonly basePath: string;
    readonly maxBodyBytes: number;
    readonly credentialHeaders: readonly string[];
  };
  readonly sources: readonly HttpSource[];
  readonly budget: BodyBudget;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "inboxRejection">;
}

/** The inbox routes, one for each HTTP source (spec, "POST <inbox.basePath><path>"). */
export function inboxRoutes(options: InboxOptions): readonly HttpRoute[] {
  const { basePath, maxBodyBytes } = options.inbox;
  const ids = sourceIds(options.sources.map(({ receiver }) => receiver.source));
  return options.sources.map((source) => {
    const { settings, receiver, onAnswer } = source;
    const id = ids.get(receiver.source) ?? receiver.source;
    const access = accessOf(settings.auth, `source.${id}`, `the source ${receiver.source}`);
    const description = { access, ...describeReceive(receiver.source, settings, maxBodyBytes) };
    const { handle, handshakeMethods } = receiveHandler(source, options);
    const path = basePath + settings.path;
    return httpRoute("receive", description, handle, { path, sourceId: id, handshakeMethods, onAnswer });
  });
}

/**
 * Receives the messages of one source: credentials and body, rate limit, header filter, then the receiver (spec,
 * "Processing order").
 */
function receiveHandler(
  { settings, receiver }: HttpSource,
  { inbox, budget, clock, metrics }: InboxOptions,
): { readonly handle: RouteHandler; readonly handshakeMethods: readonly string[] } {
  const { auth, batch, cloudEvents = false } = settings;
  const webhook = createWebhook(settings, clock);
  const admission = {
    limits: { maxBytes: inbox.maxBodyBytes, budget },
    verifier: auth === undefined ? null : createVerifier(auth, clock),
    onRefused: () => metrics.inboxRejection("unauthorized"),
  };
  const perMinute = settings.rateLimit?.requestsPerMinute;
  const rateLimit = perMinute === undefined ? undefined : new RateLimit(perMinute, clock);
  const omits = headersNotStored(auth, inbox.credentialHeaders);
  const formOf = createFormOf(settings);
  const trustsType = trustsContentType(settings);

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const greeting = webhook?.greet(req);
    if (greeting !== undefined) return answerHandshake(res, greeting);
    const received = await admit(req, res, admission);
    if (received === null) return;

    const retryAfterSeconds = rateLimit?.take() ?? 0;
    if (retryAfterSeconds > 0) {
      metrics.inboxRejection("rate_limited");
      res.setHeader("Retry-After", retryAfterSeconds);
      return send(res, 429, null, "");
    }

    const handshake = webhook?.reply(req, received);
    if (handshake !== undefined) return answerHandshake(res, handshake);
    const json = webhook?.jsonOf(req, received) ?? received;
    const body = typeof json === "string" ? received : json;

    const given = req.headers["x-correlation-id"];
    const form = typeof json === "string" ? undefined : formOf(req);
    if (receiver.filter !== undefined) {
      const all = receivedHeaders(req.rawHeaders, omitsNone);
      if (!receiver.filter(all)) {
        receiver.drop(() => ({
          body: form === undefined ? body : NO_BODY,
          headers: all,
          correlationId: typeof given === "string" ? headerText(given) : undefined,
        }));
        return answer(res, receiptAnswer({ kind: "filtered" }));
      }
    }

    const correlation = correlationId(given);
    res.setHeader(CORRELATION_HEADER, correlation);
    if (typeof json === "string") {
      metrics.inboxRejection(REJECTION_METRICS.extraction_failed);
      return answer(res, receiptAnswer({ kind: "rejected", rejection: "extraction_failed", reason: json }));
    }
    const keepsType = trustsType && form === undefined;
    const stored = receivedHeaders(req.rawHeaders, (name) => (name === "content-type" && !keepsType) || omits(name));
    // An item of a batch is an event in structured mode; attributes in headers would be as little signed as the type.
    const headers = cloudEvents && !keepsType ? { ...stored, "content-type": EVENT_TYPE } : stored;
    const message = { body, headers, correlationId: headerText(correlation) };
    if (form === undefined) answer(res, receiptAnswer(await receiver.accept(message)));
    else await handleBatch(res, message, form);
  }

  async function handleBatch(
    res: ServerResponse,
    { body, headers, correlationId }: ReceivedMessage,
    form: BatchForm,
  ): Promise<void> {
    const split = splitBatch(body, form, batch.maxItems);
    if (split.kind !== "messages") {
      metrics.inboxRejection(REJECTION_METRICS.extraction_failed);
      return answerUnsplit(res, split, batch.maxItems);
    }
    const messages = split.bodies.map((each, position) => ({ body: each, headers, correlationId, position }));
    answerBatch(res, await receiver.acceptRequest(messages, batch.atomic), batch.atomic);
  }

  return { handle, handshakeMethods: webhook?.methods ?? [] };
}

/** How the messages of a request are written; undefined for one alone. @throws Error for a `batch.path` to no list */
function createFormOf(source: DescribedSource): (req: IncomingMessage) => BatchForm | undefined {
  const { path } = source.batch;
  const configured: BatchForm | undefined =
    path === undefined ? undefined : { kind: "list", names: parseListPath(path) };
  if (!trustsContentType(source)) return () => configured;
  return (req) => {
    const [type = ""] = (req.headers["content-type"] ?? "").split(";", 1);
    return BATCH_TYPES[type.trim().toLowerCase()] ?? configured;
  };
}

/** The media types of several messages. */
const BATCH_TYPES: Readonly<Record<string, BatchForm | undefined>> = Object.assign(Object.create(null), {
  "application/x-ndjson": { kind: "lines" },
  "application/ndjson": { kind: "lines" },
  "application/cloudevents-batch+json": { kind: "list", names: [] },
} satisfies Record<string, BatchForm>);

const NO_BODY = Buffer.alloc(0);
const EVENT_TYPE = "application/cloudevents+json";
const omitsNone = (): boolean => false;

interface Answer {
  readonly status: number;
  readonly body: object;
}

function answer(res: ServerResponse, { status, body }: Answer): void {
  // A full queue of transforms empties within seconds.
  if (status === 503) res.setHeader("Retry-After", 1);
  send(res, status, JSON_TYPE, JSON.stringify(body));
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
 * sending again, after a 500 or 503 all are, since stored messages become duplicates.
 */
function answerBatch(res: ServerResponse, receipts: readonly Receipt[], isAtomic: boolean): void {
  const answers = receipts.map(receiptAnswer);
  const items = answers.map(({ status, body }) => ({ status, body }));
  const failed = answers.findIndex(({ status }) => status >= 500);
  const refused = answers.findIndex(({ status }) => status === 400 || status === 422);
  const isNoneTaken = refused >= 0 && (isAtomic || answers.every(({ status }) => status >= 400));
  const decisive = answers[failed >= 0 ? failed : refused];
  if (decisive !== undefined && (failed >= 0 || isNoneTaken)) {
    const { error } = decisive.body as { readonly error: string };
    answer(res, { ...decisive, body: { error: failed >= 0 ? error : `item ${refused}: ${error}`, items } });
  } else if (refused >= 0) {
    for (const { status, body } of answers) res.emit(ANSWERED, status, JSON.stringify(body));
    sendJson(res, 207, { items });
  } else sendJson(res, answers.some(({ status }) => status === 202) ? 202 : 200, { items });
}

/** Answers a request whose body holds no batch. @param maxItems `batch.maxItems` */
function answerUnsplit(
  res: ServerResponse,
  split: Exclude<SplitBatch, { readonly kind: "messages" }>,
  maxItems: number,
): void {
  if (split.kind === "too_many") sendError(res, 413, tooManyMessage(maxItems));
  else sendError(res, 400, split.kind === "no_list" ? split.reason : "Invalid JSON");
}

/** Decides by a name in lower case which received headers are neither stored nor shown to transforms. */
export function headersNotStored(auth: InboundAuth | undefined, further: readonly string[]): (name: string) => boolean {
  // The correlation id has a column of its own, and what is stored has been decoded.
  const own = [...credentialHeaderNames(auth), ...further, ...RECEIPT_HEADERS, CORRELATION_HEADER, "content-encoding"];
  const names = new Set(own.map((name) => name.toLowerCase()));
  // Twilio's `I-Twilio-Idempotency-Token` only looks like a credential.
  const kept = auth?.kind === "provider" ? keyHeadersOf(providerOf(auth.provider)) : [];
  return (name) => names.has(name) || (isCredentialHeader(name) && !kept.includes(name));
}

function keyHeadersOf({ idempotencyKey }: Provider): readonly string[] {
  return idempotencyKey.flatMap((place) => ("header" in place ? [place.header.toLowerCase()] : []));
}

/**
 * The received headers, each name in the letter case of its first occurrence; its values are joined with `, ` (RFC
 * 9110, section 5.3).
 *
 * @param raw names and values in turn
 * @param omits by a name in lower case
 */
export function receivedHeaders(raw: readonly string[], omits: (name: string) => boolean): Headers {
  const headers = emptyHeaders();
  const firstNames = new Map<string, string>();
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] ?? "";
    const value = headerText(raw[i + 1] ?? "");
    const lowerCaseName = name.toLowerCase();
    if (omits(lowerCaseName)) continue;
    const firstName = firstNames.get(lowerCaseName);
    if (firstName === undefined) {
      firstNames.set(lowerCaseName, name);
      headers[name] = value;
    } else if (value !== "") {
      // Without the empty ones: a header that only comes twice has no value.
      const former = headers[firstName] ?? "";
      headers[firstName] = former === "" ? value : `${former}, ${value}`;
    }
  }
  return headers;
}

const ASCII = /^[\t\x20-\x7e]*$/;
const WIDE = /[\u0100-\uffff]/;

/** The text of a header value. Node gives each byte as a character; most senders mean UTF-8, the rest Latin-1. */
function headerText(value: string): string {
  if (ASCII.test(value) || WIDE.test(value)) return value;
  const bytes = Buffer.from(value, "latin1");
  return isUtf8(bytes) ? bytes.toString("utf8") : value;
}

/**
 * A token bucket: a full minute's requests may arrive at once, after that they refill evenly. One bucket per source;
 * not per caller (spec, "Limits").
 */
export class RateLimit {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #perMinute: number;
  /** In requests times ms: a ms refills `#perMinute` of them and a request costs a minute's worth, without rounding. */
  #level: number;
  #refilledAt: number;

  constructor(requestsPerMinute: number, clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
    this.#perMinute = requestsPerMinute;
    this.#level = requestsPerMinute * MINUTE_MS;
    this.#refilledAt = clock.monotonic();
  }

  /** @returns 0 when the request may pass, else the whole seconds (at least 1) after which the next one may */
  take(): number {
    const now = this.#clock.monotonic();
    const full = this.#perMinute * MINUTE_MS;
    this.#level = Math.min(full, this.#level + (now - this.#refilledAt) * this.#perMinute);
    this.#refilledAt = now;
    if (this.#level >= MINUTE_MS) {
      this.#level -= MINUTE_MS;
      return 0;
    }
    const waitMs = (MINUTE_MS - this.#level) / this.#perMinute;
    return Math.max(1, Math.ceil(waitMs / 1000));
  }
}

const MINUTE_MS = 60_000;

/** What an HTTP source does besides receiving messages, because its sender is a provider of webhooks. */
interface Webhook {
  /** Methods besides POST, for handshakes. */
  readonly methods: readonly string[];
  /** Answers an unsigned handshake; undefined for any other request. */
  greet(req: IncomingMessage): HandshakeAnswer | undefined;
  /** Answers a signed handshake. @param body of a request whose credentials hold */
  reply(req: IncomingMessage, body: Buffer): HandshakeAnswer | undefined;
  /** Converts a form into JSON and returns any other body unchanged. @returns the reason, as text, when it cannot */
  jsonOf(req: IncomingMessage, body: Buffer): Buffer | string;
}

interface WebhookSettings {
  readonly auth?: InboundAuth | undefined;
  readonly webhookOrigins?: readonly string[] | undefined;
}

/** @param settings of the source. @returns undefined where its sender is no such provider and asks nothing before */
function createWebhook({ auth, webhookOrigins }: WebhookSettings, clock: Pick<Clock, "now">): Webhook | undefined {
  const own = auth?.kind === "provider" ? ofProvider(auth, providerOf(auth.provider), clock) : undefined;
  if (webhookOrigins === undefined) return own;
  return {
    methods: [...(own?.methods ?? []), "OPTIONS"],
    greet: (req) => (req.method === "OPTIONS" ? originAnswer(req, webhookOrigins) : own?.greet(req)),
    reply: (req, body) => own?.reply(req, body),
    jsonOf: (req, body) => own?.jsonOf(req, body) ?? body,
  };
}

const NO_HANDSHAKE: HandshakeAnswer = { status: 403, body: { error: "the request is not a handshake" } };

function ofProvider(auth: ProviderAuth, { handshake, form }: Provider, clock: Pick<Clock, "now">): Webhook {
  const { methods = [], greet, marker, reply } = handshake ?? {};
  const tokens = verifyTokensOf(auth);
  const verifyTokens = madeOf(tokens, () => tokens.map((token) => token.reveal()));
  const check = madeOf(credentialsOf(auth), () => createProviderCheck(auth, clock));
  return {
    methods,
    greet(req) {
      if (greet === undefined) return undefined;
      const { method = "" } = req;
      const query = new URLSearchParams(req.url?.split("?", 2)[1] ?? "");
      const isJson = /[/+]json\b/i.test(req.headers["content-type"] ?? "");
      const answer = greet({ method, isJson, query }, verifyTokens());
      // Only a POST is a message.
      return answer ?? (method === "POST" ? undefined : NO_HANDSHAKE);
    },
    reply(req, body) {
      if (reply === undefined || marker === undefined || !body.includes(marker)) return undefined;
      return reply(jsonOf(body), () => check().secretOf(req, body));
    },
    jsonOf(req, body) {
      // No signature covers the type: recorded JSON would come again as a form, under the key of another message.
      const isFormBody = form !== undefined && isForm(req) && JsonDocument.parse(body) === null;
      return isFormBody ? formToJson(body, form.jsonField) : body;
    },
  };
}

/** CloudEvents, "HTTP 1.1 Web Hooks for Event Delivery", section 4: the sender asks whether it may deliver. */
function originAnswer(req: IncomingMessage, origins: readonly string[]): HandshakeAnswer {
  const asked = req.headers["webhook-request-origin"];
  if (typeof asked !== "string") return { status: 400, body: { error: "missing WebHook-Request-Origin header" } };
  const isAllowed = origins.some((origin) => origin === "*" || origin.toLowerCase() === asked.toLowerCase());
  if (!isAllowed) return { status: 403, body: { error: "webhookOrigins does not list the WebHook-Request-Origin" } };
  // The source's own limit decides about the rate.
  const rate = req.headers["webhook-request-rate"] === undefined ? {} : { "WebHook-Allowed-Rate": "*" };
  return { status: 200, body: "", headers: { Allow: "POST", "WebHook-Allowed-Origin": asked, ...rate } };
}

function answerHandshake(res: ServerResponse, { status, body, headers = {} }: HandshakeAnswer): void {
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  if (status === 204) {
    // It must not have a Content-Length.
    res.writeHead(204).end();
  } else if (typeof body === "object") {
    send(res, status, JSON_TYPE, JSON.stringify(body));
  } else if (body === "") {
    send(res, status, null, "");
  } else {
    // The text comes from the request: no browser may take it for a page.
    res.setHeader("X-Content-Type-Options", "nosniff");
    send(res, status, TEXT_TYPE, body);
  }
}
