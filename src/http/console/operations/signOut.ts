import { admit, ERRORS, sendError, sendJson } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { exampleOf } from "../../openapi/schemas.ts";
import { route } from "../../routes.ts";
import { type Console, SESSION } from "../operation.ts";
import { crossSiteRefusal } from "../origin.ts";

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
