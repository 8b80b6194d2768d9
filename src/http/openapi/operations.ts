import type { COUNTERS } from "../../ports/operationsStore.ts";
import { MOST_LISTED, MOST_MINUTES } from "../admin/operations.ts";
import type { Access } from "../credentials.ts";
import { ERRORS } from "../respond.ts";
import { error, json, type RouteDescription, STORAGE_FAILED, unauthorized } from "./answers.ts";
import { count, nullable, object, parameter, STORABLE, TEXT, TEXT_OR_NULL, TIME_OR_NULL, UUID } from "./schemas.ts";
import type { Schema } from "./types.ts";

const list = (items: Schema): Schema => ({ type: "array", items });
const COUNT_OR_NULL = nullable("integer", { minimum: 0 });
const MS_OR_NULL = nullable("number", { minimum: 0 });
const LIMIT = parameter("query", "limit", "Most of them; 50 by default.", {
  type: "integer",
  minimum: 1,
  maximum: MOST_LISTED,
});
const TIME = { type: "string", format: "date-time" } as const;
const INVALID_QUERY = error(
  400,
  "A query parameter is not valid.",
  "InvalidRequest",
  'Invalid request: the query parameter "limit": ...',
);

const minutes = (counters: readonly (typeof COUNTERS)[number][]): Schema => ({
  type: ["array", "null"],
  description: "Oldest first, without minutes in which nothing was counted; null where the figures cannot be read.",
  items: object({ at: TIME, ...Object.fromEntries(counters.map((counter) => [counter, count("In this minute.")])) }),
});

const REPLICA: Schema = object({
  name: TEXT,
  version: TEXT,
  roles: list(TEXT),
  startedAt: TIME_OR_NULL,
  seenAt: TIME_OR_NULL,
});

const OVERVIEW: Schema = object({
  at: TIME,
  relayEnabled: { type: "boolean", description: "`inbox.relay.enabled` of this process." },
  roles: {
    type: ["object", "null"],
    description: "By role, how many replicas of it are alive.",
    additionalProperties: object({ replicas: count("Seen within the last minute.") }),
  },
  replicas: { ...list(REPLICA), type: ["array", "null"], description: "Processes seen within the last minute." },
  sources: list(
    object({
      name: TEXT,
      consumption: { enum: ["push", "pull"] },
      pending: { ...COUNT_OR_NULL, description: "Rows that wait in the inbox, among the oldest 50,000." },
      oldestAgeMs: MS_OR_NULL,
      minutes: minutes(["received", "duplicate", "filtered", "dead"]),
    }),
  ),
  destinations: list({
    type: "object",
    description: "As `GET /admin/destinations`, with figures.",
    required: ["name", "state", "backlog", "dead", "parked", "minutes"],
    properties: {
      name: TEXT,
      state: TEXT,
      backlog: COUNT_OR_NULL,
      inFlight: COUNT_OR_NULL,
      blockedKeys: COUNT_OR_NULL,
      dead: { ...COUNT_OR_NULL, description: "Among the 5,000 rows that died last." },
      parked: { ...COUNT_OR_NULL, description: "Among the first 2,000 parked rows." },
      minutes: minutes(["sent", "failed", "dead"]),
    },
  }),
  outbox: {
    ...object({
      pending: count("Rows that wait."),
      oldestAgeMs: MS_OR_NULL,
      parked: count("Parked rows."),
      blockedKeys: count("Keys whose first row waits for its retry, or is parked."),
      dead: { ...COUNT_OR_NULL, description: "5,000 means that many or more." },
      asOf: { ...TIME, description: "When the backlog was counted." },
      destinationsAsOf: { ...TIME_OR_NULL, description: "When it was counted by destination; null: not yet." },
    }),
    type: ["object", "null"],
  },
});

