import { cellSequence, splitSequence } from "../../../model/cellPositions.ts";
import { CellError, cellNames } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type { FinishedRow, ReplayStore } from "../../../ports/finishedRows.ts";
import type { OperatorStore } from "../../../ports/operatorStore.ts";
import type { ParkedRow, ParkedStore } from "../../../ports/store.ts";
import { type Answers, askEach, failed, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";
import { readScope, scopeText } from "./scope.ts";

/** Parked rows of all cells, in the order of the cells. */
export function cellParked(cells: readonly CellLink[], homes: Homes): ParkedStore {
  const change = (
    ids: readonly MessageId[],
    work: (store: ParkedStore, ids: readonly MessageId[]) => Promise<number>,
  ): Promise<number> => homes.change(ids, ({ parked }, part) => work(parked, part));
  return {
    async list(filter, after, limit) {
      const from = after === null ? { index: 0, sequence: "0" } : splitSequence(after);
      const { answers } = await readAll(cells.slice(from.index), (store, cell) =>
        store.parked.list(filter, cells.indexOf(cell) === from.index ? from.sequence : null, limit),
      );
      const rows = answers.flatMap(({ cell, value }) => value.map((row) => ofCell(row, cell, cells.indexOf(cell))));
      for (const { cell, value } of answers) homes.note(cell, value);
      return rows.slice(0, limit);
    },

    retry: (ids, by, onLeft) => change(ids, (parked, part) => parked.retry(part, by, onLeft)),
    discard: (ids, by, reason, onLeft) => change(ids, (parked, part) => parked.discard(part, by, reason, onLeft)),
    discardPending: (ids, by, reason, onLeft) =>
      change(ids, (parked, part) => parked.discardPending(part, by, reason, onLeft)),
    hasten: (ids, by, onLeft) => change(ids, (parked, part) => parked.hasten(part, by, onLeft)),
  };
}

/** A row as the rows of all cells are ordered. */
function ofCell<R extends ParkedRow | FinishedRow>(row: R, { name }: CellLink, index: number): R {
  return { ...row, cell: name, sequence: cellSequence(index, row.sequence) };
}

/**
 * Replays over all cells, cell by cell: rows of a key are in one. A scope has those that answered when it began; the
 * rest fail at the end of the replay, by name, after the others were replayed.
 */
export function cellReplay(cells: readonly CellLink[], homes: Homes): ReplayStore {
  const partOf = (name: string): CellLink => {
    const cell = cells.find((each) => each.name === name);
    if (cell !== undefined) return cell;
    throw new CellError("other", [name], `the cell ${name} of this replay is not configured any more`);
  };
  return {
    get overrideRemedy() {
      return cells.map(({ store }) => store.replay.overrideRemedy).find((remedy) => remedy !== undefined);
    },

    async begin() {
      const { answers, failures } = await readAll(cells, ({ replay }) => replay.begin());
      const begun = answers.map(({ cell, value }) => ({ name: cell.name, scope: value }));
      return scopeText([...begun, ...failures.map(({ cell }) => ({ name: cell.name, scope: undefined }))]);
    },

    async page(scope, filter, after, limit) {
      const parts = readScope(scope);
      const begin = after === null ? { index: 0, sequence: "0" } : splitSequence(after);
      const rows: FinishedRow[] = [];
      for (let { index, sequence } = begin; index < parts.length; index += 1, sequence = "0") {
        try {
          const part = parts[index];
          if (part?.scope === undefined) throw notBegun(parts.slice(index).map(({ name }) => name));
          const own = part.scope;
          const cell = partOf(part.name);
          const page = await cell.ask(({ replay }) => replay.page(own, filter, sequence, limit - rows.length), INSISTS);
          homes.note(cell, page.rows);
          rows.push(...page.rows.map((row) => ofCell(row, cell, index)));
          if (page.next !== null) return { rows, next: cellSequence(index, page.next) };
        } catch (error) {
          // The page after this one fails: these rows come first.
          if (index === begin.index) throw error;
          return { rows, next: cellSequence(index, "0") };
        }
        if (rows.length === limit && parts[index + 1] !== undefined)
          return { rows, next: cellSequence(index + 1, "0") };
      }
      return { rows, next: null };
    },

    async find(scope, filter, ids) {
      const parts = readScope(scope);
      const begun = parts.flatMap(({ name, scope: own }, index) =>
        own === undefined ? [] : [{ cell: partOf(name), own, index }],
      );
      const found = await Promise.all(
        begun.map(async ({ cell, own, index }) => {
          const rows = await cell.ask(({ replay }) => replay.find(own, filter, ids), INSISTS);
          homes.note(cell, rows);
          return rows.map((row) => ofCell(row, cell, index));
        }),
      );
      const away = parts.filter(({ scope: own }) => own === undefined).map(({ name }) => name);
      if (away.length > 0 && (await homes.of(ids)).unknown.length > 0) throw notBegun(away);
      return found.flat();
    },

    move(scope, ids, by, to, onLeft) {
      const scopes = new Map(readScope(scope).map(({ name, scope: own }) => [name, own]));
      return homes.change(ids, async ({ replay }, part, { name }) => {
        const own = scopes.get(name);
        return own === undefined ? 0 : await replay.move(own, part, by, to, onLeft);
      });
    },

    async untried(ids) {
      // It sets the pace alone: rows of a cell that is away wait for nobody.
      const { byCell } = await homes.of(ids);
      const { answers } = await askEach([...byCell.keys()], ({ replay }, cell) =>
        replay.untried(byCell.get(cell) ?? []),
      );
      return answers.reduce((sum, { value }) => sum + value, 0);
    },

    receiveAgain: (row) => partOf(row.cell ?? "").ask(({ replay }) => replay.receiveAgain(row), INSISTS),
  };
}

function notBegun(names: readonly string[]): CellError {
  const away = `${cellNames(names)} did not answer when the replay began`;
  return new CellError("other", names, `${away}; the rows there were not moved: start another replay for them`);
}

/** In which cell each outbox row is: it never moves to another one. */
export class Homes {
  readonly #cells: readonly CellLink[];
  readonly #known = new Map<MessageId, CellLink>();

  constructor(cells: readonly CellLink[]) {
    this.#cells = cells;
  }

  /** Remembers rows that a cell listed. */
  note(cell: CellLink, rows: readonly { readonly id: MessageId }[]): void {
    for (const { id } of rows) this.#known.set(id, cell);
    for (const id of this.#known.keys()) {
      if (this.#known.size <= MOST_KNOWN) break;
      this.#known.delete(id);
    }
  }

  /**
   * Finds the cells of rows. A row that is not known is looked up.
   *
   * @returns `unknown`: those that no cell has, of those that answered; `failures` has the others
   */
  async of(ids: readonly MessageId[]) {
    const byCell = new Map<CellLink, MessageId[]>();
    const add = (cell: CellLink, id: MessageId) => {
      const ids = byCell.get(cell);
      if (ids === undefined) byCell.set(cell, [id]);
      else ids.push(id);
    };
    const unknown = new Set<MessageId>();
    for (const id of ids) {
      const cell = this.#known.get(id);
      if (cell === undefined) unknown.add(id);
      else add(cell, id);
    }
    let failures: Answers<unknown>["failures"] = [];
    if (unknown.size > 0) {
      const asked = [...unknown];
      const found = await askEach(this.#cells, ({ messages }) => messages.inOutbox(asked));
      failures = found.failures;
      if (found.answers.length === 0 && failures.length > 0) throw failed(failures, "");
      for (const { cell, value } of found.answers) {
        for (const id of value) {
          add(cell, id);
          unknown.delete(id);
        }
      }
    }
    return { byCell, unknown: [...unknown], failures };
  }

  /**
   * Changes rows in their cells.
   *
   * @returns how many were changed
   * @throws CellError when a cell failed, or rows may be in one that does not answer; with what was done in the others
   */
  async change(
    ids: readonly MessageId[],
    work: (store: OperatorStore, ids: readonly MessageId[], cell: CellLink) => Promise<number>,
  ): Promise<number> {
    const { byCell, unknown, failures: away } = await this.of(ids);
    const { answers, failures } = await askEach(
      [...byCell.keys()],
      (store, cell) => work(store, byCell.get(cell) ?? [], cell),
      INSISTS,
    );
    const changed = answers.reduce((sum, { value }) => sum + value, 0);
    const all = unknown.length === 0 ? failures : [...failures, ...away];
    if (all.length === 0) return changed;
    const rows = changed === 1 ? "1 row was" : `${changed} rows were`;
    throw failed(all, `${rows} changed in the other cells`);
  }
}

const MOST_KNOWN = 50_000;
const INSISTS = { insists: true };
