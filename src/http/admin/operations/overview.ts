import { numberUpTo } from "../../../core/operations/syntax.ts";
import { REFUSALS } from "../../../model/refusals.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import type { Schema } from "../../openapi/types.ts";
import { route } from "../../routes.ts";
import type { Admin } from "../operation.ts";

const { AT, count, countOrNull, nullable, TEXT, TIME, TIME_OR_NULL } = schema;

const COUNT_OR_NULL = nullable("integer", { minimum: 0 });
const MS_OR_NULL = nullable("number", { minimum: 0 });

const minutes = (...counters: readonly string[]): Schema => ({
  type: ["array", "null"],
  description: "Oldest first, without minutes in which nothing was counted; null where the figures cannot be read.",
  items: schema.object({
    at: TIME,
    ...Object.fromEntries(counters.map((counter) => [counter, count("In this minute.")])),
  }),
});

const REPLICA = schema.object({
  name: [TEXT, "relay-7f9c-1"],
  version: [TEXT, "1.0.0"],
  roles: [schema.list(TEXT), ["poller"]],
  startedAt: [TIME_OR_NULL, AT],
  seenAt: [TIME_OR_NULL, AT],
  clockAheadMs: [
    { type: "number", description: "How far its clock is ahead of the database's; 0 for less than two seconds." },
    0,
  ],
});

const SOURCE = schema.object({
  name: TEXT,
  consumption: { enum: ["push", "pull"] },
  pending: countOrNull("Rows that wait in the inbox, among the oldest 50,000."),
  oldestAgeMs: MS_OR_NULL,
  refusals: {
    type: ["object", "null"],
    description: "What senders were answered in these minutes, by reason.",
    propertyNames: { enum: REFUSALS },
    additionalProperties: count("Answers for this reason."),
  },
  withoutAggregateId: countOrNull("Messages of these minutes without a value for the configured aggregate id."),
  minutes: minutes("received", "duplicate", "filtered", "dead", "refused"),
});

const DESTINATION = schema.openObject(
  {
    name: TEXT,
    state: TEXT,
    backlog: COUNT_OR_NULL,
    inFlight: COUNT_OR_NULL,
    blockedKeys: COUNT_OR_NULL,
    dead: countOrNull("Among the 2,000 rows that died last."),
    lastDiedAt: TIME_OR_NULL,
    parked: COUNT_OR_NULL,
    minutes: minutes("sent", "failed", "dead"),
  },
  ["name", "state", "backlog", "dead", "parked", "minutes"],
  "As `GET /admin/destinations`, with figures.",
);

const UNROUTED = schema.object({
  dead: [count("Among the 2,000 rows that died last."), 0],
  parked: [count("Among the first 2,000 parked rows."), 0],
  lastDiedAt: [TIME_OR_NULL, null],
  topics: [schema.list(TEXT, "At most three, those of the newest rows."), []],
});

const OUTBOX = schema.object({
  pending: [count("Rows that wait."), 3],
  oldestAgeMs: [MS_OR_NULL, 40],
  parked: [count("Parked rows."), 0],
  blockedKeys: [count("Keys whose first row waits for its retry, or is parked."), 1],
  dead: [countOrNull("2,000 means that many or more."), 0],
  asOf: [{ ...TIME, description: "When the backlog was counted." }, AT],
  destinationsAsOf: [{ ...TIME_OR_NULL, description: "When it was counted by destination; null: not yet." }, AT],
});

const ROLES = {
  type: ["object", "null"],
  description: "By role, how many replicas of it are alive.",
  additionalProperties: schema.object({ replicas: count("Seen within the last minute.") }),
};

const CELL = schema.object({
  name: TEXT,
  awaySince: { ...TIME_OR_NULL, description: "Null while it answers." },
  reason: nullable("string", "Why it does not answer."),
});

const PROBLEM = schema.object({
  text: TEXT,
  reason: nullable("string", "The end of the sentence, in the words of a receiver, a database or an operator."),
  destination: nullable("string", "The destination that it is about."),
});

const OVERVIEW = schema.openObject(
  {
    at: [TIME, AT],
    problems: [schema.list(PROBLEM, "What to look at first, as `svc status` shows it."), []],
    relayEnabled: [schema.bool("`inbox.relay.enabled` of this process."), true],
    roles: [ROLES, { poller: { replicas: 1 } }],
    replicas: [
      { ...schema.list(REPLICA, "Processes seen within the last minute."), type: ["array", "null"] },
      [schema.exampleOf(REPLICA)],
    ],
    sources: [schema.list(SOURCE), []],
    destinations: [schema.list(DESTINATION), []],
    unrouted: { ...UNROUTED, description: "Rows that no route takes to a destination." },
    outbox: { ...OUTBOX, type: ["object", "null"] },
    cells: [schema.list(CELL, "With cells: every configured one. The figures are of those that answer."), undefined],
  },
  ["at", "problems", "relayEnabled", "roles", "replicas", "sources", "destinations", "unrouted", "outbox"],
  { additionalProperties: false },
);

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
