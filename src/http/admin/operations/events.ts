import { ERRORS } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { route } from "../../routes.ts";
import type { Admin } from "../operation.ts";

export const followEvents = ({ access, guard, events }: Admin) =>
  route(
    "admin_events",
    {
      summary: "Follow the overview",
      description:
        "Server-sent events: `overview` with the answer of `GET /admin/overview`, at once and every few seconds; `unavailable` " +
        "while the database does not answer. A comment every 15 seconds keeps the connection open.",
      access,
      answers: [
        answer.plain("The events, until the client or the service ends them.", "text/event-stream; charset=utf-8"),
        answer.error(503, "Too many clients follow.", ERRORS.tooManyFollowers, "Error", answer.RETRY_AFTER),
      ],
    },
    guard(async ({ isAdmitted }, res) => events.follow(res, isAdmitted)),
  );
