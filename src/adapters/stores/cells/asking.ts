import { CellError, cellNames, StoreError } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type { Changed } from "../../../ports/finishedRows.ts";
import type { Store } from "../../../ports/store.ts";
import type { CellLink } from "./link.ts";

/** What one cell answered. */
interface Answer<T> {
  readonly cell: CellLink;
  readonly value: T;
}

/** What one cell failed with. */
export interface Failure {
  readonly cell: CellLink;
  readonly error: StoreError;
}

interface Answers<T> {
  /** In the order of the cells. */
  readonly answers: readonly Answer<T>[];
  readonly failures: readonly Failure[];
}

type Work<T> = (store: Store, cell: CellLink) => Promise<T>;

/** Asks cells at the same time. @throws what is not an error of a database */
export async function askEach<T>(cells: readonly CellLink[], work: Work<T>): Promise<Answers<T>> {
  const answers: Answer<T>[] = [];
  const failures: Failure[] = [];
  const settled = await Promise.allSettled(cells.map((cell) => cell.ask((store) => work(store, cell))));
  for (const [n, cell] of cells.entries()) {
    const result = settled[n] as PromiseSettledResult<T>;
    if (result.status === "fulfilled") answers.push({ cell, value: result.value });
    else if (result.reason instanceof StoreError) failures.push({ cell, error: result.reason });
    else throw result.reason;
  }
  return { answers, failures };
}

/**
 * Reads from every cell that answers. A cell that is away is left out.
 *
 * @throws CellError when none answers, or one fails for another reason
 */
export async function readAll<T>(cells: readonly CellLink[], work: Work<T>): Promise<Answers<T>> {
  const { answers, failures } = await askEach(cells, work);
  const faults = failures.filter(({ error }) => error.code !== "unavailable");
  if (faults.length > 0) throw failed(faults);
  if (answers.length === 0 && failures.length > 0) throw failed(failures);
  return { answers, failures };
}

/** @returns what each cell has of a list that comes whole, one after the other, with the cell of each */
export async function readLists<T extends object>(cells: readonly CellLink[], work: Work<readonly T[]>) {
  const { answers } = await readAll(cells, work);
  return answers.flatMap(({ cell, value }) => value.map((each) => ({ ...each, cell: cell.name })));
}

/**
 * Changes rows. Every cell is asked, and changes its own.
 *
 * @throws CellError when a cell failed and some rows were not changed; it says what was done in the others
 */
export async function changeRows(
  cells: readonly CellLink[],
  ids: readonly MessageId[],
  work: Work<Changed>,
): Promise<Changed> {
  const { answers, failures } = await askEach(cells, work);
  const changed = answers.reduce((sum, { value }) => sum + value.changed, 0);
  const refusal = answers.map(({ value }) => value.refusal).find((reason) => reason !== undefined);
  if (failures.length === 0 || changed >= new Set(ids).size) return { changed, refusal };
  throw failed(failures, `${changed === 1 ? "1 row was" : `${changed} rows were`} changed in the other cells`);
}

/** The error of an operation that failed in some cells. @param done what is true of the others; empty for nothing */
export function failed(failures: readonly Failure[], done = ""): CellError {
  const names = failures.map(({ cell }) => cell.name);
  const [first] = failures;
  const isAway = failures.every(({ error }) => error.code === "unavailable");
  const what = isAway
    ? `${cellNames(names)} ${names.length === 1 ? "does" : "do"} not answer`
    : `the operation failed in ${cellNames(names)}`;
  const cause = failures.length === 1 ? first?.error : new AggregateError(failures.map(({ error }) => error));
  return new CellError(first?.error.code ?? "other", names, `${what}${done === "" ? "" : `; ${done}`}`, { cause });
}
