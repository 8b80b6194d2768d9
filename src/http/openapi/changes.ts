import { PAUSE_DURATION } from "../../core/destinations/control.ts";
import { BY_PATTERN, LONGEST_BY, LONGEST_REASON, MOST_PER_SECOND } from "../../core/finished/requests.ts";
import { DESTINATION_STATES } from "../../ports/destinationStore.ts";
import { JOB_STATES } from "../../ports/jobStore.ts";
import { PARKED_QUERY, TOPIC_PATTERN } from "../admin/reads.ts";
import { ERRORS } from "../exchange.ts";
import {
  type Answer,
  error,
  inPath,
  interrupted,
  invalidBody,
  json,
  queried,
  RETRY_AFTER,
  type RouteDescription,
  STORAGE_FAILED,
  TOO_MANY_READS,
  tooLarge,
} from "./answers.ts";
import {
  bool,
  changeResult,
  count,
  countOrNull,
  exampleOf,
  fromCells,
  INBOX,
  inCell,
  integer,
  list,
  nullable,
  object,
  orNull,
  REPLAY_FILTERS,
  ref,
  request,
  STORABLE,
  someFilter,
  TEXT,
  TEXT_OR_NULL,
  TIME,
  TIME_OR_NULL,
  text,
  UUID,
} from "./schemas.ts";
import type { Schema } from "./types.ts";

/** Who makes a change. */
export const BY = nullable("string", {
  minLength: 1,
  maxLength: LONGEST_BY,
  pattern: BY_PATTERN,
  description: "Who makes the change; kept with ` (admin route)` appended.",
});

/** Text that is not blank. */
const NOT_BLANK = "^[^\\u0000]*[^\\u0000- ][^\\u0000]*$";
const REASON = { type: "string", minLength: 1, maxLength: LONGEST_REASON, pattern: NOT_BLANK };

/** The form of the errors of a transform test: each answer reports in `success` whether the expression ran. */
const failure: typeof error = (status, description, message, _schema, headers) =>
  json(status, description, "TransformTestFailure", { success: false, error: message }, headers);

/** Describes transform tests. @param maxTimeoutMs `admin.maxTransformTimeoutMs` */
export function describeTransformTest(maxBytes: number, maxTimeoutMs: number): RouteDescription {
  const payload = { id: 7, lines: [{ price: 2 }, { price: 3 }] };
  return {
    summary: "Try a transform expression on a sample payload",
    description:
      "Evaluates a JSONata expression as a transform would, with the default `maxDepth` of 100; sends and writes nothing. " +
      "It binds `$messageId`, `$topic`, `$attempt` (0), `$timestamp` and, with `mockSource`, `$source`. An evaluation " +
      `takes at most ${maxTimeoutMs} ms, whatever \`timeoutMs\` asks for; one test runs at a time.`,
    body: {
      maxBytes,
      schema: ref("TransformTestRequest"),
      examples: {
        sum: {
          summary: "A sum over a list",
          value: { expression: '{"id": id, "total": $sum(lines.price)}', payload },
        },
      },
    },
    error: failure,
    answers: [
      json(200, "The expression ran.", "TransformTestResult"),
      invalidBody('"payload" is missing; any JSON value is expected', failure),
      failure(400, "The expression does not compile.", 'Invalid expression: Expected ")" before end of expression'),
      failure(400, "The evaluation failed or exceeded a limit.", "the evaluation took longer than 100 ms (timeoutMs)"),
      failure(
        503,
        "Too many tests are unanswered.",
        "Too many transform tests at once: 16 are unanswered",
        "Error",
        RETRY_AFTER,
      ),
      failure(503, "The service stopped before the evaluation ended.", ERRORS.shuttingDown),
    ],
  };
}

const PAUSE = object({
  by: [text("Who paused it."), "ada@ops-1"],
  reason: [TEXT, "they migrate"],
  since: [TIME, "2025-01-31T12:00:00.000Z"],
  until: [{ ...TIME_OR_NULL, description: "Null: until it is resumed." }, "2025-01-31T14:00:00.000Z"],
});

const BREAKER = object({
  openings: count("How often it has opened in a row."),
  reason: TEXT_OR_NULL,
  nextProbeMs: count("Open: ms until the next probe. Half-open: ms until the lease of its probe ends."),
});

const RATE = object({
  perSecond: [{ type: "number", exclusiveMinimum: 0 }, 50],
  taken: [{ type: "number", minimum: 0, description: "Deliveries granted in the last whole second, begun or not." }, 0],
});

