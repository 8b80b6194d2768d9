import { cellSequence, splitSequence } from "../../../model/cellPositions.ts";
import { CellError, cellNames } from "../../../model/errors.ts";
import type { FinishedRow, ReplayScope, ReplayStore } from "../../../ports/finishedRows.ts";
import type { Job, JobStore } from "../../../ports/jobStore.ts";
import type { ParkedRow, ParkedStore } from "../../../ports/store.ts";
import { askEach, changeRows, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";

/** Parked rows of all cells, in the order of the cells. */
export function cellParked(cells: readonly CellLink[]): ParkedStore {
  return {
    async list(filter, after, limit) {
      const from = splitSequence(after ?? FIRST);
      const { answers } = await readAll(cells.slice(from.place), ({ parked }, { place }) =>
        parked.list(filter, place === from.place ? from.sequence : null, limit),
      );
      return answers.flatMap(({ cell, value }) => value.map((row) => ofCell(row, cell))).slice(0, limit);
    },

    retry: (ids, by) => changeRows(cells, ids, ({ parked }) => parked.retry(ids, by)),
    discard: (ids, by, reason) => changeRows(cells, ids, ({ parked }) => parked.discard(ids, by, reason)),
    discardPending: (ids, by, reason) => changeRows(cells, ids, ({ parked }) => parked.discardPending(ids, by, reason)),
    hasten: (ids, by) => changeRows(cells, ids, ({ parked }) => parked.hasten(ids, by)),
  };
}

const FIRST = "0";

/** A row as the rows of all cells are ordered. */
function ofCell<R extends ParkedRow | FinishedRow>(row: R, { name, place }: CellLink): R {
  return { ...row, cell: name, sequence: cellSequence(place, row.sequence) };
}

/**
 * Replays over all cells, cell by cell: rows of a key are in one. A scope has those that answered when it began; the
 * rest fail at the end of the replay, by name, after the others were replayed.
 */
export function cellReplay(cells: readonly CellLink[]): ReplayStore {
  /** @returns of each cell its part, null if it did not answer when the replay began */
  const partsOf = ({ finishedUntil }: ReplayScope) => JSON.parse(finishedUntil) as readonly (ReplayScope | null)[];
  const notBegun = (parts: readonly (ReplayScope | null)[]) => {
    const names = cells.flatMap(({ name, place }) => (parts[place] ? [] : [name]));
    const away = `${cellNames(names)} did not answer when the replay began`;
    return new CellError("other", names, `${away}; the rows there were not moved: start another replay for them`);
  };
  return {
    get destinationRemedy() {
      return cells.map(({ store }) => store.replay.destinationRemedy).find((remedy) => remedy !== undefined);
    },

    async begin() {
      const { answers } = await readAll(cells, ({ replay }) => replay.begin());
      const parts = cells.map((each) => answers.find(({ cell }) => cell === each)?.value ?? null);
      return { finishedUntil: JSON.stringify(parts), lastSequence: FIRST };
    },

    async page(scope, filter, after, limit) {
      const parts = partsOf(scope);
      const from = splitSequence(after ?? FIRST);
      const cell = cells.find(({ place }) => place >= from.place && parts[place]);
      const own = cell && parts[cell.place];
      if (!own) throw notBegun(parts);
      const begin = cell.place === from.place ? from.sequence : FIRST;
      const { rows, next } = await cell.ask(({ replay }) => replay.page(own, filter, begin, limit));
      const isLast = cell.place === cells.length - 1 && !parts.includes(null);
      const nextCell = isLast ? null : cellSequence(cell.place + 1, FIRST);
      return {
        rows: rows.map((row) => ofCell(row, cell)),
        next: next === null ? nextCell : cellSequence(cell.place, next),
      };
    },

    async find(scope, filter, ids) {
      const parts = partsOf(scope);
      const answers = await Promise.all(
        cells.map(async (cell) => {
          const own = parts[cell.place];
          return own
            ? (await cell.ask(({ replay }) => replay.find(own, filter, ids))).map((row) => ofCell(row, cell))
            : [];
        }),
      );
      const rows = answers.flat();
      // A message is found as its deliveries: whether these are all of it, its cell alone knows.
      const found = new Set(rows.map(({ id }) => id));
      if (parts.includes(null) && !ids.every((id) => found.has(id))) throw notBegun(parts);
      return rows;
    },

    move(scope, ids, by, to) {
      const parts = partsOf(scope);
      return changeRows(cells, ids, async ({ replay }, { place }) => {
        const own = parts[place];
        return own ? await replay.move(own, ids, by, to) : { changed: 0 };
      });
    },

    add: (ids, to) => changeRows(cells, ids, ({ replay }) => replay.add(ids, to)),

    async untried(ids) {
      // It sets the pace alone: rows of a cell that is away wait for nobody.
      const { answers } = await askEach(cells, ({ replay }) => replay.untried(ids));
      return answers.reduce((sum, { value }) => sum + value, 0);
    },

    async receiveAgain(row) {
      const cell = cells.find(({ name }) => name === row.cell);
      return (await cell?.ask(({ replay }) => replay.receiveAgain(row))) ?? false;
    },
  };
}

/** Replay jobs, in the control store. Scopes of several cells do not fit its columns, and are kept with the filter. */
export function cellJobs(control: CellLink): JobStore {
  const shown = (job: Job): Job => {
    // It began in one database.
    if (job.scope.finishedUntil !== NOT_HERE.finishedUntil) return job;
    const { filter, scope } = JSON.parse(job.filter) as { readonly filter: unknown; readonly scope: ReplayScope };
    return { ...job, filter: JSON.stringify(filter), scope };
  };
  return {
    add(job, token) {
      const filter = JSON.stringify({ filter: JSON.parse(job.filter), scope: job.scope });
      return control.ask(({ jobs }) => jobs.add({ ...job, filter, scope: NOT_HERE }, token));
    },

    async get(id) {
      const job = await control.ask(({ jobs }) => jobs.get(id));
      return job && shown(job);
    },

    list: async (limit) => (await control.ask(({ jobs }) => jobs.list(limit))).map(shown),
    note: (id, token, progress) => control.ask(({ jobs }) => jobs.note(id, token, progress)),
    cancel: (id) => control.ask(({ jobs }) => jobs.cancel(id)),
    resume: (id, token) => control.ask(({ jobs }) => jobs.resume(id, token)),
  };
}

const NOT_HERE: ReplayScope = { finishedUntil: "", lastSequence: FIRST };
