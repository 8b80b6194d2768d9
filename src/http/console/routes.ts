import type { ServerResponse } from "node:http";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { Audit } from "../../core/operations/audit.ts";
import { BY } from "../../core/operations/syntax.ts";
import { bool, exampleOf, nullable, object, TIME_OR_NULL } from "../../model/described.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { type Access, createVerifier, credentialHeaderNames, hasCredentials } from "../credentials.ts";
import { admit, type BodyLimits, ERRORS, sendError, sendJson } from "../exchange.ts";
import * as field from "../fields.ts";
import * as answer from "../openapi/answers.ts";
import { type HttpRoute, httpRoute } from "../routes.ts";
import { crossSiteRefusal, foreignHostRefusal } from "./origin.ts";
import { type ConsoleFiles, leadToPage, showAsset, showPage } from "./page.ts";
import type { Session, Sessions } from "./sessions.ts";

interface ConsoleOptions {
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

type Console = ReturnType<typeof createConsole>;

function createConsole(options: ConsoleOptions) {
  const { auth, sessions, showsPayloads } = options;
  const headerName = credentialHeaderNames(auth)[0] ?? null;
  return {
    ...options,
    headerName,
    /** What a page is shown of its session. */
    shown: (session: Session | undefined): object => ({
      isSignedIn: sessions === undefined || session !== undefined,
      method: auth?.kind ?? "none",
      headerName,
      by: session?.by ?? null,
      csrfToken: session === undefined ? null : (sessions?.csrfToken(session) ?? null),
      endsAt: session === undefined || sessions === undefined ? null : new Date(sessions.endsAt(session)).toISOString(),
      showsPayloads,
    }),
  };
}

const SESSION = object({
  isSignedIn: [bool("True without `admin.auth` too."), true],
  method: [{ enum: ["bearer", "api-key", "hmac", "none"], description: "Kind of `admin.auth`." }, "bearer"],
  headerName: [nullable("string", "The header of the credentials."), "Authorization"],
  by: [nullable("string", "Who signed in, by their own account."), "alice"],
  csrfToken: [
    nullable("string", "For the header `X-CSRF-Token` of requests that change something."),
    "mqzCFQKXxB0mWvTjv1vOYdTt2g8N9t0hV1o6u3bG3nE",
  ],
  endsAt: [{ ...TIME_OR_NULL, description: "When the session ends unless it is used." }, "2025-01-31T12:30:00.000Z"],
  showsPayloads: [bool("`admin.showPayloads`"), false],
});

const CROSS_SITE = answer.error(
  403,
  "The request comes from another site, or with `admin.insecure` by a foreign host name.",
  "the request comes from another site (Sec-Fetch-Site: cross-site)",
);

const showSession = ({ sessions, shown }: Console) =>
  httpRoute(
    "console_session",
    {
      summary: "Show the session of this browser",
      description: "Needs no credentials: the page asks how to sign in.",
      answers: [answer.json(200, "The session, or how to make one.", SESSION), CROSS_SITE],
    },
    async (req, res) => {
      const refusal = crossSiteRefusal(req) ?? (sessions === undefined ? foreignHostRefusal(req, true) : null);
      if (refusal !== null) sendError(res, 403, refusal);
      else sendJson(res, 200, shown(sessions?.of(req)));
    },
  );

const FIELDS = {
  by: field.text(BY, "Who signs in."),
  code: field.text(
    { parse: (text) => text, schema: { type: "string" } },
    "A one-time code, if the header of the credentials is absent.",
  ),
};

function signIn({ auth, sessions, access, limits, clock, log, audit, headerName, shown }: Console) {
  const verifier = auth === undefined ? null : createVerifier(auth, clock);
  const noteRefusal = (address: string, reason: string): void =>
    log.warn({ reason, address }, "a sign-in to the console was refused");
  const refuse = (res: ServerResponse, address: string, reason: string): void => {
    noteRefusal(address, reason);
    if (verifier !== null) res.setHeader("WWW-Authenticate", verifier.challenge);
    sendError(res, 401, reason);
  };
  return httpRoute(
    "console_sign_in",
    {
      summary: "Sign in to the console",
      description:
        "Makes a session from the admin token or key in its header, or from a one-time code of `svc console sign-in` in the " +
        "body. The session is a cookie: 30 minutes unless used, 8 hours at most.",
      body: {
        isOptional: true,
        maxBytes: limits.maxBytes,
        schema: field.bodySchema({ fields: FIELDS }),
        examples: { byAlice: { summary: "With the token or key in its header", value: { by: "alice" } } },
      },
      answers: [
        answer.json(200, "The session; the cookie is in `Set-Cookie`.", SESSION),
        answer.invalidBody("the body is an array; a JSON object is expected"),
        ...answer.unauthorized(access),
        CROSS_SITE,
      ],
    },
    async (req, res) => {
      const crossSite = crossSiteRefusal(req);
      const address = req.socket.remoteAddress ?? "";
      if (crossSite !== null) return sendError(res, 403, crossSite);
      // A signature can be recorded and sent again; a session lasts for hours.
      const byHeaders = auth?.kind !== "hmac" && hasCredentials(req.headers, auth);
      const onRefused = (_req: unknown, reason: string): void => noteRefusal(address, reason);
      const body = await admit(req, res, { limits, verifier: byHeaders ? verifier : null, onRefused });
      if (body === null) return;
      const request = field.parsed(res, () => field.readFields(FIELDS, field.readBody(body)));
      if (request === undefined) return;
      if (sessions === undefined) return sendJson(res, 200, shown(undefined));
      let { by = null } = request.value;
      if (!byHeaders) {
        const { code } = request.value;
        const missing = auth?.kind === "hmac" ? "a signature opens no session" : `missing ${headerName} header`;
        if (code === undefined) return refuse(res, address, `${missing}, and no code of svc console sign-in`);
        const redeemed = sessions.redeem(code);
        if (redeemed === undefined) {
          return refuse(res, address, "the one-time code is wrong, used or older than two minutes: make another one");
        }
        by = redeemed.by ?? by;
      }
      const session = sessions.start(req, res, by);
      log.info({ by, address }, "signed in to the console");
      await audit.add({ actor: by ?? "console", action: "sign-in", target: "console", detail: `from ${address}` });
      sendJson(res, 200, shown(session));
    },
  );
}

const SIGNED_OUT = {
  ...(exampleOf(SESSION) as object),
  ...{ isSignedIn: false, by: null, csrfToken: null, endsAt: null },
};

const signOut = ({ sessions, limits, log, audit, shown }: Console) =>
  httpRoute(
    "console_sign_out",
    {
      summary: "Sign out of the console",
      description: "Ends the session of this browser. Needs the header `X-CSRF-Token` and no body.",
      answers: [
        answer.json(200, "No session is left.", SESSION, SIGNED_OUT),
        answer.error(
          403,
          "The CSRF token is missing or wrong, or the request comes from another site.",
          ERRORS.noCsrfToken,
        ),
        ...answer.bodyAnswers(limits.maxBytes),
      ],
    },
    async (req, res) => {
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
      sendJson(res, 200, shown(undefined));
    },
  );

export function consoleRoutes(options: ConsoleOptions): readonly HttpRoute[] {
  const { files } = options;
  const sessions = createConsole(options);
  const page = [showPage(files), leadToPage(), showAsset(files)];
  return [...page, ...[showSession, signIn, signOut].map((routeOf) => routeOf(sessions))];
}
