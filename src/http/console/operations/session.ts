import { sendError, sendJson } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { route } from "../../routes.ts";
import { type Console, CROSS_SITE, SESSION } from "../operation.ts";
import { crossSiteRefusal, foreignHostRefusal } from "../origin.ts";

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
