import { MESSAGE_STATES, MOST_MESSAGES } from "../../core/trace/trace.ts";
import type { Access } from "../credentials.ts";
import { ERRORS } from "../respond.ts";
import { error, json, type RouteDescription, STORAGE_FAILED, unauthorized } from "./answers.ts";
import { nullable, object, parameter, STORABLE, TEXT, TEXT_OR_NULL, TIME_OR_NULL, UUID } from "./schemas.ts";
import type { Schema } from "./types.ts";

const ID = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";

const MESSAGES_QUERY = [
  parameter("query", "id", "Only the message of this id.", UUID),
  parameter("query", "idempotencyKey", "Only messages received under this key.", { type: "string", pattern: STORABLE }),
  parameter("query", "source", "Only messages received from this source.", { type: "string", pattern: STORABLE }),
  parameter("query", "correlationId", "Only messages of this correlation id.", { type: "string", pattern: STORABLE }),
  parameter("query", "key", "Only rows of this key, or aggregate id.", { type: "string", pattern: STORABLE }),
  parameter("query", "topic", "Only outbox rows of this topic.", { type: "string", pattern: STORABLE }),
  parameter("query", "destination", "Only outbox rows that the routes send to this destination.", {
    type: "string",
    pattern: STORABLE,
  }),
  parameter("query", "state", "Only rows in this state; `processed` is of the inbox.", { enum: MESSAGE_STATES }),
  parameter("query", "createdAfter", "Only rows created after this instant.", { type: "string", format: "date-time" }),
  parameter("query", "createdBefore", "Only rows created before this instant.", {
    type: "string",
    format: "date-time",
  }),
  parameter("query", "cursor", "The `cursor` of the page before.", { type: "string", pattern: STORABLE }),
  parameter("query", "limit", "Most messages; 50 by default.", { type: "integer", minimum: 1, maximum: MOST_MESSAGES }),
];

const FOUND_MESSAGE = object({
  id: UUID,
  table: { enum: ["inbox", "outbox"], description: "Where the row is that is shown." },
  createdAt: TIME_OR_NULL,
  source: { ...TEXT_OR_NULL, description: "Null for outbox rows in a page." },
  topic: { ...TEXT_OR_NULL, description: "The topic, or the event type of an inbox row." },
  key: { ...TEXT_OR_NULL, description: "The key, or the aggregate id of an inbox row." },
  state: { enum: MESSAGE_STATES },
  attempt: { type: "integer", description: "Failed attempts." },
  lastError: { ...TEXT_OR_NULL, description: "Its beginning; null where `admin.redactPayloadPaths` hides fields." },
});

const PAGE: Schema = {
  type: "object",
  additionalProperties: false,
  required: ["messages", "cursor"],
  properties: {
    messages: { type: "array", items: FOUND_MESSAGE },
    cursor: TEXT_OR_NULL,
    filtered: {
      type: "array",
      description:
        "With `idempotencyKey` or `correlationId`, on the first page: messages of the last 24 hours that a source's filter dropped, newest first, 20 at most.",
      items: object({
        at: { type: "string", format: "date-time" },
        source: TEXT,
        idempotencyKey: { ...TEXT_OR_NULL, description: "Null where it is not known." },
        correlationId: { ...TEXT_OR_NULL, description: "Null where the sender gave none." },
        replica: TEXT,
      }),
    },
  },
};

const EVENT: Schema = {
  type: "object",
  required: ["at", "event", "text"],
  properties: {
    at: TIME_OR_NULL,
    event: {
      enum: [
        ...["received", "duplicate", "created", "relayed", "died in the inbox"],
        ...["sent", "retry", "park", "dead", "replayed", "retried", "discarded"],
      ],
    },
    text: TEXT,
    attempt: { type: "integer", description: "1 for the first." },
    actor: { type: "string", description: "The replica of an attempt, the operator of an action." },
    destination: TEXT,
    code: { type: "string", description: "Why it failed, such as `status_5xx` or `timeout`." },
    status: { type: "string", description: "The receiver's own code, such as an HTTP status." },
    durationMs: { type: "integer" },
    reason: { type: "string", description: "With the beginning of the receiver's answer." },
  },
};

