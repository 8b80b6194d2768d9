import { LIVENESS } from "../../core/health.ts";
import { sendJson } from "../exchange.ts";
import { json } from "../openapi/answers.ts";
import { named, object } from "../openapi/schemas.ts";
import { route } from "../routes.ts";

const SCHEMA = named(
  "Liveness",
  object({
    status: { const: "healthy" },
    components: object({ process: object({ status: { const: "up" } }) }),
  }),
);

export const live = route(
  "health_live",
  {
    summary: "Show that the process is alive",
    description: "For a liveness probe. Touches no dependency, so that an unreachable database restarts nothing.",
    answers: [json(200, "The process answers.", SCHEMA, LIVENESS)],
  },
  async (_req, res) => sendJson(res, 200, LIVENESS),
);
