import { PAUSE_DURATION } from "../../core/destinations/control.ts";
import { BY_PATTERN, LONGEST_BY, LONGEST_REASON, MOST_LISTED } from "../../core/finished/requests.ts";
import { DESTINATION_STATES } from "../../ports/destinationStore.ts";
import type { Access } from "../credentials.ts";
import { ERRORS } from "../respond.ts";
import {
  type Answer,
  bodyAnswers,
  error,
  json,
  RETRY_AFTER,
  type RouteDescription,
  STORAGE_FAILED,
  tooLarge,
  unauthorized,
} from "./answers.ts";
import {
  count,
  nullable,
  object,
  parameter,
  ref,
  request,
  STORABLE,
  TEXT,
  TEXT_OR_NULL,
  TIME_OR_NULL,
  toDestination,
  UUID,
} from "./schemas.ts";
import type { Examples, ResponseHeaders, Schema } from "./types.ts";

interface DescribedAdmin {
  readonly access: Access | undefined;
  /** Names of the configured destinations. */
  readonly destinations: readonly string[];
  /** Largest body in bytes. */
  readonly maxBodyBytes: number;
  /** `admin.maxTransformTimeoutMs` */
  readonly maxTransformTimeoutMs: number;
}

/** Describes the admin routes (spec, "Endpoints"). */
export function describeAdmin(admin: DescribedAdmin) {
  return {
    transformTest: transformTest(admin),
    replay: replay(admin),
    ...destinations(admin),
    ...parked(admin),
  };
}

/** The body of a request. */
const body = (maxBytes: number, schema: Schema, examples: Examples) => ({
  description: `At most ${maxBytes} bytes.`,
  schema,
  examples,
});
/** The refusals of a request before its work. */
const refusals = ({ access, maxBodyBytes }: DescribedAdmin): readonly Answer[] => [
  ...unauthorized(access),
  ...bodyAnswers(),
  tooLarge(maxBodyBytes),
];
const INVALID = "The body is not a valid request.";
const invalid = (reason: string): Answer => error(400, INVALID, "InvalidRequest", `Invalid request: ${reason}`);

function transformTest({ access, maxBodyBytes, maxTransformTimeoutMs }: DescribedAdmin): RouteDescription {
  // Every answer of this route reports in `success` whether the expression ran.
  const failure: typeof error = (status, description, _schema, text, headers) =>
    json(status, description, "TransformTestFailure", { success: false, error: text }, headers);
  const failed = (status: number, description: string, text: string, headers?: ResponseHeaders) =>
    failure(status, description, "Error", text, headers);
  const expression = '{"id": id, "total": $sum(lines.price)}';
  const payload = { id: 7, lines: [{ price: 2 }, { price: 3 }] };
  return {
    summary: "Try a transform expression on a sample payload",
    description:
      "Evaluates a JSONata expression as a transform would, with the default `maxDepth` of 100; sends and writes nothing. " +
      "It binds `$messageId`, `$topic`, `$attempt` (0), `$timestamp` and, with `mockSource`, `$source`. An evaluation " +
      `takes at most ${maxTransformTimeoutMs} ms, whatever \`timeoutMs\` asks for; one test runs at a time.`,
    access,
    body: body(maxBodyBytes, ref("TransformTestRequest"), {
      sum: { summary: "A sum over a list", value: { expression, payload } },
    }),
    answers: [
      json(200, "The expression ran.", "TransformTestResult", {
        success: true,
        result: { id: 7, total: 5 },
        context: {
          messageId: "6f1c8a52-3b0d-4e7a-9c55-0d2f6b8e1a34",
          topic: "test.topic",
          attempt: 0,
          timestamp: "2025-01-31T12:00:00.000Z",
        },
      }),
      failed(400, INVALID, 'Invalid request: "payload" is missing; any JSON value is expected'),
      failed(400, "The expression does not compile.", 'Invalid expression: Expected ")" before end of expression'),
      failed(400, "The evaluation failed or exceeded a limit.", "the evaluation took longer than 100 ms (timeoutMs)"),
      ...unauthorized(access, failure),
      tooLarge(maxBodyBytes, failure),
      failed(503, "Too many tests are unanswered.", "Too many transform tests at once: 16 are unanswered", RETRY_AFTER),
      ...bodyAnswers(failure),
      failed(503, "The service stopped before the evaluation ended.", ERRORS.shuttingDown),
    ],
  };
}

