import type { ReplayJobs } from "../../../core/operations/replayJobs.ts";
import type { MessageId } from "../../../model/rows.ts";
import { JOB_STATES } from "../../../ports/jobStore.ts";
import { ERRORS } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, idInPath, onTable, Refusal } from "../operation.ts";

const { TEXT, TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

export const showReplay = ({ operation, jobs }: Admin) =>
  operation("admin_replay_job", {
    summary: "Show a replay",
    description: "With its progress.",
    path: JOB_ID,
    answers: [THE_JOB, NO_JOB, NO_JOB_TABLE, answer.STORAGE_FAILED],
    work: ({ id }) => onTable(ERRORS.noJobTable, () => jobOf(jobs, id)),
  });

export const JOB_ID = idInPath("Id of the replay.");

export const JOB = schema.object({
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

export const THE_JOB = answer.json(200, "The replay.", JOB);
export const NO_JOB = answer.error(404, "No such replay.", ERRORS.noJob);
export const NO_JOB_TABLE = answer.error(501, "The table of the replay jobs is not usable.", ERRORS.noJobTable);

/** @throws Refusal when there is no such replay */
export async function jobOf(jobs: Pick<ReplayJobs, "get">, id: MessageId | undefined) {
  const job = id === undefined ? undefined : await jobs.get(id);
  if (job === undefined) throw new Refusal(404, ERRORS.noJob);
  return job;
}
