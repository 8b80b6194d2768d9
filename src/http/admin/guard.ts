import type { IncomingMessage, ServerResponse } from "node:http";
import type { Covered } from "../../adapters/sources/http/kind.ts";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { crossSiteRefusal, foreignHostRefusal } from "../console/origin.ts";
import type { Session, Sessions } from "../console/sessions.ts";
import { createVerifier, hasCredentials } from "../credentials.ts";
import { type AnswerError, admit, type BodyLimits, ERRORS, sendError } from "../exchange.ts";
import type { RouteHandler } from "../routes.ts";

export interface GuardOptions {
  /** Section `admin`. */
  readonly admin: { readonly auth?: InboundAuth | undefined; readonly insecure: boolean; readonly console?: boolean };
  /** Of the console: they count as credentials in requests that bring none. */
  readonly sessions?: Sessions | undefined;
  readonly limits: BodyLimits;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

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
export const pathOf = (url: string): string | undefined => url.split("?", 1)[0];

/**
 * Why a browser may have sent a request for another site; null if it did not, or the request has credentials of its
 * own.
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