function replay(admin: DescribedAdmin): RouteDescription {
  const { access, maxBodyBytes, destinations: names } = admin;
  const properties = { destination: { enum: [...names, null] }, ...toDestination(names), by: BY };
  const schema = { allOf: [ref("ReplayRequest"), { properties }] };
  const after = "2025-01-31T12:00:00Z";
  return {
    summary: "Deliver finished outbox rows again",
    description:
      "Moves matching outbox rows from `sent` or `dead` back to `pending`, with `attempt` 0 and due now; other rows stay " +
      "as they are, and each row keeps its `id`. Rows that finish after the request arrived are not included. Rows move " +
      "in batches: those moved before an error stay moved, and the same request may be sent again.",
    access,
    body: body(maxBodyBytes, schema, {
      dead: { summary: "Rows dead since an instant", value: { state: "dead", createdAfter: after } },
      byTopic: {
        summary: "Rows of a topic within an hour",
        value: { topic: "orders.created", createdAfter: after, createdBefore: "2025-01-31T13:00:00Z" },
      },
    }),
    answers: [
      json(200, "The replay has ended.", "ReplayResult", { moved: 42 }),
      error(400, "No filter is set.", "InvalidRequest", "A replay needs at least one filter."),
      NO_OVERRIDE,
      invalid('"topic" is a number; a string is expected'),
      ...refusals(admin),
      ...interrupted("moved", "Rows moved before the interruption; they stay moved."),
    ],
  };
}

/** A change in batches that the database or the end of the service interrupted. */
function interrupted(member: "moved" | "changed", description: string): readonly Answer[] {
  const answer = (status: number, cause: string, text: string): Answer =>
    json(status, cause, object({ error: { const: text }, [member]: count(description) }), {
      error: text,
      [member]: 2000,
    });
  return [
    answer(500, "The database failed.", ERRORS.storageFailed),
    answer(503, "The service stopped before the change was complete.", ERRORS.shuttingDown),
  ];
}

/** Of replays to another destination. */
export const NO_OVERRIDE = error(501, "The outbox has no column for that.", "Error", ERRORS.noOverride);

/** Text that is not blank. */
const NOT_BLANK = "^[^\\u0000]*[^\\u0000- ][^\\u0000]*$";
export const REASON = { type: "string", minLength: 1, maxLength: LONGEST_REASON, pattern: NOT_BLANK };

/** Who makes a change. */
export const BY = nullable("string", {
  minLength: 1,
  maxLength: LONGEST_BY,
  pattern: BY_PATTERN,
  description: "Who makes the change; kept with ` (admin route)` appended.",
});

const orNull = (schema: Schema, keywords: Schema = {}): Schema => ({ anyOf: [schema, { type: "null" }], ...keywords });

const OVERVIEW = object({
  name: TEXT,
  state: { enum: DESTINATION_STATES, description: "`paused` takes precedence over the others." },
  pause: orNull(
    object({
      by: { type: "string", description: "Who paused it." },
      reason: TEXT,
      since: { type: "string", format: "date-time" },
      until: { ...TIME_OR_NULL, description: "Null: until it is resumed." },
    }),
  ),
  breaker: orNull(
    object({
      openings: count("How often it has opened in a row."),
      reason: TEXT_OR_NULL,
      nextProbeMs: count("Open: ms until the next probe. Half-open: ms until the lease of its probe ends."),
    }),
    { description: "Null when it is closed." },
  ),
  backlog: nullable("integer", { minimum: 0, description: "Rows that wait." }),
  oldestAgeMs: nullable("number", { minimum: 0, description: "Age of the oldest due row." }),
  inFlight: nullable("integer", {
    minimum: 0,
    description: "Rows that pollers have claimed, also those that wait for a slot.",
  }),
  blockedKeys: nullable("integer", {
    minimum: 0,
    description: "Keys with a row that waits for its retry or is parked.",
  }),
  rate: orNull(
    object({
      perSecond: { type: "number", exclusiveMinimum: 0 },
      taken: { type: "number", minimum: 0, description: "Deliveries granted in the last whole second, begun or not." },
    }),
    { description: "Null without a limit." },
  ),
  lastSuccessAt: TIME_OR_NULL,
  lastFailureAt: TIME_OR_NULL,
  lastError: TEXT_OR_NULL,
});

