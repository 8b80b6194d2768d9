import { BY_PATTERN, LONGEST_BY, LONGEST_REASON, MOST_LISTED } from "../../core/finished/requests.ts";
import { object } from "./object.ts";
import {
  type Answer,
  bodyAnswers,
  errorAnswer,
  json,
  jsonContent,
  responses,
  SHUTTING_DOWN,
  STORAGE_FAILED,
  tooLarge,
  unauthorized,
} from "./responses.ts";
import { STORABLE } from "./schemas.ts";
import type { Security } from "./security.ts";
import type { ServedAdmin } from "./served.ts";
import type { Operation, Parameter, Schema } from "./types.ts";

const NO_TOKEN = "missing Authorization header";

/** `GET /admin/parked`. `common`: what every route of its port may answer. */
export function parkedListOperation(admin: ServedAdmin, access: Security, common: readonly Answer[]): Operation {
  return {
    operationId: "admin_parked_list",
    tags: ["admin"],
    summary: "Show parked outbox rows",
    description:
      "Rows that failed for good on a route with `onExhausted: park`, in the order of delivery; never their payload.",
    parameters: [...access.parameters, ...QUERY],
    responses: responses([
      json(200, "The first parked rows that match.", ROWS, { rows: [ROW_EXAMPLE] }),
      errorAnswer(
        400,
        "A query parameter is not valid.",
        "InvalidRequest",
        'Invalid request: the query parameter "limit": ...',
      ),
      ...(admin.auth === undefined ? [] : [unauthorized("Error", { error: NO_TOKEN })]),
      STORAGE_FAILED,
      ...common,
    ]),
    security: access.security,
  };
}

/** `POST /admin/parked/retry` and `/discard`. */
export function parkedChangeOperation(
  kind: "retry" | "discard",
  admin: ServedAdmin,
  access: Security,
  common: readonly Answer[],
): Operation {
  const { description, error } = tooLarge(admin.maxPayloadBytes);
  const reason = kind === "discard" ? { reason: "order was cancelled" } : {};
  return {
    operationId: `admin_parked_${kind}`,
    tags: ["admin"],
    summary: kind === "retry" ? "Try parked outbox rows again" : "Give parked outbox rows up",
    description:
      kind === "retry"
        ? "The rows are due at once, with `attempt` 0, and the later rows of their keys go on behind them. A row that fails for good is parked again."
        : "The rows are `dead`, with who gave them up and the reason in front of their `last_error`, and the next rows of their keys are delivered.",
    parameters: access.parameters,
    requestBody: {
      required: true,
      description: `At most ${admin.maxPayloadBytes} bytes.`,
      content: jsonContent(changeRequest(kind), {
        byKey: { summary: "The row of one key", value: { key: "order-17", ...reason } },
      }),
    },
    responses: responses([
      json(200, "Every row that matched is changed.", object({ changed: COUNT }), { changed: 1 }),
      errorAnswer(400, "The body is not a valid request.", "InvalidRequest", "Invalid request: say which rows: ..."),
      ...(admin.auth === undefined ? [] : [unauthorized("Error", { error: NO_TOKEN })]),
      ...bodyAnswers,
      errorAnswer(413, description, "BodyTooLarge", error),
      interrupted(500, "The database failed.", "Storage failed"),
      interrupted(503, "The service stopped before it was through.", SHUTTING_DOWN),
      ...common,
    ]),
    security: access.security,
  };
}

/** At most two asterisks together. */
const TOPIC_PATTERN = "^(\\*{0,2}[^\\u0000*])*\\*{0,2}$";
/** Something to read in it. */
export const WORDS = "^[^\\u0000]*[^\\u0000- ][^\\u0000]*$";

/** Who makes a change. */
export const BY: Schema = {
  type: ["string", "null"],
  minLength: 1,
  maxLength: LONGEST_BY,
  pattern: BY_PATTERN,
  description: "Who makes the change, for whoever looks into it later; kept with ` (admin route)` behind it.",
};

const FILTERS = ["ids", "topic", "key"];
/** A filter, or all rows, and not both. */
const WHICH_ROWS: readonly Schema[] = [
  ...FILTERS.map((name) => ({
    required: [name],
    properties: { [name]: { not: { type: "null" } }, all: { enum: [false, null] } },
  })),
  {
    required: ["all"],
    properties: { all: { const: true }, ...Object.fromEntries(FILTERS.map((name) => [name, { type: "null" }])) },
  },
];

const QUERY: readonly Parameter[] = [
  {
    name: "topic",
    in: "query",
    required: false,
    description: "Only rows whose topic matches this pattern, as in `routes`.",
    schema: { type: "string", pattern: TOPIC_PATTERN },
  },
  {
    name: "key",
    in: "query",
    required: false,
    description: "Only the row of this key.",
    schema: { type: "string", pattern: STORABLE },
  },
  {
    name: "limit",
    in: "query",
    required: false,
    description: "Most rows; 50 where it is not given.",
    schema: { type: "integer", minimum: 1, maximum: MOST_LISTED },
  },
];

const TEXT_OR_NULL: Schema = { type: ["string", "null"] };
const ROWS = object({
  rows: {
    type: "array",
    items: object({
      id: { type: "string", format: "uuid" },
      sequence: { type: "string", description: "Its place in the order of delivery." },
      topic: TEXT_OR_NULL,
      key: TEXT_OR_NULL,
      lastError: { type: ["string", "null"], description: "The beginning of the reason." },
      attempts: { type: "integer", description: "Deliveries that were tried." },
      parkedAt: { type: ["string", "null"], format: "date-time" },
    }),
  },
});

const ROW_EXAMPLE = {
  id: "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f",
  sequence: "17",
  topic: "orders.created",
  key: "order-17",
  lastError: "answered 503: not today",
  attempts: 12,
  parkedAt: "2025-01-31T12:00:00.000Z",
};

const COUNT: Schema = { type: "integer", minimum: 0, description: "Rows that were changed; they stay changed." };

function changeRequest(kind: "retry" | "discard"): Schema {
  const reason: Schema = {
    type: "string",
    minLength: 1,
    maxLength: LONGEST_REASON,
    pattern: WORDS,
    description: "Why; kept in `last_error`.",
  };
  return {
    type: "object",
    description:
      "Which rows: all filters that are given must hold; `all` goes with none of them. `null` counts as absent.",
    ...(kind === "discard" ? { required: ["reason"] } : {}),
    anyOf: WHICH_ROWS,
    properties: {
      ids: { type: ["array", "null"], items: { type: "string", format: "uuid" }, description: "Only these rows." },
      topic: {
        type: ["string", "null"],
        pattern: TOPIC_PATTERN,
        description: "Only rows whose topic matches this pattern, as in `routes`.",
      },
      key: { type: ["string", "null"], pattern: STORABLE, description: "Only the row of this key." },
      all: { type: ["boolean", "null"], description: "Every parked row." },
      by: BY,
      ...(kind === "discard" ? { reason } : {}),
    },
  };
}

function interrupted(status: number, description: string, error: string): Answer {
  return json(status, description, object({ error: { const: error }, changed: COUNT }), { error, changed: 2000 });
}
