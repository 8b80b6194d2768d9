import { JOB_STATES } from "../../ports/jobStore.ts";
import { MOST_PER_SECOND } from "../admin/replayJobs.ts";
import type { Access } from "../credentials.ts";
import { ERRORS } from "../respond.ts";
import { BY, NO_OVERRIDE, REASON } from "./admin.ts";
import {
  type Answer,
  bodyAnswers,
  error,
  json,
  type RouteDescription,
  STORAGE_FAILED,
  unauthorized,
} from "./answers.ts";
import {
  count,
  nullable,
  object,
  parameter,
  REPLAY_FILTERS,
  request,
  SOME_FILTER,
  TEXT_OR_NULL,
  TIME_OR_NULL,
  toDestination,
  UUID,
} from "./schemas.ts";
import type { Schema } from "./types.ts";

const ID = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";
const JOB: Schema = object({
  id: UUID,
  state: { enum: [...JOB_STATES] },
  by: { type: "string" },
  createdAt: TIME_OR_NULL,
  updatedAt: TIME_OR_NULL,
  filter: { type: "object", description: "As it was given." },
  perSecond: nullable("integer"),
  total: nullable("integer", {
    description: "Rows that matched at the start; null where counting them took too long.",
  }),
  moved: count("Rows moved so far."),
  lastError: TEXT_OR_NULL,
});
const JOB_EXAMPLE = {
  id: ID,
  state: "running",
  by: "alice (admin route)",
  createdAt: "2025-01-31T12:00:00.000Z",
  updatedAt: "2025-01-31T12:00:02.000Z",
  filter: { state: "dead" },
  perSecond: 100,
  total: 1200,
  moved: 200,
  lastError: null,
};
const CHANGED: Schema = object({ changed: { const: 1 } });

const NO_TABLE = error(501, "The table of the replay jobs is not usable.", "Error", ERRORS.noJobTable);

/** Describes the replay jobs, and the actions on one message. */
export function describeReplayJobs(access: Access | undefined, destinations: readonly string[]) {
  const always: readonly Answer[] = [...unauthorized(access), STORAGE_FAILED];
  const invalid = error(400, "The body is not a valid request.", "InvalidRequest", "Invalid request: ...");
  const noJob = error(404, "No such replay.", "Error", ERRORS.noJob);
  const job = (summary: string, description: string): RouteDescription => ({
    summary,
    description,
    access,
    parameters: [parameter("path", "id", "Id of the replay.", UUID)],
    answers: [json(200, "The replay.", JOB, JOB_EXAMPLE), noJob, NO_TABLE, ...always],
  });
  const caller = request({ by: BY });
  const change = (summary: string, description: string, refusal: string): RouteDescription => ({
    ...job(summary, description),
    body: {
      description: "May be empty.",
      schema: caller,
      examples: { alice: { summary: "Who", value: { by: "alice" } } },
    },
    answers: [
      json(200, "The replay.", JOB, JOB_EXAMPLE),
      invalid,
      noJob,
      error(409, "Its state does not allow it.", "Error", refusal),
      NO_TABLE,
      ...bodyAnswers(),
      ...always,
    ],
  });
  const action = (
    summary: string,
    description: string,
    schema: Schema,
    value: object,
    refusal: string,
    further: readonly Answer[] = [],
  ): RouteDescription => ({
    summary,
    description,
    access,
    parameters: [parameter("path", "id", "Id of the message.", UUID)],
    body: { description: "As JSON.", schema, examples: { example: { summary: "An example", value } } },
    answers: [
      json(200, "It is done.", CHANGED, { changed: 1 }),
      invalid,
      error(404, "No such message.", "Error", ERRORS.noMessage),
      error(409, "Its state does not allow it.", "Error", refusal),
      ...further,
      ...bodyAnswers(),
      ...always,
    ],
  });
  return {
    replayJobs: {
      summary: "Show the replays",
      description: "The newest 50.",
      access,
      answers: [
        json(200, "The replays.", object({ jobs: { type: "array", items: JOB } }), { jobs: [JOB_EXAMPLE] }),
        NO_TABLE,
        ...always,
      ],
    },
    replayStart: {
      summary: "Start a replay, or count what it would move",
      description:
        "A replay goes on when its caller disconnects; when its process dies another one with the role `admin` goes on within a minute. " +
        `With \`dryRun\` it moves nothing, and counts for a third of a second.`,
      access,
      body: {
        description: "As JSON.",
        schema: {
          type: "object",
          description: "Unknown fields are ignored; null counts as absent.",
          anyOf: SOME_FILTER,
          properties: {
            ...REPLAY_FILTERS,
            destination: { ...REPLAY_FILTERS.destination, enum: [...destinations, null] },
            ...toDestination(destinations),
            dryRun: nullable("boolean", { description: "Only count." }),
            perSecond: nullable("integer", {
              minimum: 1,
              maximum: MOST_PER_SECOND,
              description: "Most rows in a second.",
            }),
            by: BY,
          },
        },
        examples: {
          dead: { summary: "Dead rows, slowly", value: { state: "dead", perSecond: 100, by: "alice" } },
          byTopic: {
            summary: "Count the rows of a topic within an hour",
            value: {
              topic: "orders.created",
              createdAfter: "2025-01-31T12:00:00Z",
              createdBefore: "2025-01-31T13:00:00Z",
              dryRun: true,
            },
          },
        },
      },
      answers: [
        json(
          200,
          "The replay; of a dry run the count.",
          {
            oneOf: [
              JOB,
              object({
                count: count("Rows."),
                isExact: { type: "boolean" },
                sample: { type: "array", items: { type: "object" } },
              }),
            ],
          },
          JOB_EXAMPLE,
        ),
        invalid,
        NO_TABLE,
        NO_OVERRIDE,
        ...bodyAnswers(),
        ...always,
      ],
    },
    replayJob: job("Show a replay", "With its progress."),
    replayCancel: change(
      "Cancel a replay",
      "It never goes on; what it moved stays moved.",
      "The job cannot be cancelled: it is done",
    ),
    replayResume: change(
      "Resume a replay",
      "An interrupted or failed one goes on where it was.",
      "The job cannot be resumed: it is done",
    ),
    messageRetry: action(
      "Retry a message now",
      "A row that waits for its retry, or is parked, is due now.",
      caller,
      { by: "alice" },
      "The row is sent; only a row that waits for its retry, or is parked, can be retried: replay a finished one",
    ),
    messageDiscard: action(
      "Discard a message",
      "A pending row becomes `dead`; the next row of its key is free.",
      request({ reason: REASON, by: BY }, ["reason"]),
      { reason: "cancelled by the customer", by: "alice" },
      "The row is in delivery; only a pending row can be discarded",
    ),
    messageReplay: action(
      "Replay a message",
      "A sent or dead row is delivered again.",
      request({ ...toDestination(destinations), by: BY }),
      { by: "alice" },
      "The row is pending; only a sent or dead row can be replayed",
      [NO_OVERRIDE],
    ),
  } satisfies Readonly<Record<string, RouteDescription>>;
}