const OVERVIEWS = object({ destinations: { type: "array", items: OVERVIEW } });

const [SINCE, UNTIL] = ["2025-01-31T12:00:00.000Z", "2025-01-31T14:00:00.000Z"];

const OVERVIEW_EXAMPLE = {
  name: "billing",
  state: "paused",
  pause: { by: "ada@ops-1", reason: "they migrate", since: SINCE, until: UNTIL },
  breaker: null,
  backlog: 812,
  oldestAgeMs: 61200,
  inFlight: 0,
  blockedKeys: 3,
  rate: { perSecond: 50, taken: 0 },
  lastSuccessAt: "2025-01-31T11:59:58.120Z",
  lastFailureAt: null,
  lastError: null,
};

const NAME = parameter("path", "name", "Name of a configured destination.", TEXT);

const PAUSE_REASON = { ...REASON, description: "Why, for readers of the list of destinations." };
const PAUSE_FOR = nullable("string", {
  pattern: PAUSE_DURATION.source,
  description: "How long, such as `30s`, `15m`, `2h` or `1d`; absent: until it is resumed.",
});
const RESUMED = { type: "boolean", description: "False when it was not paused." };

function destinations(admin: DescribedAdmin) {
  const { access, maxBodyBytes } = admin;
  const change = (reasonOfRefusal: string): readonly Answer[] => [
    invalid(reasonOfRefusal),
    error(404, "No such destination.", "Error", 'There is no destination "biling" (there are billing, audit)'),
    error(501, "The table of the destinations is not usable.", "Error", ERRORS.noDestinationTable),
    ...refusals(admin),
    STORAGE_FAILED,
  ];
  const list: RouteDescription = {
    summary: "Show the destinations",
    description:
      "Every configured destination: whether it is paused, broken or slow, its backlog, its last deliveries.",
    access,
    answers: [
      json(200, "The destinations in the order of the configuration.", OVERVIEWS, { destinations: [OVERVIEW_EXAMPLE] }),
      ...unauthorized(access),
      tooLarge(maxBodyBytes),
      STORAGE_FAILED,
    ],
  };
  const pause: RouteDescription = {
    summary: "Pause a destination",
    description:
      "Stops deliveries to it in every replica and across restarts, until it is resumed or the given time has passed; " +
      "its rows wait. A further pause replaces the last one.",
    access,
    parameters: [NAME],
    body: body(maxBodyBytes, request({ reason: PAUSE_REASON, for: PAUSE_FOR, by: BY }, ["reason"]), {
      twoHours: { summary: "For two hours", value: { reason: "they migrate", for: "2h", by: "alice" } },
    }),
    answers: [
      json(200, "It is paused.", object({ paused: { const: true } }), { paused: true }),
      ...change('"reason" is missing; a text that says why is expected'),
    ],
  };
  const resume: RouteDescription = {
    summary: "Resume a destination",
    description: "Ends a pause. Needs no body.",
    access,
    parameters: [NAME],
    body: {
      isOptional: true,
      ...body(maxBodyBytes, request({ by: BY }), { byAlice: { summary: "With the caller", value: { by: "alice" } } }),
    },
    answers: [
      json(200, "It is not paused.", object({ resumed: RESUMED }), { resumed: true }),
      ...change("the body is an array; a JSON object is expected"),
    ],
  };
  return { destinations: list, pause, resume };
}

/** At most two asterisks in a row. */
const TOPIC_PATTERN = "^(\\*{0,2}[^\\u0000*])*\\*{0,2}$";
const MATCHING_TOPIC = "Only rows whose topic matches this pattern, as in `routes`.";

