import type { Job, JobState, JobStore } from "../../../ports/jobStore.ts";
import {
  countOf,
  dateOf,
  LONGEST_NAME,
  type Named,
  numberOf,
  type Row,
  type StatementRunner,
  storable,
  textOf,
  type Values,
} from "./rows.ts";

/** The statements on jobs. `note` answers the `state`; `cancel` and `resume` answer `changed`, the number of rows. */
export type JobStatements<S> = Named<S, "add" | "get" | "list" | "note" | "cancel" | "resume">;

/** Replay jobs in a SQL database. */
export function jobStore<S>(runner: StatementRunner<S>, sql: JobStatements<S>): JobStore {
  const changes = async (statement: S, values: Values): Promise<boolean> =>
    countOf(await runner.run(statement, values), "changed") > 0;
  return {
    async add({ by, scope, ...job }, token) {
      await runner.run(sql.add, { ...job, by: storable(by, LONGEST_NAME), ...scope, token });
    },

    async get(id) {
      const [row] = await runner.run(sql.get, { id });
      return row && jobOf(row);
    },

    async list(limit) {
      return (await runner.run(sql.list, { limit })).map(jobOf);
    },

    async note(id, token, { lastError, ...progress }) {
      const error = lastError === null ? null : storable(lastError);
      const [row] = await runner.run(sql.note, { id, token, ...progress, error });
      return row?.state as JobState | undefined;
    },

    cancel: (id) => changes(sql.cancel, { id }),
    resume: (id, token) => changes(sql.resume, { id, token }),
  };
}

function jobOf(row: Row): Job {
  return {
    id: String(row.id).toLowerCase(),
    by: String(row.created_by),
    filter: String(row.filter),
    perSecond: row.per_second === null ? null : Number(row.per_second),
    state: row.state as JobState,
    total: row.total === null ? null : Number(row.total),
    moved: numberOf(row.moved, 0),
    scope: { finishedUntil: String(row.finished_until), lastSequence: String(row.last_sequence) },
    position: textOf(row.position),
    createdAt: dateOf(row.created_at),
    updatedAt: dateOf(row.updated_at),
    lastError: textOf(row.last_error),
  };
}
