import type { JobRun } from "../../../core/operations/replayJobs.ts";
import { hasFilter, MOST_PER_SECOND, NO_FILTER, type ReplayPreview } from "../../../core/operations/replayRequest.ts";
import { splitSequence } from "../../../model/cellPositions.ts";
import { errorText } from "../../../model/errors.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, CALLER, InvalidRequest, onTable } from "../operation.ts";
import { HOUR, NO_DESTINATION_COLUMN, replayFields, requireFit, someFilter } from "./replay.ts";
import { JOB, NO_JOB_TABLE } from "./replayJob.ts";

const SAMPLE_SIZE = 10;

const DRY_RUN = schema.object({
  count: schema.count("Rows."),
  isExact: { type: "boolean" },
  sample: schema.list({ type: "object" }),
  groups: schema.list(
    schema.object({
      reason: schema.nullable("string", "As the filter takes it; null of rows that are not dead."),
      topic: schema.TEXT_OR_NULL,
      destination: schema.nullable("string", "Null: no route sends them anywhere."),
      count: schema.count("Rows."),
    }),
    "The largest 20.",
  ),
});

export const startReplay = (admin: Admin) =>
  admin.operation("admin_replay_start", {
    summary: "Start a replay, or count what it would move",
    description:
      "It runs in the process that was asked, also when its caller disconnects. " +
      "With `dryRun` it moves nothing, and counts for a third of a second. `inbox` needs `dryRun`.",
    body: {
      fields: {
        ...replayFields(admin.destinations.names),
        dryRun: field.flag("Only count."),
        perSecond: field.wholeNumber(1, MOST_PER_SECOND, "Most rows in a second."),
        by: CALLER,
      },
      keywords: { anyOf: someFilter({ dryRun: { const: true } }) },
      examples: {
        dead: { summary: "Dead rows, slowly", value: { state: "dead", perSecond: 100, by: "alice" } },
        byTopic: { summary: "Count the rows of a topic within an hour", value: { ...HOUR, dryRun: true } },
      },
    },
    answers: [
      answer.json(200, "The replay; of a dry run the count.", { oneOf: [JOB, DRY_RUN] }, schema.exampleOf(JOB)),
      answer.invalidBody("..."),
      NO_JOB_TABLE,
      NO_DESTINATION_COLUMN,
      answer.STORAGE_FAILED,
      answer.TOO_MANY_READS,
    ],
    async work({ dryRun = false, perSecond, by, ...request }) {
      const { jobs, run, heavyReads } = admin;
      requireFit(request);
      if (!hasFilter(request)) throw new InvalidRequest(NO_FILTER);
      if (request.inbox && !dryRun)
        throw new InvalidRequest('"inbox" needs "dryRun" here; POST /admin/replay moves the rows');
      return await onTable<object>(ERRORS.noJobTable, async () => {
        if (dryRun) {
          const preview = () => run((signal) => jobs.preview(request, SAMPLE_SIZE, signal));
          return previewShown(await heavyReads(`preview ${JSON.stringify(request)}`, preview));
        }
        const job = await run((signal) => jobs.start(request, by, perSecond ?? null, signal));
        runJob(admin, job);
        return (await jobs.get(job.id)) ?? {};
      });
    },
  });

/** Runs a replay in this process, also when its caller has gone. */
export function runJob({ jobs, run, log }: Pick<Admin, "jobs" | "run" | "log">, job: JobRun): void {
  run((signal) => jobs.execute(job, signal)).catch((error: unknown) =>
    log.error({ job: job.id, reason: errorText(error) }, "replay job failed"),
  );
}

function previewShown({ count, isExact, sample, groups }: ReplayPreview): object {
  const rows = sample.map(({ lastError: _lastError, destination: _destination, isPinned: _isPinned, ...row }) => ({
    ...row,
    sequence: splitSequence(row.sequence).sequence,
  }));
  return { count, isExact, sample: rows, groups };
}