const TIMELINE: Schema = {
  ...object({
    id: UUID,
    state: { enum: [...MESSAGE_STATES, "parked"] },
    source: TEXT_OR_NULL,
    idempotencyKey: TEXT_OR_NULL,
    correlationId: TEXT_OR_NULL,
    topic: TEXT_OR_NULL,
    key: TEXT_OR_NULL,
    destination: { ...TEXT_OR_NULL, description: "By the routes of this process." },
    attempts: { type: "integer", description: "Failed attempts." },
    maxAttempts: nullable("integer", {}),
    lastError: TEXT_OR_NULL,
    waits: {
      type: "array",
      description: "Why it is not delivered yet, the first reason to look at first; empty for a finished message.",
      items: object({ code: TEXT, text: TEXT }),
    },
    events: { type: "array", description: "Oldest first.", items: EVENT },
    hasHistory: {
      type: "boolean",
      description: "False: attempts and actions are missing, their table cannot be read.",
    },
    duplicates: nullable("integer", {
      description:
        "How often it was received again in the last 24 hours, up to 1000; `events` has the newest 20. Null: not known.",
    }),
  }),
};

const EVENT_EXAMPLE = {
  at: "2025-01-31T12:00:01.000Z",
  event: "retry",
  text: "failed, to be tried again",
  attempt: 1,
  actor: "relay-7f9c-1",
  destination: "billing",
  code: "status_5xx",
  status: "503",
  durationMs: 41,
  reason: "POST https://billing.example/hook was answered 503: not today",
};

const TIMELINE_EXAMPLE = {
  id: ID,
  state: "pending",
  source: "orders",
  idempotencyKey: "order-17",
  correlationId: "c-17",
  topic: "orders.created",
  key: "order-17",
  destination: "billing",
  attempts: 1,
  maxAttempts: 5,
  lastError: EVENT_EXAMPLE.reason,
  waits: [{ code: "retry", text: "failed 1 of 5 times: due at 2025-01-31T12:00:03.120Z" }],
  events: [
    { at: "2025-01-31T12:00:00.000Z", event: "received", text: "received from orders, idempotency key order-17" },
    EVENT_EXAMPLE,
  ],
  hasHistory: true,
  duplicates: 0,
};

const FOUND_EXAMPLE = {
  id: ID,
  table: "outbox",
  createdAt: "2025-01-31T12:00:00.000Z",
  source: null,
  topic: "orders.created",
  key: "order-17",
  state: "dead",
  attempt: 5,
  lastError: "POST https://billing.example/hook was answered 503: not today",
};

/** Describes the routes that find messages and show what happened to one. */
export function describeMessages(access: Access | undefined) {
  const list: RouteDescription = {
    summary: "Find messages",
    description:
      "Messages that match every parameter, newest first. One request reads for about a third of a second: a page may have fewer " +
      "messages than `limit`, or none, and still a `cursor` with which the search goes on.",
    access,
    parameters: MESSAGES_QUERY,
    answers: [
      json(200, "A page of messages.", PAGE, { messages: [FOUND_EXAMPLE], cursor: null }),
      error(
        400,
        "A query parameter is not valid.",
        "InvalidRequest",
        'Invalid request: the query parameter "limit": ...',
      ),
      error(404, "The cursor is not that of a page.", "Error", ERRORS.noCursor),
      ...unauthorized(access),
      STORAGE_FAILED,
    ],
  };
  const show: RouteDescription = {
    summary: "Show what happened to a message, and why it waits",
    description:
      "With `admin.showPayloads` also its `payload`, a text (null where fields are hidden in what is not JSON), and its " +
      "`headers`. Secrets and the fields of `admin.redactPayloadPaths` are masked in every text.",
    access,
    parameters: [parameter("path", "id", "Id of the message.", UUID)],
    answers: [
      json(200, "The message.", TIMELINE, TIMELINE_EXAMPLE),
      error(404, "No such message.", "Error", ERRORS.noMessage),
      ...unauthorized(access),
      STORAGE_FAILED,
    ],
  };
  return { messages: list, message: show };
}