const DESTINATION = object({
  name: [TEXT, "billing"],
  state: [{ enum: DESTINATION_STATES, description: "`paused` takes precedence over the others." }, "paused"],
  pause: orNull(PAUSE),
  breaker: [orNull(BREAKER, "Null when it is closed."), null],
  backlog: [countOrNull("Rows that wait."), 812],
  oldestAgeMs: [nullable("number", { minimum: 0, description: "Age of the oldest due row." }), 61200],
  inFlight: [countOrNull("Rows that pollers have claimed, also those that wait for a slot."), 0],
  blockedKeys: [countOrNull("Keys with a row that waits for its retry or is parked."), 3],
  rate: orNull(RATE, "Null without a limit."),
  lastSuccessAt: [TIME_OR_NULL, "2025-01-31T11:59:58.120Z"],
  lastFailureAt: TIME_OR_NULL,
  lastError: TEXT_OR_NULL,
});

const NAME = [inPath("name", "Name of a configured destination.", TEXT)];

const PAUSE_REQUEST = request(
  {
    reason: { ...REASON, description: "Why, for readers of the list of destinations." },
    for: nullable("string", {
      pattern: PAUSE_DURATION.source,
      description: "How long, such as `30s`, `15m`, `2h` or `1d`; absent: until it is resumed.",
    }),
    by: BY,
  },
  ["reason"],
);

/** The refusals of a pause or its end. */
const unchangeable = (invalid: string): readonly Answer[] => [
  invalidBody(invalid),
  error(404, "No such destination.", 'There is no destination "biling" (there are billing, audit)'),
  error(501, "The table of the destinations is not usable.", ERRORS.noDestinationTable),
  STORAGE_FAILED,
];

/** Describes the list of destinations and their pauses. */
export function describeDestinations(maxBytes: number) {
  return {
    admin_destinations: {
      summary: "Show the destinations",
      description:
        "Every configured destination: whether it is paused, broken or slow, its backlog, its last deliveries.",
      answers: [
        json(
          200,
          "The destinations in the order of the configuration.",
          fromCells({ destinations: list(DESTINATION) }),
        ),
        tooLarge(maxBytes),
        STORAGE_FAILED,
      ],
    },
    admin_destination_pause: {
      summary: "Pause a destination",
      description:
        "Stops deliveries to it in every replica and across restarts, until it is resumed or the given time has passed; " +
        "its rows wait. A further pause replaces the last one.",
      parameters: NAME,
      body: {
        maxBytes,
        schema: PAUSE_REQUEST,
        examples: {
          twoHours: { summary: "For two hours", value: { reason: "they migrate", for: "2h", by: "alice" } },
        },
      },
      answers: [
        json(200, "It is paused.", object({ paused: { const: true } })),
        ...unchangeable('"reason" is missing; a text that says why is expected'),
      ],
    },
    admin_destination_resume: {
      summary: "Resume a destination",
      description: "Ends a pause. Needs no body.",
      parameters: NAME,
      body: {
        isOptional: true,
        maxBytes,
        schema: request({ by: BY }),
        examples: { byAlice: { summary: "With the caller", value: { by: "alice" } } },
      },
      answers: [
        json(200, "It is not paused.", object({ resumed: [bool("False when it was not paused."), true] })),
        ...unchangeable("the body is an array; a JSON object is expected"),
      ],
    },
  };
}

