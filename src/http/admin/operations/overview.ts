import { BLOCKED_KEY, FAILURES, OVERVIEW } from "../../../core/operations/shown.ts";
import { choice, numberUpTo, STORABLE, type Syntax } from "../../../core/operations/syntax.ts";
import * as schema from "../../../model/described.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { httpRoute } from "../../routes.ts";
import { type Admin, LIMIT, LISTED_BY_DEFAULT, onTable } from "../operation.ts";

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
  httpRoute(
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

export const showFailures = ({ read, overview }: Admin) =>
  read("admin_failures", {
    summary: "Show dead and parked rows by reason",
    description:
      "Of the rows that died last, and the first parked ones: rows whose reasons differ in numbers and ids only are one group.",
    query: {
      state: field.inQuery(choice(["dead", "parked"] as const), "Only dead or only parked rows."),
      destination: field.inQuery(STORABLE, "Only rows that the routes send to this destination."),
      limit: LIMIT,
    },
    answers: answer.queried(answer.json(200, "The groups, the largest first.", schema.fromCells(FAILURES))),
    async work({ limit = LISTED_BY_DEFAULT, ...filter }) {
      const { groups, ...rest } = await overview.failures(filter);
      return { groups: groups.slice(0, limit), ...rest };
    },
  });

export const showBlockedKeys = ({ read, overview }: Admin) =>
  read("admin_blocked_keys", {
    summary: "Show the keys that wait behind a failed row",
    description: "Keys whose retry is due first, then keys behind parked rows.",
    query: { limit: LIMIT },
    answers: answer.queried(answer.json(200, "The keys.", schema.fromCells({ keys: [schema.list(BLOCKED_KEY), []] }))),
    work: async ({ limit = LISTED_BY_DEFAULT }) => ({ keys: await overview.blockedKeys(limit) }),
  });

const { TEXT, TEXT_OR_NULL, TIME_OR_NULL } = schema;

const ENTRY = schema.object({
  id: TEXT,
  at: TIME_OR_NULL,
  actor: TEXT,
  action: TEXT,
  target: TEXT_OR_NULL,
  detail: TEXT_OR_NULL,
});

const CURSOR_FORM = /^[0-9]{1,18}$/;

const CURSOR: Syntax<string> = {
  parse(text) {
    if (CURSOR_FORM.test(text)) return text;
    throw new Error("the cursor of an answer, unchanged, is expected");
  },
  schema: { type: "string", pattern: CURSOR_FORM.source },
};

export const showAudit = ({ read, operations }: Admin) =>
  read("admin_audit", {
    summary: "Show what operators did",
    description: "Newest first, of the last 90 days.",
    query: { limit: LIMIT, cursor: field.inQuery(CURSOR, "The `cursor` of the page before.") },
    answers: answer.queried(
      answer.json(
        200,
        "A page of entries.",
        schema.fromCells({ entries: [schema.list(ENTRY), []], cursor: TEXT_OR_NULL }),
      ),
      answer.error(501, "The table of the audit log cannot be read.", ERRORS.noAuditTable),
    ),
    work: ({ cursor, limit = LISTED_BY_DEFAULT }) =>
      onTable(ERRORS.noAuditTable, async () => {
        const entries = await operations.audit(cursor ?? null, limit);
        return { entries, cursor: entries.length < limit ? null : (entries.at(-1)?.id ?? null) };
      }),
  });

export const showConfig = ({ operation, configText }: Admin) =>
  operation("admin_config", {
    summary: "Show the configuration in effect",
    description: "As `svc config print` shows it: YAML with the origin of each value, secrets masked.",
    answers: [
      answer.json(
        200,
        "The configuration of this process.",
        schema.object({ text: [schema.TEXT, "server:\n  httpPort: 8080  # svc.yml:3\n"] }),
      ),
    ],
    work: async () => ({ text: configText }),
  });
