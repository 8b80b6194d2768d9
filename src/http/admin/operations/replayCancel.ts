import type { MessageId } from "../../../model/rows.ts";
import { ERRORS } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, AS_ALICE, CALLER, onTable, Refusal } from "../operation.ts";
import { JOB_ID, jobOf, NO_JOB, NO_JOB_TABLE, THE_JOB } from "./replayJob.ts";

export const cancelReplay = (admin: Admin) =>
  admin.operation("admin_replay_cancel", {
    summary: "Cancel a replay",
    description: "It never goes on; what it moved stays moved.",
    ...jobChange(admin, "cancelled", (id, by) => admin.jobs.cancel(id, by)),
  });

/** What the end and the resumption of a replay share. @param change returns false when its state does not allow it */
export function jobChange(
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
