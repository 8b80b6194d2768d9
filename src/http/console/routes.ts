import type { IncomingMessage, ServerResponse } from "node:http";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import { parseBy, requireObject, single } from "../../core/finished/requests.ts";
import type { Audit } from "../../core/operations/audit.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { parsed, parseOptionalBody } from "../admin/requests.ts";
import { type Access, createVerifier, credentialHeaderNames, hasCredentials } from "../credentials.ts";
import { admit, type BodyLimits, ERRORS, sendError, sendJson } from "../exchange.ts";
import { describeConsole } from "../openapi/console.ts";
import { type Route, type RouteHandler, route } from "../routes.ts";
import type { Asset, ConsoleFiles } from "./assets.ts";
import { crossSiteRefusal, foreignHostRefusal } from "./origin.ts";
import type { Session, Sessions } from "./sessions.ts";
import { FailedTries } from "./tries.ts";

interface ConsoleRouteOptions {
  readonly files: ConsoleFiles;
  /** Undefined with `admin.insecure`: nobody signs in. */
  readonly auth: InboundAuth | undefined;
  readonly sessions: Sessions | undefined;
  readonly access: Access | undefined;
  readonly limits: BodyLimits;
  readonly clock: Clock;
  readonly log: Log;
  /** `admin.showPayloads` */
  readonly showsPayloads: boolean;
  readonly audit: Audit;
}

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** The console: its page and files, which hold no data, and its sessions. */
export function consoleRoutes(options: ConsoleRouteOptions): readonly Route[] {
  const { files, access, limits } = options;
  const describe = describeConsole(access, limits.maxBytes);
  return [
    route("console", describe.console, async (req, res) => sendAsset(req, res, files.page, "no-store")),
    route("console_asset", describe.console_asset, async (req, res, { file = "" }) => {
      const asset = files.assets.get(file);
      if (asset === undefined) sendError(res, 404, ERRORS.notFound);
      // Its name changes with its content.
      else sendAsset(req, res, asset, "public, max-age=31536000, immutable");
    }),
    ...sessionRoutes(options, describe),
  ];
}

function sendAsset(req: IncomingMessage, res: ServerResponse, asset: Asset, caching: string): void {
  const isGzipped = /\bgzip\b/.test(String(req.headers["accept-encoding"] ?? ""));
  const bytes = isGzipped ? asset.gzipped : asset.bytes;
  if (isGzipped) res.setHeader("Content-Encoding", "gzip");
  res.writeHead(200, {
    "Content-Type": asset.type,
    "Content-Length": bytes.length,
    "Cache-Control": caching,
    Vary: "Accept-Encoding",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
  });
  res.end(req.method === "HEAD" ? undefined : bytes);
}

function sessionRoutes(options: ConsoleRouteOptions, describe: ReturnType<typeof describeConsole>): readonly Route[] {
  const { auth, sessions, limits, clock, log, showsPayloads, audit } = options;
  const verifier = auth === undefined ? null : createVerifier(auth, clock);
  const tries = new FailedTries(clock);
  const headerName = credentialHeaderNames(auth)[0] ?? null;

  const shown = (session: Session | undefined): object => ({
    isSignedIn: sessions === undefined || session !== undefined,
    method: auth?.kind ?? "none",
    headerName,
    by: session?.by ?? null,
    csrfToken: session === undefined ? null : (sessions?.csrfToken(session) ?? null),
    endsAt: session === undefined || sessions === undefined ? null : new Date(sessions.endsAt(session)).toISOString(),
    showsPayloads,
  });
  const answer = (res: ServerResponse, session: Session | undefined): void => sendJson(res, 200, shown(session));
  const noteRefusal = (address: string, reason: string): void => {
    tries.add(address);
    log.warn({ reason, address }, "a sign-in to the console was refused");
  };
  const refuse = (res: ServerResponse, address: string, reason: string): void => {
    noteRefusal(address, reason);
    if (verifier !== null) res.setHeader("WWW-Authenticate", verifier.challenge);
    sendError(res, 401, reason);
  };

  const show: RouteHandler = async (req, res) => {
    const refusal = crossSiteRefusal(req) ?? (sessions === undefined ? foreignHostRefusal(req, true) : null);
    if (refusal !== null) sendError(res, 403, refusal);
    else answer(res, sessions?.of(req));
  };

  const signIn: RouteHandler = async (req, res) => {
    const crossSite = crossSiteRefusal(req);
    const address = req.socket.remoteAddress ?? "";
    const wait = tries.waitOf(address);
    if (crossSite !== null) return sendError(res, 403, crossSite);
    if (wait > 0) {
      res.setHeader("Retry-After", wait);
      return sendError(res, 429, `Too many failed sign-ins: try again in ${wait} s`);
    }
    // A signature can be recorded and sent again; a session lasts for hours.
    const byHeaders = auth?.kind !== "hmac" && hasCredentials(req.headers, auth);
    const onRefused = (_req: unknown, reason: string): void => noteRefusal(address, reason);
    const body = await admit(req, res, { limits, verifier: byHeaders ? verifier : null, onRefused });
    if (body === null) return;
    const request = parsed(res, () => parseSignIn(body));
    if (request === undefined) return;
    if (sessions === undefined) return answer(res, undefined);
    let { by } = request.value;
    if (!byHeaders) {
      const { code } = request.value;
      const missing = auth?.kind === "hmac" ? "a signature does not sign in" : `missing ${headerName} header`;
      if (code === null) return refuse(res, address, `${missing}, and there is no one-time code`);
      const redeemed = sessions.redeem(code);
      if (redeemed === undefined) {
        return refuse(res, address, "the one-time code is wrong, used or older than two minutes: make another one");
      }
      by = redeemed.by ?? by;
    }
    const session = sessions.start(req, res, by);
    log.info({ by, address }, "signed in to the console");
    await audit.add({ actor: by ?? "console", action: "sign-in", target: "console", detail: `from ${address}` });
    answer(res, session);
  };

  const signOut: RouteHandler = async (req, res) => {
    const session = sessions?.of(req);
    const body = await admit(req, res, { limits, verifier: null });
    if (body === null) return;
    if (sessions !== undefined && session !== undefined) {
      const crossSite = crossSiteRefusal(req);
      if (crossSite !== null) return sendError(res, 403, crossSite);
      if (!sessions.hasCsrfToken(req, session)) return sendError(res, 403, ERRORS.noCsrfToken);
      sessions.end(req, res, session);
      log.info({ by: session.by }, "signed out of the console");
      await audit.add({ actor: session.by ?? "console", action: "sign-out", target: "console", detail: "" });
    }
    answer(res, undefined);
  };

  return [
    route("console_session", describe.console_session, show),
    route("console_sign_in", describe.console_sign_in, signIn),
    route("console_sign_out", describe.console_sign_out, signOut),
  ];
}

/** Body `{"by": "alice", "code": "..."}`, each may be missing. */
function parseSignIn(body: Buffer): { readonly by: string | null; readonly code: string | null } {
  const fields = requireObject(parseOptionalBody(body));
  return { by: single(fields, "by", parseBy) ?? null, code: single(fields, "code", (text) => text) ?? null };
}
