import type { ServerResponse } from "node:http";
import { InterruptedError } from "../../../core/operations/replay.ts";
import {
  hasFilter,
  MOST_PER_SECOND,
  misfit,
  NO_FILTER,
  type ReplayPreview,
  type ReplayRequest,
} from "../../../core/operations/replayRequest.ts";
import {
  destinationName,
  FAILURE,
  FINISHED_STATE,
  instant,
  MESSAGE_ID,
  STORABLE,
} from "../../../core/operations/syntax.ts";
import { splitSequence } from "../../../model/cellPositions.ts";
import * as schema from "../../../model/described.ts";
import { StoppingError } from "../../../model/errors.ts";
import { linked } from "../../../time/wait.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, CALLER, InvalidRequest, interruption, Refusal } from "../operation.ts";

/** `POST /admin/replay` of the specification, which answers when the replay has ended. */
export const replayNow = ({ operation, guardBody, destinations, replay, run }: Admin) =>
  operation(
    "admin_replay",
    {
      summary: "Deliver finished outbox rows again",
      description:
        "Moves matching outbox rows from `sent` or `dead` back to `pending`, with `attempt` 0 and due now; other rows do " +
        "not change, and each row keeps its `id`. Rows that finish after the request arrived are not included. Rows move " +
        "in batches: those moved before an error stay moved, and its `finishedBefore` moves the rest. With `inbox` dead inbox " +
        "rows pass the filter, attributes and transform of their source again, the oldest 50,000 of the matching ones. With `add` rows stay, and each " +
        "matching message that never went to that destination gets a delivery there.",
      body: {
        fields: { ...replayFields(destinations.names), by: CALLER },
        keywords: { description: EVERY_FILTER },
        examples: {
          dead: {
            summary: "Rows dead since an instant",
            value: { state: "dead", createdAfter: "2025-01-31T12:00:00Z" },
          },
          byTopic: { summary: "Rows of a topic within an hour", value: HOUR },
        },
      },
      answers: [
        answer.json(200, "The replay has ended.", RESULT),
        answer.error(400, "No filter is set.", NO_FILTER, "InvalidRequest"),
        NO_DESTINATION_COLUMN,
        answer.invalidBody('"topic" is a number; a string is expected'),
        ...answer.interrupted("moved", schema.count("Rows moved before the interruption; they stay moved."), {
          finishedBefore: schema.text("For a repetition that moves the rest; absent if the same request does."),
        }),
      ],
      async work({ by, ...request }) {
        requireFit(request);
        return await run((signal) => replay.run(request, by, signal));
      },
    },
    guardBody,
  );

const RESULT = schema.named(
  "ReplayResult",
  schema.changeResult({ moved: [schema.count("Rows that are `pending` again, or deliveries that were added."), 42] }),
);

const NDJSON = "application/x-ndjson; charset=utf-8";
const SAMPLE_SIZE = 10;
const COUNTED_MS = 300;
const LINE_MS = 1000;

/** A replay whose caller sees how far it is, and ends it by leaving. */
export const followReplay = (admin: Admin) =>
  admin.operation("admin_replays", {
    summary: "Replay rows with progress, or count what would be moved",
    description:
      "As `POST /admin/replay`, but it answers with lines of JSON: every second `moved` so far, and the `finishedBefore` that moves " +
      "the rest if it ends early, then the answer of `POST /admin/replay` with `done`, or the `error` that ended it. It ends " +
      "when its caller disconnects; what it moved stays moved. With `dryRun` it moves nothing, counts for a third of a second, and answers with one object.",
    body: {
      fields: {
        ...replayFields(admin.destinations.names),
        dryRun: field.flag("Only count."),
        perSecond: field.wholeNumber(1, MOST_PER_SECOND, "Most rows in a second."),
        by: CALLER,
      },
      keywords: { description: EVERY_FILTER },
      examples: {
        dead: { summary: "Dead rows, slowly", value: { state: "dead", perSecond: 100, by: "alice" } },
        byTopic: { summary: "Count the rows of a topic within an hour", value: { ...HOUR, dryRun: true } },
      },
    },
    answers: [
      answer.plain("The progress.", NDJSON),
      answer.json(200, "Of a dry run.", DRY_RUN),
      answer.error(400, "No filter is set.", NO_FILTER, "InvalidRequest"),
      NO_DESTINATION_COLUMN,
      answer.invalidBody('"topic" is a number; a string is expected'),
      answer.STORAGE_FAILED,
      answer.TOO_MANY_READS,
    ],
    async work({ dryRun = false, perSecond, by, ...request }) {
      const { replay, run, heavyReads } = admin;
      requireFit(request);
      replay.check(request);
      if (dryRun) {
        const preview = () => run((signal) => replay.preview(request, SAMPLE_SIZE, signal, COUNTED_MS));
        return previewShown(await heavyReads(`preview ${JSON.stringify(request)}`, preview));
      }
      return (res, ignored) =>
        answerWithProgress(admin, res, ignored, (signal, onProgress) =>
          replay.run(request, by, signal, { perSecond, onProgress }),
        );
    },
  });

