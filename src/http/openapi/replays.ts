import { BY_PATTERN, LONGEST_BY, LONGEST_REASON } from "../../core/finished/requests.ts";
import { JOB_STATES } from "../../ports/jobStore.ts";
import { MOST_PER_SECOND } from "../admin/replayJobs.ts";
import { ERRORS } from "../respond.ts";
import { type Answer, error, inPath, interrupted, invalidBody, json, STORAGE_FAILED } from "./answers.ts";
import {
  count,
  exampleOf,
  list,
  nullable,
  object,
  REPLAY_FILTERS,
  ref,
  request,
  SOME_FILTER,
  TEXT,
  TEXT_OR_NULL,
  TIME_OR_NULL,
  UUID,
} from "./schemas.ts";

/** Who makes a change. */
export const BY = nullable("string", {
  minLength: 1,
  maxLength: LONGEST_BY,
  pattern: BY_PATTERN,
  description: "Who makes the change; kept with ` (admin route)` appended.",
});

/** Text that is not blank. */
const NOT_BLANK = "^[^\\u0000]*[^\\u0000- ][^\\u0000]*$";
export const REASON = { type: "string", minLength: 1, maxLength: LONGEST_REASON, pattern: NOT_BLANK };

const JOB = object({
  id: [UUID, "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  state: [{ enum: JOB_STATES }, "running"],
  by: [TEXT, "alice (admin route)"],
  createdAt: [TIME_OR_NULL, "2025-01-31T12:00:00.000Z"],
  updatedAt: [TIME_OR_NULL, "2025-01-31T12:00:02.000Z"],
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
        "in batches: those moved before an error stay moved, and the same request may be sent again.",
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
      answers: [json(200, "The replays.", object({ jobs: list(JOB) })), NO_TABLE, STORAGE_FAILED],
    },
    admin_replay_start: {
      summary: "Start a replay, or count what it would move",
      description:
        "A replay goes on when its caller disconnects; when its process dies another one with the role `admin` goes on within a minute. " +
        "With `dryRun` it moves nothing, and counts for a third of a second.",
      body: {
        description: "As JSON.",
        schema: request(
          {
            ...REPLAY_FILTERS,
            destination: { ...REPLAY_FILTERS.destination, enum: [...names, null] },
            toDestination,
            dryRun: nullable("boolean", "Only count."),
            perSecond: PER_SECOND,
            by: BY,
          },
          [],
          { anyOf: SOME_FILTER },
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
      description: "An interrupted or failed one goes on where it was.",
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
      description: "A sent or dead row is delivered again.",
      parameters: MESSAGE_ID,
      body: { description: "As JSON.", schema: request({ toDestination, by: BY }), examples: example({ by: "alice" }) },
      answers: [...action("The row is pending; only a sent or dead row can be replayed"), NO_OVERRIDE],
    },
  };
}
