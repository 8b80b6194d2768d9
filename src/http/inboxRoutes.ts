import type { IncomingMessage, ServerResponse } from "node:http";
import { CORRELATION_HEADER, correlationId, credentialHeaders } from "../core/receipt/headers.ts";
import type { Receiver } from "../core/receipt/receive.ts";
import { ConfigError } from "../model/errors.ts";
import type { Receipt } from "../model/rows.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { Clock } from "../time/clock.ts";
import { type Admitted, answerUnadmitted, receiveBody } from "./admission.ts";
import type { BodyBudget } from "./bodyBudget.ts";
import { createVerifier, credentialHeaderNames, type InboundAuth } from "./credentials.ts";
import { headerText, receivedHeaders } from "./headers.ts";
import { RateLimit } from "./rateLimit.ts";
import { JSON_TYPE, send, sendError } from "./respond.ts";

/** One HTTP source: how its requests are admitted, and who takes what they bring. */
export interface InboxRoute {
  readonly settings: {
    /** Path after `inbox.basePath`. */
    readonly path: string;
    readonly auth?: InboundAuth | undefined;
    readonly rateLimit?: { readonly requestsPerMinute: number } | undefined;
  };
  readonly receiver: Receiver;
}

export interface InboxOptions {
  readonly inbox: {
    readonly basePath: string;
    readonly maxBodyBytes: number;
    readonly credentialHeaders: readonly string[];
  };
  readonly routes: readonly InboxRoute[];
  readonly budget: BodyBudget;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "inboxRejection">;
}

export type RouteHandler = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

/**
 * The inbox routes (spec, "POST <inbox.basePath><path>").
 *
 * @returns handlers of POST requests by exact path
 * @throws ConfigError when two sources have the same path, or a source's `auth` is unusable
 */
export function inboxRoutes(options: InboxOptions): ReadonlyMap<string, RouteHandler> {
  const handlers = new Map<string, RouteHandler>();
  const owners = new Map<string, string>();
  for (const route of options.routes) {
    const path = joinPaths(options.inbox.basePath, route.settings.path);
    const source = route.receiver.source;
    const owner = owners.get(path);
    if (owner !== undefined) {
      const message = `source ${owner} has the path ${path} already; every HTTP source needs its own`;
      throw new ConfigError([{ path: `sources.${source}.path`, message }]);
    }
    owners.set(path, source);
    handlers.set(path, inboxHandler(route, options));
  }
  return handlers;
}

/** Joins base path and path with one slash between them, whoever of the two wrote it. */
function joinPaths(basePath: string, path: string): string {
  return `${basePath.replace(/\/$/, "")}/${path.replace(/^\//, "")}`;
}

function inboxHandler(
  { settings, receiver }: InboxRoute,
  { inbox, budget, clock, metrics }: InboxOptions,
): RouteHandler {
  const { auth } = settings;
  const limits = { maxBytes: inbox.maxBodyBytes, budget };
  const verifier = auth === undefined ? null : createVerifier(auth, { path: `sources.${receiver.source}.auth`, clock });
  const rateLimit = settings.rateLimit && new RateLimit(settings.rateLimit.requestsPerMinute, clock);
  const omits = headersNotStored(auth, inbox.credentialHeaders);

  async function decide(req: IncomingMessage, res: ServerResponse): Promise<Decision> {
    const admitted = await receiveBody(req, res, { limits, verifier });
    if (admitted.kind !== "read") return admitted;

    const retryAfterSeconds = rateLimit?.take() ?? 0;
    if (retryAfterSeconds > 0) return { kind: "rate_limited", retryAfterSeconds };

    if (!receiver.passes(() => receivedHeaders(req.rawHeaders, omitsNone))) return { kind: "filtered" };

    const correlation = correlationId(req.headers["x-correlation-id"]);
    res.setHeader(CORRELATION_HEADER, correlation);
    const headers = receivedHeaders(req.rawHeaders, omits);
    return receiver.accept({ body: admitted.body, headers, correlationId: headerText(correlation) });
  }

  return async function handle(req, res) {
    const decision = await decide(req, res);
    if (decision.kind === "unauthorized" || decision.kind === "rate_limited") metrics.inboxRejection(decision.kind);
    answer(res, decision, limits.maxBytes);
  };
}

/**
 * Which received headers of an HTTP source are left out of what is stored and shown to transforms.
 *
 * @param further `inbox.credentialHeaders`
 * @returns tells it by a name in lower case
 */
export function headersNotStored(auth: InboundAuth | undefined, further: readonly string[]): (name: string) => boolean {
  // The correlation id has a column of its own, and what is stored has been decoded.
  return credentialHeaders([...credentialHeaderNames(auth), ...further, CORRELATION_HEADER, "content-encoding"]);
}

/** What becomes of one request: it is turned away at the door, or its message is received. */
type Decision =
  | Receipt
  | Exclude<Admitted, { kind: "read" }>
  | { readonly kind: "rate_limited"; readonly retryAfterSeconds: number };

const omitsNone = (): boolean => false;
export const TRANSFORM_UNAVAILABLE = "The transform cannot be run now";
/** A full queue of transforms empties within seconds. */
const BUSY_RETRY_AFTER_SECONDS = 1;

/** The answer to each decision (spec, the status table of the route). */
function answer(res: ServerResponse, decision: Decision, maxBodyBytes: number): void {
  switch (decision.kind) {
    case "stored":
      send(res, 202, JSON_TYPE, `{"messageId":"${decision.id}"}`);
      break;
    case "filtered":
      send(res, 202, JSON_TYPE, '{"status":"filtered"}');
      break;
    case "duplicate":
      send(res, 200, JSON_TYPE, '{"status":"duplicate"}');
      break;
    case "rejected":
      answerRejection(res, decision);
      break;
    case "rate_limited":
      res.setHeader("Retry-After", decision.retryAfterSeconds);
      send(res, 429, null, "");
      break;
    case "unavailable":
      sendError(res, 500, "Storage failed");
      break;
    case "busy":
      res.setHeader("Retry-After", BUSY_RETRY_AFTER_SECONDS);
      sendError(res, 503, TRANSFORM_UNAVAILABLE);
      break;
    default:
      answerUnadmitted(res, decision, maxBodyBytes, sendError);
  }
}

function answerRejection(
  res: ServerResponse,
  { rejection, reason }: Extract<Decision, { readonly kind: "rejected" }>,
): void {
  switch (rejection) {
    case "invalid_json":
      sendError(res, 400, "Invalid JSON");
      break;
    case "extraction_failed":
    case "unstorable":
      sendError(res, 400, reason);
      break;
    case "transform_failed":
      sendError(res, 422, `Transform failed: ${reason}`);
      break;
  }
}
