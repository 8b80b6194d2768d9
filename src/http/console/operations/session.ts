import type { ServerResponse } from "node:http";
import { BY } from "../../../core/operations/syntax.ts";
import { exampleOf } from "../../../model/described.ts";
import { createVerifier, hasCredentials } from "../../credentials.ts";
import { admit, ERRORS, sendError, sendJson } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { route } from "../../routes.ts";
import { type Console, CROSS_SITE, SESSION } from "../operation.ts";
import { crossSiteRefusal, foreignHostRefusal } from "../origin.ts";
import { FailedTries } from "../tries.ts";

export const showSession = ({ sessions, shown }: Console) =>
  route(
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
    "A one-time code, where the header of the credentials is absent.",
  ),
};

export function signIn({ auth, sessions, access, limits, clock, log, audit, headerName, shown }: Console) {
  const verifier = auth === undefined ? null : createVerifier(auth, clock);
  const tries = new FailedTries(clock);
  const noteRefusal = (address: string, reason: string): void => {
    tries.add(address);
    log.warn({ reason, address }, "a sign-in to the console was refused");
  };
  const refuse = (res: ServerResponse, address: string, reason: string): void => {
    noteRefusal(address, reason);
    if (verifier !== null) res.setHeader("WWW-Authenticate", verifier.challenge);
    sendError(res, 401, reason);
  };
  return route(
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
        answer.error(
          429,
          "Too many failed sign-ins from this address.",
          "Too many failed sign-ins: try again in 42 s",
          "Error",
          answer.RETRY_AFTER,
        ),
      ],
    },
    async (req, res) => {
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
      const request = field.parsed(res, () => field.readFields(FIELDS, field.readBody(body)));
      if (request === undefined) return;
      if (sessions === undefined) return sendJson(res, 200, shown(undefined));
      let { by = null } = request.value;
      if (!byHeaders) {
        const { code } = request.value;
        const missing = auth?.kind === "hmac" ? "a signature does not sign in" : `missing ${headerName} header`;
        if (code === undefined) return refuse(res, address, `${missing}, and there is no one-time code`);
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

export const signOut = ({ sessions, limits, log, audit, shown }: Console) =>
  route(
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
