import { send, TEXT_TYPE } from "../exchange.ts";
import { plain } from "../openapi/answers.ts";
import { route } from "../routes.ts";

const RUNNING = "Service is running!";

export const root = route(
  "root",
  {
    summary: "Show that the service runs",
    description: "Checks nothing.",
    answers: [plain("The service runs.", TEXT_TYPE, { const: RUNNING })],
  },
  async (_req, res) => send(res, 200, TEXT_TYPE, RUNNING),
);
