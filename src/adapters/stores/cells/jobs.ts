import type { Job, JobStore, NewJob } from "../../../ports/jobStore.ts";
import { askEach, askFirst, failed, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";
import { mergeLists, newestFirst } from "./merge.ts";
import { isOfCells, scopeText } from "./scope.ts";

/**
 * Replay jobs of all cells. A job is in the table of one, and moves rows of all. Where a cell committed a job and its
 * answer was lost, the next one has the job as well: the last cell that has it counts, and nobody takes the other one.
 */
export function cellJobs(cells: readonly CellLink[]): JobStore {
  const homes = new Map<string, CellLink>();
  const note = (id: string, cell: CellLink): void => {
    homes.set(id, cell);
    const [oldest] = homes.keys();
    if (homes.size > MOST_KNOWN && oldest !== undefined) homes.delete(oldest);
  };
  /** @throws CellError where a cell that does not answer may have the job */
  const find = async (id: string): Promise<{ readonly cell: CellLink; readonly job: Job } | undefined> => {
    const known = homes.get(id);
    const { answers, failures } = await readAll(known === undefined ? cells : [known], ({ jobs }) => jobs.get(id));
    for (const { cell, value: job } of answers.toReversed()) {
      if (job === undefined) continue;
      note(id, cell);
      return { cell, job: shown(job, cell) };
    }
    if (failures.length > 0) throw failed(failures, `the others have no replay ${id}`);
    return undefined;
  };
  /** Changes a job where it is. */
  const change = async <T>(id: string, work: (jobs: JobStore) => Promise<T>, otherwise: T): Promise<T> => {
    const cell = homes.get(id) ?? (await find(id))?.cell;
    return cell === undefined ? otherwise : await cell.ask(({ jobs }) => work(jobs), { insists: true });
  };
  return {
    async add(job, lease) {
      const { id } = job;
      const { cell } = await askFirst(cells, ({ jobs }) => jobs.add(stored(job), lease), {
        // Given up there, it is added in the next cell: it must not run twice.
        onLate: (_added, { store }) => void store.jobs.cancel(id).catch(() => {}),
      });
      note(id, cell);
    },

    get: async (id) => (await find(id))?.job,

    async list(limit) {
      const { answers } = await readAll(cells, ({ jobs }) => jobs.list(limit));
      const isLast = (id: string, n: number) =>
        !answers.slice(n + 1).some(({ value }) => value.some((job) => job.id === id));
      const lists = answers.map(({ cell, value }, n) =>
        value.filter(({ id }) => isLast(id, n)).map((job) => shown(job, cell)),
      );
      return mergeLists(
        lists,
        newestFirst(({ createdAt }) => createdAt),
        limit,
      );
    },

    async abandoned(limit) {
      const { answers } = await readAll(cells, ({ jobs }) => jobs.abandoned(limit));
      const ids = new Map(answers.flatMap(({ cell, value }) => value.map((id) => [id, cell] as const)));
      for (const [id, cell] of ids) {
        note(id, cell);
        if (answers.filter(({ value }) => value.includes(id)).length > 1) continue;
        const others = cells.filter((each) => each !== cell);
        const { answers: twins } = await askEach(others, ({ jobs }) => jobs.get(id));
        const twin = twins.find(({ value }) => value !== undefined);
        if (twin === undefined) continue;
        // That one is executed, or has ended: it is the job.
        note(id, twin.cell);
        ids.delete(id);
        await cell.ask(({ jobs }) => jobs.cancel(id));
      }
      return [...ids.keys()].slice(0, limit);
    },

    take: (id, lease) => change(id, (jobs) => jobs.take(id, lease), false),
    advance: (id, lease, progress) => change(id, (jobs) => jobs.advance(id, lease, progress), false),
    end: (id, token, state, error) => change(id, (jobs) => jobs.end(id, token, state, error), undefined),
    async cancel(id) {
      const { answers, failures } = await askEach(cells, ({ jobs }) => jobs.cancel(id), { insists: true });
      const isCancelled = answers.some(({ value }) => value);
      if (!isCancelled && failures.length > 0) throw failed(failures, `the others have no replay ${id} to cancel`);
      return isCancelled;
    },
    resume: (id) => change(id, (jobs) => jobs.resume(id), false),
  };
}

const MOST_KNOWN = 1000;

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
