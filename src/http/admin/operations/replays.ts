import { ERRORS } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, onTable } from "../operation.ts";
import { JOB, NO_JOB_TABLE } from "./replayJob.ts";

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
