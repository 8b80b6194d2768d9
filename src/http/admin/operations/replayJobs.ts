import type { JobRun, ReplayJobs } from "../../../core/operations/replayJobs.ts";
import { hasFilter, MOST_PER_SECOND, NO_FILTER, type ReplayPreview } from "../../../core/operations/replayRequest.ts";
import { splitSequence } from "../../../model/cellPositions.ts";
import * as schema from "../../../model/described.ts";
import { errorText } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import { JOB_STATES } from "../../../ports/jobStore.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, AS_ALICE, CALLER, InvalidRequest, idInPath, onTable, Refusal } from "../operation.ts";
import { HOUR, NO_DESTINATION_COLUMN, replayFields, requireFit, someFilter } from "./replay.ts";

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
function runJob({ jobs, run, log }: Pick<Admin, "jobs" | "run" | "log">, job: JobRun): void {
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

const MOST_JOBS = 50;

export const listReplays = ({ read, jobs }: Admin) =>
  read("admin_replays", {
    summary: "Show the replays",
    description: `The newest ${MOST_JOBS}.`,
    answers: [
      answer.json(200, "The replays.", schema.fromCells({ jobs: schema.list(JOB) })),
      NO_JOB_TABLE,
      answer.STORAGE_FAILED,
    ],
    work: () => onTable(ERRORS.noJobTable, async () => ({ jobs: await jobs.list(MOST_JOBS) })),
  });

const { TEXT, TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

export const showReplay = ({ operation, jobs }: Admin) =>
  operation("admin_replay_job", {
    summary: "Show a replay",
    description: "With its progress.",
    path: JOB_ID,
    answers: [THE_JOB, NO_JOB, NO_JOB_TABLE, answer.STORAGE_FAILED],
    work: ({ id }) => onTable(ERRORS.noJobTable, () => jobOf(jobs, id)),
  });

const JOB_ID = idInPath("Id of the replay.");

const JOB = schema.object({
  id: [UUID, "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  state: [{ enum: JOB_STATES }, "running"],
  by: [TEXT, "alice (admin route)"],
  createdAt: [TIME_OR_NULL, "2025-01-31T12:00:00.000Z"],
  updatedAt: [{ ...TIME_OR_NULL, description: "Of its last progress or change." }, "2025-01-31T12:00:02.000Z"],
  filter: [{ type: "object", description: "As it was given." }, { state: "dead" }],
  perSecond: [schema.nullable("integer"), 100],
  total: [schema.nullable("integer", "Rows that matched at the start; null where counting them took too long."), 1200],
  moved: [schema.count("Rows moved so far."), 200],
  lastError: TEXT_OR_NULL,
});

const THE_JOB = answer.json(200, "The replay.", JOB);
const NO_JOB = answer.error(404, "No such replay.", ERRORS.noJob);
const NO_JOB_TABLE = answer.error(501, "The table of the replay jobs is not usable.", ERRORS.noJobTable);

/** @throws Refusal when there is no such replay */
async function jobOf(jobs: Pick<ReplayJobs, "get">, id: MessageId | undefined) {
  const job = id === undefined ? undefined : await jobs.get(id);
  if (job === undefined) throw new Refusal(404, ERRORS.noJob);
  return job;
}

export const cancelReplay = (admin: Admin) =>
  admin.operation("admin_replay_cancel", {
    summary: "Cancel a replay",
    description: "It never goes on; what it moved stays moved.",
    ...jobChange(admin, "cancelled", (id, by) => admin.jobs.cancel(id, by)),
  });

/** What the end and the resumption of a replay share. @param change returns false when its state does not allow it */
function jobChange(
  { jobs }: Pick<Admin, "jobs">,
  what: "cancelled" | "resumed",
  change: (id: MessageId, by: string) => Promise<boolean>,
) {
  const refusal = (state: string) => `The job cannot be ${what}: it is ${state}`;
  return {
    path: JOB_ID,
    body: { fields: { by: CALLER }, examples: AS_ALICE },
    answers: [
      THE_JOB,
      answer.invalidBody("..."),
      NO_JOB,
      answer.error(409, "Its state does not allow it.", refusal("done")),
      NO_JOB_TABLE,
      answer.STORAGE_FAILED,
    ],
    work: ({ id, by }: { readonly id: MessageId | undefined; readonly by: string }) =>
      onTable(ERRORS.noJobTable, async () => {
        const job = await jobOf(jobs, id);
        if (!(await change(id as MessageId, by))) throw new Refusal(409, refusal(job.state));
        return await jobOf(jobs, id);
      }),
  };
}

export const resumeReplay = (admin: Admin) =>
  admin.operation("admin_replay_resume", {
    summary: "Resume a replay",
    description:
      "A running, interrupted or failed one continues behind its last batch, in this process; another process that runs it stops.",
    ...jobChange(admin, "resumed", async (id, by) => {
      const job = await admin.jobs.resume(id, by);
      if (job !== undefined) runJob(admin, job);
      return job !== undefined;
    }),
  });