async function answerWithProgress(
  { run, show }: Pick<Admin, "run" | "show">,
  res: ServerResponse,
  ignored: readonly string[],
  work: (
    signal: AbortSignal,
    onProgress: (moved: number, finishedBefore: string | undefined) => void,
  ) => Promise<object>,
): Promise<void> {
  res.writeHead(200, { "Content-Type": NDJSON, "X-Accel-Buffering": "no" });
  let progress: { readonly moved: number; readonly finishedBefore?: string | undefined } = { moved: 0 };
  const write = (line: object) => {
    if (!res.destroyed) res.write(`${JSON.stringify(show(line))}\n`);
  };
  write(ignored.length > 0 ? { ...progress, ignored } : progress);
  const lines = setInterval(() => write(progress), LINE_MS);
  try {
    const done = await run(async (stopping) => {
      using ending = linked(stopping);
      res.once("close", () => ending.abort(new StoppingError("the caller has left")));
      return await work(ending.signal, (moved, finishedBefore) => {
        const isFirst = progress.finishedBefore !== finishedBefore;
        progress = { moved, finishedBefore };
        // Before the first row moves: the connection may break.
        if (isFirst) write(progress);
      });
    });
    write({ ...done, done: true });
  } catch (error) {
    if (!(error instanceof InterruptedError)) throw error;
    const { status: _status, ...line } = interruption(error);
    write(line);
  } finally {
    clearInterval(lines);
    res.end();
  }
}

const DRY_RUN = schema.object({
  count: [schema.count("Rows."), 30],
  isExact: [{ type: "boolean" }, true],
  sample: [schema.list({ type: "object" }), []],
  groups: schema.list(
    schema.object({
      reason: schema.nullable("string", "As the filter takes it; null of rows that are not dead."),
      topic: schema.TEXT_OR_NULL,
      destination: schema.nullable("string", "Null: no route sends them anywhere."),
      count: [schema.count("Rows."), 30],
    }),
    "The largest 20.",
  ),
});

function previewShown({ count, isExact, sample, groups }: ReplayPreview): object {
  const rows = sample.map(({ lastError: _lastError, destination: _destination, isPinned: _isPinned, ...row }) => ({
    ...row,
    sequence: splitSequence(row.sequence).sequence,
  }));
  return { count, isExact, sample: rows, groups };
}

const HOUR = {
  topic: "orders.created",
  createdAfter: "2025-01-31T12:00:00Z",
  createdBefore: "2025-01-31T13:00:00Z",
};

export const NO_DESTINATION_COLUMN = answer.error(
  501,
  "The outbox has no column for that.",
  ERRORS.noDestinationColumn,
);

const EVERY_FILTER =
  "Rows that match every given filter; at least one is required. `null` counts as absent, but for `destination`.";
const OF_DESTINATION =
  "Only rows that go to this destination: by the first route that matches, or since an earlier replay. " +
  "Null, beside another filter: only rows that no route sends anywhere.";

export const OF_GROUP =
  "that failed for this reason, as a list of failures or a dry run shows it: words with a digit (numbers, ids, times) " +
  "count as equal, and so does all behind the first 120 characters.";

/** @param names of the configured destinations */
export function replayFields(names: readonly string[]) {
  return {
    inbox: field.flag("Dead inbox rows, not finished outbox rows; takes `ids`, `source`, `state` and the instants."),
    source: field.text(STORABLE, "Only inbox rows of this source."),
    state: field.text(FINISHED_STATE, "Only delivered rows, or only dead ones."),
    ids: field.list(MESSAGE_ID, "Only these rows."),
    topic: field.text(STORABLE, "Only rows with this topic."),
    topics: field.list(STORABLE, "Only rows with one of these topics."),
    destination: field.orNull(field.text(destinationName(names), OF_DESTINATION)),
    reason: field.text(FAILURE, `Only dead rows ${OF_GROUP}`),
    createdAfter: field.text(instant("after"), "Only rows created after this instant."),
    createdBefore: field.text(instant("before"), "Only rows created before this instant."),
    finishedBefore: field.text(
      instant("before"),
      "Only rows that finished before this instant: for the rest of a replay that ended early, what it answered.",
    ),
    toDestination: field.text(
      destinationName(names),
      "Where they are delivered from now on; by default where they went before. No filter.",
    ),
    add: field.text(
      destinationName(names),
      "A destination of the list of their route, to which matching messages are delivered that never went there; goes " +
        "with `ids`, the topics and the instants. No filter.",
    ),
  };
}

/** @throws InvalidRequest for a field that does not go with the table; Refusal without a filter, which could mean everything */
function requireFit(request: ReplayRequest): void {
  const reason = misfit(request);
  if (reason !== undefined) throw new InvalidRequest(reason);
  if (!hasFilter(request)) throw new Refusal(400, NO_FILTER);
}
