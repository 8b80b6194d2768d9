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

/** The statements on jobs. Those that change one answer `changed`, the number of rows. */
export type JobStatements<S> = Named<
  S,
  "add" | "get" | "list" | "take" | "abandoned" | "advance" | "end" | "cancel" | "resume"
>;

/** Replay jobs in a SQL database. */
export function jobStore<S>(runner: StatementRunner<S>, sql: JobStatements<S>): JobStore {
  const changes = async (statement: S, values: Values): Promise<boolean> =>
    countOf(await runner.run(statement, values), "changed") > 0;
  return {
    async add({ id, by, filter, perSecond, total, scope }, { token, leaseMs }) {
      const job = { id, by: storable(by, LONGEST_NAME), filter, perSecond, total, ...scope };
      await runner.run(sql.add, { ...job, token, leaseMs });
    },

    async get(id) {
      const [row] = await runner.run(sql.get, { id });
      return row && jobOf(row);
    },

    async list(limit) {
      return (await runner.run(sql.list, { limit })).map(jobOf);
    },

    take: (id, { token, leaseMs }) => changes(sql.take, { id, token, leaseMs }),

    async abandoned(limit) {
      return (await runner.run(sql.abandoned, { limit })).map((row) => String(row.id).toLowerCase());
    },

    advance: (id, { token, leaseMs }, { moved, position, left = null }) =>
      changes(sql.advance, { id, token, leaseMs, moved, position, left: left === null ? null : storable(left) }),

    async end(id, token, state, error) {
      await runner.run(sql.end, { id, token, state, error: error === null ? null : storable(error) });
    },

    cancel: (id) => changes(sql.cancel, { id }),
    resume: (id) => changes(sql.resume, { id }),
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
