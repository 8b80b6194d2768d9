import type { Job, JobStore, NewJob } from "../../../ports/jobStore.ts";
import { askFirst, failed, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";
import { mergeLists, newestFirst } from "./merge.ts";
import { isOfCells, scopeText } from "./scope.ts";

/** Replay jobs of all cells. A job is in the table of one, the first that answered at its start, and moves rows of all. */
export function cellJobs(cells: readonly CellLink[]): JobStore {
  /** @throws CellError where a cell that does not answer may have the job */
  const find = async (id: string): Promise<{ readonly cell: CellLink; readonly job: Job } | undefined> => {
    const { answers, failures } = await readAll(cells, ({ jobs }) => jobs.get(id));
    for (const { cell, value: job } of answers) if (job !== undefined) return { cell, job: shown(job, cell) };
    if (failures.length > 0) throw failed(failures, `the others have no replay ${id}`);
    return undefined;
  };
  /** Changes a job where it is. */
  const change = async <T>(id: string, work: (jobs: JobStore) => Promise<T>, otherwise: T): Promise<T> =>
    (await (await find(id))?.cell.ask(({ jobs }) => work(jobs), { insists: true })) ?? otherwise;
  return {
    async add(job, token) {
      const { cell } = await askFirst(cells, ({ jobs }) => jobs.get(job.id));
      await cell.ask(({ jobs }) => jobs.add(stored(job), token));
    },

    get: async (id) => (await find(id))?.job,

    async list(limit) {
      const { answers } = await readAll(cells, ({ jobs }) => jobs.list(limit));
      return mergeLists(
        answers.map(({ cell, value }) => value.map((job) => shown(job, cell))),
        newestFirst(({ createdAt }) => createdAt),
        limit,
      );
    },

    note: (id, token, progress) => change(id, (jobs) => jobs.note(id, token, progress), undefined),
    cancel: (id) => change(id, (jobs) => jobs.cancel(id), false),
    resume: (id, token) => change(id, (jobs) => jobs.resume(id, token), false),
  };
}

/** The scopes of several cells do not fit the columns of one; a filter is of any length. */
function stored(job: NewJob): NewJob {
  const { filter, scope } = job;
  const kept: StoredFilter = { filter: JSON.parse(filter), cells: scope.finishedUntil };
  return { ...job, filter: JSON.stringify(kept), scope: { ...scope, finishedUntil: "" } };
}

interface StoredFilter {
  readonly filter: unknown;
  readonly cells: string;
}

/** A job of before there were cells moves the rows of its own. */
function shown(job: Job, { name }: CellLink): Job {
  const { scope } = job;
  if (!isOfCells(scope)) return { ...job, cell: name, scope: scopeText([{ name, scope }]) };
  const { filter, cells } = JSON.parse(job.filter) as StoredFilter;
  return { ...job, cell: name, filter: JSON.stringify(filter), scope: { ...scope, finishedUntil: cells } };
}