const FAILURES: Schema = object({
  groups: list(
    object({
      state: { enum: ["dead", "parked"] },
      destination: TEXT_OR_NULL,
      reason: { ...TEXT_OR_NULL, description: "That of the newest row." },
      count: count("Rows."),
      newestAt: TIME_OR_NULL,
      oldestAt: TIME_OR_NULL,
      ids: { ...list(UUID), description: "Of the newest five." },
    }),
  ),
  rowsRead: count("Rows that were read."),
  isComplete: { type: "boolean", description: "False: there are more rows than were read." },
});

const BLOCKED_KEYS: Schema = object({
  keys: list(
    object({
      key: TEXT,
      id: { ...UUID, description: "Of the row that blocks it." },
      topic: TEXT_OR_NULL,
      destination: TEXT_OR_NULL,
      state: { enum: ["retry", "parked"] },
      attempt: count("Failed attempts of that row."),
      dueAt: TIME_OR_NULL,
      lastError: TEXT_OR_NULL,
      rowsBehind: count("Rows that wait behind it; 1,000 means that many or more."),
    }),
  ),
});

const AUDIT: Schema = object({
  entries: list(
    object({ id: TEXT, at: TIME_OR_NULL, actor: TEXT, action: TEXT, target: TEXT_OR_NULL, detail: TEXT_OR_NULL }),
  ),
  cursor: TEXT_OR_NULL,
});

const AT = "2025-01-31T12:00:00.000Z";

/** Describes the routes that show the whole installation. */
export function describeOperations(access: Access | undefined) {
  const always = [...unauthorized(access), STORAGE_FAILED];
  const overview: RouteDescription = {
    summary: "Show the whole installation at a glance",
    description:
      "Replicas alive, backlog and figures by the minute. What takes long to count is counted in the background.",
    access,
    parameters: [
      parameter("query", "minutes", "How many minutes of figures; 60 by default.", {
        type: "integer",
        minimum: 1,
        maximum: MOST_MINUTES,
      }),
    ],
    answers: [
      json(200, "The overview.", OVERVIEW, {
        at: AT,
        relayEnabled: true,
        roles: { poller: { replicas: 1 } },
        replicas: [{ name: "relay-7f9c-1", version: "1.0.0", roles: ["poller"], startedAt: AT, seenAt: AT }],
        sources: [],
        destinations: [],
        outbox: {
          pending: 3,
          oldestAgeMs: 40,
          parked: 0,
          blockedKeys: 1,
          dead: 0,
          asOf: AT,
          destinationsAsOf: AT,
        },
      }),
      INVALID_QUERY,
      ...always,
    ],
  };
  const failures: RouteDescription = {
    summary: "Show dead and parked rows by reason",
    description:
      "Of the rows that died last, and the first parked ones: rows whose reasons differ in numbers and ids only are one group.",
    access,
    parameters: [
      parameter("query", "state", "Only dead or only parked rows.", { enum: ["dead", "parked"] }),
      parameter("query", "destination", "Only rows that the routes send to this destination.", {
        type: "string",
        pattern: STORABLE,
      }),
      LIMIT,
    ],
    answers: [
      json(200, "The groups, the largest first.", FAILURES, { groups: [], rowsRead: 0, isComplete: true }),
      INVALID_QUERY,
      ...always,
    ],
  };
  const blockedKeys: RouteDescription = {
    summary: "Show the keys that wait behind a failed row",
    description: "Those whose retry is due first, then those behind parked rows.",
    access,
    parameters: [LIMIT],
    answers: [json(200, "The keys.", BLOCKED_KEYS, { keys: [] }), INVALID_QUERY, ...always],
  };
  const audit: RouteDescription = {
    summary: "Show what operators did",
    description: "Newest first, of the last 90 days.",
    access,
    parameters: [
      LIMIT,
      parameter("query", "cursor", "The `cursor` of the page before.", { type: "string", pattern: "^[0-9]{1,18}$" }),
    ],
    answers: [
      json(200, "A page of entries.", AUDIT, { entries: [], cursor: null }),
      INVALID_QUERY,
      error(501, "The table of the audit log cannot be read.", "Error", ERRORS.noAuditTable),
      ...always,
    ],
  };
  return { overview, failures, blockedKeys, audit };
}