const PARKED_ROW = inCell({
  id: [UUID, "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  sequence: [text("Its place in the order of delivery."), "17"],
  topic: [TEXT_OR_NULL, "orders.created"],
  key: [TEXT_OR_NULL, "order-17"],
  lastError: [nullable("string", "The beginning of the reason."), "answered 503: not today"],
  attempts: [integer("Delivery attempts."), 12],
  parkedAt: [TIME_OR_NULL, "2025-01-31T12:00:00.000Z"],
});

const FILTERS = {
  ids: nullable("array", { items: UUID, description: "Only these rows." }),
  topic: nullable("string", { ...TOPIC_PATTERN, description: PARKED_QUERY.topic.description }),
  key: nullable("string", { pattern: STORABLE.pattern, description: PARKED_QUERY.key.description }),
};

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

const CHANGED = count("Rows that were changed; they stay changed.");
const CHANGED_ANSWERS = [
  json(200, "Every matching row is changed.", changeResult({ changed: [CHANGED, 1] })),
  invalidBody("say which rows: ..."),
  ...interrupted("changed", CHANGED),
];

/** The body of a change of parked rows. @param members besides those that every change has; each is required */
const parkedRequest = (members: Readonly<Record<string, Schema>> = {}): Schema =>
  request({ ...FILTERS, all: nullable("boolean", "Every parked row."), by: BY, ...members }, Object.keys(members), {
    description: "Rows that match every given filter, or `all` without a filter. `null` counts as absent.",
    anyOf: WHICH_ROWS,
  });

/** Describes the list of parked rows and what operators decide on them. */
export function describeParked(maxBytes: number) {
  return {
    admin_parked_list: queried(
      "Show parked outbox rows",
      "Rows that failed for good on a route with `onExhausted: park`, in the order of delivery; no payloads.",
      PARKED_QUERY,
      json(200, "The first parked rows that match.", fromCells({ rows: list(PARKED_ROW) })),
    ),
    admin_parked_retry: {
      summary: "Retry parked outbox rows",
      description:
        "The rows are due at once, with `attempt` 0; later rows of their keys follow. A row that fails for good is parked again.",
      body: {
        maxBytes,
        schema: parkedRequest(),
        examples: { byKey: { summary: "The row of one key", value: { key: "order-17" } } },
      },
      answers: CHANGED_ANSWERS,
    },
    admin_parked_discard: {
      summary: "Discard parked outbox rows",
      description:
        "The rows become `dead`; `last_error` begins with the caller and the reason. The next rows of their keys are delivered.",
      body: {
        maxBytes,
        schema: parkedRequest({ reason: { ...REASON, description: "Why; kept in `last_error`." } }),
        examples: {
          byKey: { summary: "The row of one key", value: { key: "order-17", reason: "order was cancelled" } },
        },
      },
      answers: CHANGED_ANSWERS,
    },
  };
}

const JOB = inCell({
  id: [UUID, "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  state: [{ enum: JOB_STATES }, "running"],
  by: [TEXT, "alice (admin route)"],
  createdAt: [TIME_OR_NULL, "2025-01-31T12:00:00.000Z"],
  updatedAt: [{ ...TIME_OR_NULL, description: "Of its last progress or change." }, "2025-01-31T12:00:02.000Z"],
  filter: [{ type: "object", description: "As it was given." }, { state: "dead" }],
  perSecond: [nullable("integer"), 100],
  total: [nullable("integer", "Rows that matched at the start; null where counting them took too long."), 1200],
  moved: [count("Rows moved so far."), 200],
  lastError: TEXT_OR_NULL,
});

const DRY_RUN = object({ count: count("Rows."), isExact: { type: "boolean" }, sample: list({ type: "object" }) });

const THE_JOB = json(200, "The replay.", JOB);
const NO_JOB = error(404, "No such replay.", ERRORS.noJob);
const NO_TABLE = error(501, "The table of the replay jobs is not usable.", ERRORS.noJobTable);
const NO_OVERRIDE = error(501, "The outbox has no column for that.", ERRORS.noOverride);
const wrongState = (reason: string): Answer => error(409, "Its state does not allow it.", reason);

const JOB_ID = [inPath("id", "Id of the replay.", UUID)];
const MESSAGE_ID = [inPath("id", "Id of the message.", UUID)];

const INVALID = invalidBody("...");
const CALLER = {
  description: "May be empty.",
  schema: request({ by: BY }),
  examples: { alice: { summary: "Who", value: { by: "alice" } } },
};

const example = (value: object) => ({ example: { summary: "An example", value } });

/** The answers to the end, or the going on, of a replay. */
const jobChange = (refusal: string): readonly Answer[] => [
  THE_JOB,
  INVALID,
  NO_JOB,
  wrongState(refusal),
  NO_TABLE,
  STORAGE_FAILED,
];

/** The answers to an action on one message. */
const action = (refusal: string): readonly Answer[] => [
  json(200, "It is done.", object({ changed: { const: 1 } })),
  INVALID,
  error(404, "No such message.", ERRORS.noMessage),
  wrongState(refusal),
  STORAGE_FAILED,
];

const PER_SECOND = nullable("integer", { minimum: 1, maximum: MOST_PER_SECOND, description: "Most rows in a second." });
const HOUR = { topic: "orders.created", createdAfter: "2025-01-31T12:00:00Z", createdBefore: "2025-01-31T13:00:00Z" };

/**
 * Describes replays, and the actions on one message.
 *
 * @param names of the configured destinations
 * @param maxBytes of the body of the replay that answers when it has ended
 */
export function describeReplays(names: readonly string[], maxBytes: number) {
  const toDestination = nullable("string", {
    enum: [...names, null],
    description: "Where they are delivered from now on; by default where they went before. No filter.",
  });
  return {
    admin_replay: {
      summary: "Deliver finished outbox rows again",
      description:
        "Moves matching outbox rows from `sent` or `dead` back to `pending`, with `attempt` 0 and due now; other rows stay " +
        "as they are, and each row keeps its `id`. Rows that finish after the request arrived are not included. Rows move " +
        "in batches: those moved before an error stay moved, and the same request may be sent again. With `inbox` dead inbox " +
        "rows pass the filter, attributes and transform of their source again, the oldest 50,000 of the matching ones.",
      body: {
        maxBytes,
        schema: {
          allOf: [
            ref("ReplayRequest"),
            { properties: { destination: { enum: [...names, null] }, toDestination, by: BY } },
          ],
        },
        examples: {
          dead: {
            summary: "Rows dead since an instant",
            value: { state: "dead", createdAfter: "2025-01-31T12:00:00Z" },
          },
          byTopic: { summary: "Rows of a topic within an hour", value: HOUR },
        },
      },
      answers: [
        json(200, "The replay has ended.", "ReplayResult"),
        error(400, "No filter is set.", "A replay needs at least one filter.", "InvalidRequest"),
        NO_OVERRIDE,
        invalidBody('"topic" is a number; a string is expected'),
        ...interrupted("moved", count("Rows moved before the interruption; they stay moved.")),
      ],
    },
    admin_replays: {
      summary: "Show the replays",
      description: "The newest 50.",
      answers: [json(200, "The replays.", fromCells({ jobs: list(JOB) })), NO_TABLE, STORAGE_FAILED],
    },
    admin_replay_start: {
      summary: "Start a replay, or count what it would move",
      description:
        "It runs in the process that was asked, also when its caller disconnects. " +
        "With `dryRun` it moves nothing, and counts for a third of a second. `inbox` needs `dryRun`.",
      body: {
        description: "As JSON.",
        schema: request(
          {
            ...INBOX,
            ...REPLAY_FILTERS,
            destination: { ...REPLAY_FILTERS.destination, enum: [...names, null] },
            toDestination,
            dryRun: nullable("boolean", "Only count."),
            perSecond: PER_SECOND,
            by: BY,
          },
          [],
          { anyOf: someFilter({ dryRun: { const: true } }) },
        ),
        examples: {
          dead: { summary: "Dead rows, slowly", value: { state: "dead", perSecond: 100, by: "alice" } },
          byTopic: { summary: "Count the rows of a topic within an hour", value: { ...HOUR, dryRun: true } },
        },
      },
      answers: [
        json(200, "The replay; of a dry run the count.", { oneOf: [JOB, DRY_RUN] }, exampleOf(JOB)),
        INVALID,
        NO_TABLE,
        NO_OVERRIDE,
        STORAGE_FAILED,
        TOO_MANY_READS,
      ],
    },
    admin_replay_job: {
      summary: "Show a replay",
      description: "With its progress.",
      parameters: JOB_ID,
      answers: [THE_JOB, NO_JOB, NO_TABLE, STORAGE_FAILED],
    },
    admin_replay_cancel: {
      summary: "Cancel a replay",
      description: "It never goes on; what it moved stays moved.",
      parameters: JOB_ID,
      body: CALLER,
      answers: jobChange("The job cannot be cancelled: it is done"),
    },
    admin_replay_resume: {
      summary: "Resume a replay",
      description:
        "A running, interrupted or failed one continues behind its last batch, in this process; another process that runs it stops.",
      parameters: JOB_ID,
      body: CALLER,
      answers: jobChange("The job cannot be resumed: it is done"),
    },
    admin_message_retry: {
      summary: "Retry a message now",
      description: "A row that waits for its retry, or is parked, is due now.",
      parameters: MESSAGE_ID,
      body: { description: "As JSON.", schema: request({ by: BY }), examples: example({ by: "alice" }) },
      answers: action(
        "The row is sent; only a row that waits for its retry, or is parked, can be retried: replay a finished one",
      ),
    },
    admin_message_discard: {
      summary: "Discard a message",
      description: "A pending row becomes `dead`; the next row of its key is free.",
      parameters: MESSAGE_ID,
      body: {
        description: "As JSON.",
        schema: request({ reason: REASON, by: BY }, ["reason"]),
        examples: example({ reason: "cancelled by the customer", by: "alice" }),
      },
      answers: action("The row is in delivery; only a pending row can be discarded"),
    },
    admin_message_replay: {
      summary: "Replay a message",
      description: "A sent or dead row is delivered again; a dead inbox row is received again, as with `inbox`.",
      parameters: MESSAGE_ID,
      body: { description: "As JSON.", schema: request({ toDestination, by: BY }), examples: example({ by: "alice" }) },
      answers: [...action("The row is pending; only a sent or dead row can be replayed"), NO_OVERRIDE],
    },
  };
}
