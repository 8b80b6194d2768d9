import type { IncomingMessage, ServerResponse } from "node:http";
import type { Covered } from "../../adapters/sources/http/kind.ts";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import { ParkedInterruptedError } from "../../core/finished/parked.ts";
import { NoOverrideError, ReplayInterruptedError } from "../../core/finished/replay.ts";
import { jsonText } from "../../core/receipt/jsonDocument.ts";
import { CellError, errorText, StoppingError, StoreError, withoutTable } from "../../model/errors.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { crossSiteRefusal, foreignHostRefusal } from "../console/origin.ts";
import type { Session, Sessions } from "../console/sessions.ts";
import { createVerifier, hasCredentials } from "../credentials.ts";
import { type AnswerError, admit, type BodyLimits, ERRORS, sendError, sendJson } from "../exchange.ts";
import type { RouteHandler } from "../routes.ts";

/** What the admin routes share: admission of requests, reading of bodies, answers to errors. */

export interface GuardOptions {
  /** Section `admin`. */
  readonly admin: { readonly auth?: InboundAuth | undefined; readonly insecure: boolean; readonly console?: boolean };
  /** Of the console: they count as credentials in requests that bring none. */
  readonly sessions?: Sessions | undefined;
  readonly limits: BodyLimits;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

/** An admitted request. */
export interface AdminRequest {
  readonly body: Buffer;
  readonly url: string;
  readonly parameters: Readonly<Record<string, string>>;
  /** Whether the credentials that let it in would do so now. */
  readonly isAdmitted: () => boolean;
}

type AdminHandler = (request: AdminRequest, res: ServerResponse) => Promise<void>;

/** Makes the route handler of an admin operation. @param answerError in the form of the route */
export type Guard = (handle: AdminHandler, answerError?: AnswerError) => RouteHandler;

/**
 * Checks body and credentials before each admin operation (spec, "Authentication").
 *
 * @param covered what a signature must cover
 * @throws Error without credentials to check, unless `admin.insecure` is set
 */
export function createGuard({ admin, sessions, limits, clock, log }: GuardOptions, covered: Covered): Guard {
  // The configuration's own check demands it too: without credentials nobody may be let in by mistake.
  if (admin.auth === undefined && !admin.insecure) throw new Error("admin.auth is required without admin.insecure");
  const { auth } = admin;
  const verifier = auth === undefined || admin.insecure ? null : createVerifier(auth, clock, covered);
  return (handle, answerError = sendError) =>
    async function guarded(req, res, parameters) {
      const { url = "" } = req;
      const onRefused = (_req: unknown, reason: string): void =>
        log.warn({ path: pathOf(url), reason }, "an admin request was refused");
      // A session never makes up for wrong credentials.
      const session = verifier === null || hasCredentials(req.headers, auth) ? undefined : sessions?.of(req);
      const refusal =
        verifier === null
          ? (foreignHostRefusal(req, admin.console ?? false) ?? crossSiteRefusal(req))
          : browserRefusal(req, session, sessions);
      if (refusal !== null) {
        onRefused(req, refusal);
        return answerError(res, 403, refusal);
      }
      if (session !== undefined) sessions?.renew(req, res, session);
      const admission = { limits, verifier: session === undefined ? verifier : null, onRefused };
      const body = await admit(req, res, admission, answerError);
      if (body === null) return;
      const isAdmitted = (): boolean =>
        session === undefined ? (verifier?.refusal(req, body) ?? null) === null : sessions?.of(req) !== undefined;
      await handle({ body, url, parameters, isAdmitted }, res);
    };
}

/** Without the query, which may quote what an operator looks for. */
const pathOf = (url: string): string | undefined => url.split("?", 1)[0];

/**
 * Why a browser may have sent a request for another site. A request with credentials of its own cannot be one.
 *
 * @returns null when it did not
 */
function browserRefusal(
  req: IncomingMessage,
  session: Session | undefined,
  sessions: Sessions | undefined,
): string | null {
  if (session === undefined) return null;
  const isRead = req.method === "GET" || req.method === "HEAD";
  return isRead || sessions?.hasCsrfToken(req, session) ? crossSiteRefusal(req) : ERRORS.noCsrfToken;
}

/** Reads a request body. @throws Error whose message quotes nothing of the body */
export function parseJsonBody(body: Buffer): unknown {
  try {
    const text = jsonText(body);
    if (text !== null) return JSON.parse(text);
  } catch {
    // The parser's own message would quote the payload.
  }
  throw new Error("the body is not a JSON document in UTF-8");
}

/** Reads a body that may be missing: it then has no fields. */
export function parseOptionalBody(body: Buffer): unknown {
  return body.length === 0 ? {} : parseJsonBody(body);
}

/** Parses a request. @returns undefined when it is not valid; it has its answer then */
export function parsed<T>(
  res: ServerResponse,
  parse: () => T,
  answerError: AnswerError = sendError,
): { readonly value: T } | undefined {
  try {
    return { value: parse() };
  } catch (error) {
    answerError(res, 400, `Invalid request: ${errorText(error)}`);
    return undefined;
  }
}

/** A request that is valid and cannot be served; the message is the answer. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Works on a table that may be missing. @throws Refusal with the message when it is */
export async function onTable(message: string, work: () => Promise<object>): Promise<object> {
  const result = await work().catch(withoutTable);
  if (result === undefined) throw new Refusal(501, message);
  return result;
}

/**
 * Answers with what `work` returns, as JSON unless it is a text of JSON.
 *
 * @param log gets the reason of a failure, which the answer may not tell
 * @param parse throws an Error whose message is the reason: 400
 * @param work can ask whether the caller has ended its side of the connection; throws a Refusal, a StoreError (500), or
 *   the error of a change that was interrupted between two batches, whose answer has the count so far
 */
export function answering<T>(
  log: Log,
  parse: (request: AdminRequest) => T,
  work: (request: T, isGone: () => boolean) => Promise<object | string>,
): AdminHandler {
  return async function answer(request, res) {
    const { socket } = res.req;
    const valid = parsed(res, () => parse(request));
    if (valid === undefined) return;
    try {
      sendJson(res, 200, await work(valid.value, () => socket.destroyed || socket.readableEnded));
    } catch (error) {
      if (error instanceof StoreError) {
        log.error({ path: pathOf(request.url), code: error.code, reason: error.message }, "an admin request failed");
      }
      answerError(res, error);
    }
  };
}

function answerError(res: ServerResponse, error: unknown): void {
  if (error instanceof Refusal) sendError(res, error.status, error.message);
  else if (error instanceof NoOverrideError) sendError(res, 501, ERRORS.noOverride);
  else if (error instanceof StoreError) sendError(res, 500, storageFailure(error));
  else if (error instanceof ReplayInterruptedError) answerInterruption(res, error, { moved: error.moved });
  else if (error instanceof ParkedInterruptedError) answerInterruption(res, error, { changed: error.changed });
  else throw error;
}

/** With cells an operator must know which of them failed. */
function storageFailure(error: StoreError): string {
  return error instanceof CellError
    ? `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}`
    : ERRORS.storageFailed;
}

/** @param done what was changed before the interruption */
function answerInterruption(res: ServerResponse, error: Error, done: object): void {
  if (error.cause instanceof StoppingError) sendJson(res, 503, { error: ERRORS.shuttingDown, ...done });
  else if (error.cause instanceof StoreError) sendJson(res, 500, { error: storageFailure(error.cause), ...done });
  else throw error;
}
