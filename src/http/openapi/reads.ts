import { MESSAGE_STATES } from "../../core/trace/trace.ts";
import type { Counter } from "../../ports/operationsStore.ts";
import { AUDIT_QUERY, FAILURES_QUERY, LIMIT_QUERY, MESSAGES_QUERY, OVERVIEW_QUERY } from "../admin/reads.ts";
import { ERRORS } from "../exchange.ts";
import { error, inPath, json, plain, queried, RETRY_AFTER, STORAGE_FAILED } from "./answers.ts";
import {
  bool,
  count,
  countOrNull,
  exampleOf,
  fromCells,
  inCell,
  integer,
  list,
  nullable,
  object,
  openObject,
  TEXT,
  TEXT_OR_NULL,
  TIME,
  TIME_OR_NULL,
  text,
  UUID,
} from "./schemas.ts";
import type { Schema } from "./types.ts";

const AT = "2025-01-31T12:00:00.000Z";
const ID = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";
const REASON = "POST https://billing.example/hook was answered 503: not today";

const COUNT_OR_NULL = nullable("integer", { minimum: 0 });
const MS_OR_NULL = nullable("number", { minimum: 0 });

const minutes = (...counters: readonly Counter[]): Schema => ({
  type: ["array", "null"],
  description: "Oldest first, without minutes in which nothing was counted; null where the figures cannot be read.",
  items: object({ at: TIME, ...Object.fromEntries(counters.map((counter) => [counter, count("In this minute.")])) }),
});

const REPLICA = object({
  name: [TEXT, "relay-7f9c-1"],
  version: [TEXT, "1.0.0"],
  roles: [list(TEXT), ["poller"]],
  startedAt: [TIME_OR_NULL, AT],
  seenAt: [TIME_OR_NULL, AT],
});

const SOURCE = object({
  name: TEXT,
  consumption: { enum: ["push", "pull"] },
  pending: countOrNull("Rows that wait in the inbox, among the oldest 50,000."),
  oldestAgeMs: MS_OR_NULL,
  minutes: minutes("received", "duplicate", "filtered", "dead"),
});

const DESTINATION = openObject(
  {
    name: TEXT,
    state: TEXT,
    backlog: COUNT_OR_NULL,
    inFlight: COUNT_OR_NULL,
    blockedKeys: COUNT_OR_NULL,
    dead: countOrNull("Among the 2,000 rows that died last."),
    parked: countOrNull("Among the first 2,000 parked rows."),
    minutes: minutes("sent", "failed", "dead"),
  },
  ["name", "state", "backlog", "dead", "parked", "minutes"],
  "As `GET /admin/destinations`, with figures.",
);

