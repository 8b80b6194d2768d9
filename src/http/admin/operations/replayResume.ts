import type { Admin } from "../operation.ts";
import { jobChange } from "./replayCancel.ts";
import { runJob } from "./replayStart.ts";

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
