import { OVERVIEW } from "../../../core/operations/shown.ts";
import { numberUpTo } from "../../../core/operations/syntax.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { route } from "../../routes.ts";
import type { Admin } from "../operation.ts";

const MINUTES_BY_DEFAULT = 60;

export const showOverview = ({ read, overview }: Admin) =>
  read("admin_overview", {
    summary: "Show the whole installation at a glance",
    description:
      "Replicas alive, backlog and figures by the minute. What takes long to count is counted in the background.",
    query: {
      minutes: field.inQuery(numberUpTo(1440), `How many minutes of figures; ${MINUTES_BY_DEFAULT} by default.`),
    },
    answers: answer.queried(answer.json(200, "The overview.", OVERVIEW)),
    namesCells: true,
    work: ({ minutes = MINUTES_BY_DEFAULT }) => overview.read(minutes),
  });

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