const OUTBOX = object({
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
  additionalProperties: object({ replicas: count("Seen within the last minute.") }),
};

const CELL = object({
  name: TEXT,
  awaySince: { ...TIME_OR_NULL, description: "Null while it answers." },
  reason: nullable("string", "Why it does not answer."),
});

const OVERVIEW = openObject(
  {
    at: [TIME, AT],
    relayEnabled: [bool("`inbox.relay.enabled` of this process."), true],
    roles: [ROLES, { poller: { replicas: 1 } }],
    replicas: [
      { ...list(REPLICA, "Processes seen within the last minute."), type: ["array", "null"] },
      [exampleOf(REPLICA)],
    ],
    sources: [list(SOURCE), []],
    destinations: [list(DESTINATION), []],
    outbox: { ...OUTBOX, type: ["object", "null"] },
    cells: [list(CELL, "With cells: every configured one. The figures are of those that answer."), undefined],
  },
  ["at", "relayEnabled", "roles", "replicas", "sources", "destinations", "outbox"],
  { additionalProperties: false },
);

const FAILURES = object({
  state: { enum: ["dead", "parked"] },
  destination: TEXT_OR_NULL,
  reason: nullable("string", "That of the newest row."),
  count: count("Rows."),
  newestAt: TIME_OR_NULL,
  oldestAt: TIME_OR_NULL,
  ids: list(UUID, "Of the newest five."),
});

const BLOCKED_KEY = inCell({
  key: TEXT,
  id: { ...UUID, description: "Of the row that blocks it." },
  topic: TEXT_OR_NULL,
  destination: TEXT_OR_NULL,
  state: { enum: ["retry", "parked"] },
  attempt: count("Failed attempts of that row."),
  dueAt: TIME_OR_NULL,
  lastError: TEXT_OR_NULL,
  rowsBehind: count("Rows that wait behind it; 1,000 means that many or more."),
});

const AUDIT_ENTRY = object({
  id: TEXT,
  at: TIME_OR_NULL,
  actor: TEXT,
  action: TEXT,
  target: TEXT_OR_NULL,
  detail: TEXT_OR_NULL,
});

const FOUND_MESSAGE = inCell({
  id: [UUID, ID],
  table: [{ enum: ["inbox", "outbox"], description: "Where the row is that is shown." }, "outbox"],
  createdAt: [TIME_OR_NULL, AT],
  source: nullable("string", "Null for outbox rows in a page."),
  topic: [nullable("string", "The topic, or the event type of an inbox row."), "orders.created"],
  key: [nullable("string", "The key, or the aggregate id of an inbox row."), "order-17"],
  state: [{ enum: MESSAGE_STATES }, "dead"],
  attempt: [integer("Failed attempts."), 5],
  lastError: [nullable("string", "Its beginning; null where `admin.redactPayloadPaths` hides fields."), REASON],
});

const FILTERED_MESSAGE = inCell({
  at: TIME,
  source: TEXT,
  idempotencyKey: nullable("string", "Null where it is not known."),
  correlationId: nullable("string", "Null where the sender gave none."),
  replica: TEXT,
});

const FILTERED =
  "With `idempotencyKey` or `correlationId`, on the first page: messages of the last 24 hours that a source's filter dropped, newest first, 20 at most.";

const MESSAGE_PAGE = fromCells(
  { messages: list(FOUND_MESSAGE), cursor: TEXT_OR_NULL },
  { filtered: [list(FILTERED_MESSAGE, FILTERED), undefined] },
);

const EVENTS = [
  ...["received", "duplicate", "created", "relayed", "died in the inbox"],
  ...["sent", "retry", "park", "dead", "replayed", "retried", "discarded"],
];

const EVENT = openObject(
  {
    at: [TIME_OR_NULL, "2025-01-31T12:00:01.000Z"],
    event: [{ enum: EVENTS }, "retry"],
    text: [TEXT, "failed, to be tried again"],
    attempt: [integer("1 for the first."), 1],
    actor: [text("The replica of an attempt, the operator of an action."), "relay-7f9c-1"],
    destination: [TEXT, "billing"],
    code: [text("Why it failed, such as `status_5xx` or `timeout`."), "status_5xx"],
    status: [text("The receiver's own code, such as an HTTP status."), "503"],
    durationMs: [{ type: "integer" }, 41],
    reason: [text("With the beginning of the receiver's answer."), REASON],
  },
  ["at", "event", "text"],
);

const RECEIVED = { at: AT, event: "received", text: "received from orders, idempotency key order-17" };

const WAIT = object({
  code: [TEXT, "retry"],
  text: [TEXT, "failed 1 of 5 times: due at 2025-01-31T12:00:03.120Z"],
});

const DUPLICATES =
  "How often it was received again in the last 24 hours, up to 1000; `events` has the newest 20. Null: not known.";

const TIMELINE = fromCells(
  {
    id: [UUID, ID],
    state: [{ enum: [...MESSAGE_STATES, "parked"] }, "pending"],
    source: [TEXT_OR_NULL, "orders"],
    idempotencyKey: [TEXT_OR_NULL, "order-17"],
    correlationId: [TEXT_OR_NULL, "c-17"],
    topic: [TEXT_OR_NULL, "orders.created"],
    key: [TEXT_OR_NULL, "order-17"],
    destination: [nullable("string", "By the routes of this process."), "billing"],
    attempts: [integer("Failed attempts."), 1],
    maxAttempts: [nullable("integer"), 5],
    lastError: [TEXT_OR_NULL, REASON],
    waits: list(WAIT, "Why it is not delivered yet, the first reason to look at first; empty for a finished message."),
    events: [list(EVENT, "Oldest first."), [RECEIVED, exampleOf(EVENT)]],
    hasHistory: [bool("False: attempts and actions are missing, their table cannot be read."), true],
    duplicates: [nullable("integer", DUPLICATES), 0],
  },
  { cell: [text("With cells: the one that has its outbox row, else its inbox row."), undefined] },
);

/** What the admin routes show: messages, the whole installation, what operators did, the configuration. */
export const READS = {
  admin_messages: queried(
    "Find messages",
    "Messages that match every parameter, newest first. One request reads for about a third of a second: a page may have fewer " +
      "messages than `limit`, or none, and still a `cursor` with which the search goes on.",
    MESSAGES_QUERY,
    json(200, "A page of messages.", MESSAGE_PAGE),
    error(404, "The cursor is not that of a page.", ERRORS.noCursor),
  ),
  admin_message: {
    summary: "Show what happened to a message, and why it waits",
    description:
      "With `admin.showPayloads` also its `payload`, a text (null where fields are hidden in what is not JSON), and its " +
      "`headers`. Secrets and the fields of `admin.redactPayloadPaths` are masked in every text.",
    parameters: [inPath("id", "Id of the message.", UUID)],
    answers: [json(200, "The message.", TIMELINE), error(404, "No such message.", ERRORS.noMessage), STORAGE_FAILED],
  },
  admin_overview: queried(
    "Show the whole installation at a glance",
    "Replicas alive, backlog and figures by the minute. What takes long to count is counted in the background.",
    OVERVIEW_QUERY,
    json(200, "The overview.", OVERVIEW),
  ),
  admin_failures: queried(
    "Show dead and parked rows by reason",
    "Of the rows that died last, and the first parked ones: rows whose reasons differ in numbers and ids only are one group.",
    FAILURES_QUERY,
    json(
      200,
      "The groups, the largest first.",
      fromCells({
        groups: [list(FAILURES), []],
        rowsRead: [count("Rows that were read."), 0],
        isComplete: [bool("False: there are more rows than were read."), true],
      }),
    ),
  ),
  admin_blocked_keys: queried(
    "Show the keys that wait behind a failed row",
    "Those whose retry is due first, then those behind parked rows.",
    LIMIT_QUERY,
    json(200, "The keys.", fromCells({ keys: [list(BLOCKED_KEY), []] })),
  ),
  admin_audit: queried(
    "Show what operators did",
    "Newest first, of the last 90 days.",
    AUDIT_QUERY,
    json(200, "A page of entries.", fromCells({ entries: [list(AUDIT_ENTRY), []], cursor: TEXT_OR_NULL })),
    error(404, "The cursor is not that of a page.", ERRORS.noCursor),
    error(501, "The table of the audit log cannot be read.", ERRORS.noAuditTable),
  ),
  admin_config: {
    summary: "Show the configuration in effect",
    description: "As `svc config print` shows it: YAML with the origin of each value, secrets masked.",
    answers: [
      json(
        200,
        "The configuration of this process.",
        object({ text: [TEXT, "server:\n  httpPort: 8080  # svc.yml:3\n"] }),
      ),
    ],
  },
  admin_events: {
    summary: "Follow the overview",
    description:
      "Server-sent events: `overview` with the answer of `GET /admin/overview`, at once and every few seconds; `unavailable` " +
      "while the database does not answer. A comment every 15 seconds keeps the connection open.",
    answers: [
      plain("The events, until the client or the service ends them.", "text/event-stream; charset=utf-8"),
      error(503, "Too many clients follow.", ERRORS.tooManyFollowers, "Error", RETRY_AFTER),
    ],
  },
};