const PARKED_QUERY = [
  parameter("query", "topic", MATCHING_TOPIC, { type: "string", pattern: TOPIC_PATTERN }),
  parameter("query", "key", "Only the row of this key.", { type: "string", pattern: STORABLE }),
  parameter("query", "limit", "Most rows; 50 by default.", { type: "integer", minimum: 1, maximum: MOST_LISTED }),
];

const PARKED_ROW = object({
  id: UUID,
  sequence: { type: "string", description: "Its place in the order of delivery." },
  topic: TEXT_OR_NULL,
  key: TEXT_OR_NULL,
  lastError: { ...TEXT_OR_NULL, description: "The beginning of the reason." },
  attempts: { type: "integer", description: "Delivery attempts." },
  parkedAt: TIME_OR_NULL,
});

const PARKED_EXAMPLE = {
  id: "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f",
  sequence: "17",
  topic: "orders.created",
  key: "order-17",
  lastError: "answered 503: not today",
  attempts: 12,
  parkedAt: "2025-01-31T12:00:00.000Z",
};

const FILTERS = {
  ids: nullable("array", { items: UUID, description: "Only these rows." }),
  topic: nullable("string", { pattern: TOPIC_PATTERN, description: MATCHING_TOPIC }),
  key: nullable("string", { pattern: STORABLE, description: "Only the row of this key." }),
};

const ALL = nullable("boolean", { description: "Every parked row." });

/** A filter, or all rows, and not both. */
const WHICH_ROWS: readonly Schema[] = [
  ...Object.keys(FILTERS).map((name) => ({
    required: [name],
    properties: { [name]: { not: { type: "null" } }, all: { enum: [false, null] } },
  })),
  {
    required: ["all"],
    properties: {
      all: { const: true },
      ...Object.fromEntries(Object.keys(FILTERS).map((name) => [name, { type: "null" }])),
    },
  },
];

function parked(admin: DescribedAdmin) {
  const { access, maxBodyBytes } = admin;
  const list: RouteDescription = {
    summary: "Show parked outbox rows",
    description:
      "Rows that failed for good on a route with `onExhausted: park`, in the order of delivery; no payloads.",
    access,
    parameters: PARKED_QUERY,
    answers: [
      json(200, "The first parked rows that match.", object({ rows: { type: "array", items: PARKED_ROW } }), {
        rows: [PARKED_EXAMPLE],
      }),
      error(
        400,
        "A query parameter is not valid.",
        "InvalidRequest",
        'Invalid request: the query parameter "limit": ...',
      ),
      ...unauthorized(access),
      STORAGE_FAILED,
    ],
  };
  const changed = "Rows that were changed; they stay changed.";
  const change = (
    summary: string,
    description: string,
    required: Readonly<Record<string, Schema>>,
    example: object,
  ): RouteDescription => ({
    summary,
    description,
    access,
    body: body(
      maxBodyBytes,
      {
        ...request({ ...FILTERS, all: ALL, by: BY, ...required }, Object.keys(required)),
        description: "Rows that match every given filter, or `all` without a filter. `null` counts as absent.",
        anyOf: WHICH_ROWS,
      },
      { byKey: { summary: "The row of one key", value: { key: "order-17", ...example } } },
    ),
    answers: [
      json(200, "Every matching row is changed.", object({ changed: count(changed) }), { changed: 1 }),
      invalid("say which rows: ..."),
      ...refusals(admin),
      ...interrupted("changed", changed),
    ],
  });
  return {
    parkedList: list,
    parkedRetry: change(
      "Retry parked outbox rows",
      "The rows are due at once, with `attempt` 0; later rows of their keys follow. A row that fails for good is parked again.",
      {},
      {},
    ),
    parkedDiscard: change(
      "Discard parked outbox rows",
      "The rows become `dead`; `last_error` begins with the caller and the reason. The next rows of their keys are delivered.",
      { reason: { ...REASON, description: "Why; kept in `last_error`." } },
      { reason: "order was cancelled" },
    ),
  };
}
