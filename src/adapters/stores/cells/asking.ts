import { CellError, cellNames, StoreError } from "../../../model/errors.ts";
import type { OperatorStore } from "../../../ports/operatorStore.ts";
import type { AskOptions, CellLink } from "./link.ts";

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

export interface Answers<T> {
  /** In the order of the cells. */
  readonly answers: readonly Answer<T>[];
  readonly failures: readonly Failure[];
}

/** Asks cells at the same time. @throws what is not an error of a database */
export async function askEach<T>(
  cells: readonly CellLink[],
  work: (store: OperatorStore, cell: CellLink) => Promise<T>,
  options: AskOptions<T> = {},
): Promise<Answers<T>> {
  const settled = await Promise.allSettled(cells.map((cell) => cell.ask((store) => work(store, cell), options)));
  const answers: Answer<T>[] = [];
  const failures: Failure[] = [];
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
export async function readAll<T>(
  cells: readonly CellLink[],
  work: (store: OperatorStore, cell: CellLink) => Promise<T>,
): Promise<Answers<T>> {
  const { answers, failures } = await askEach(cells, work);
  const faults = failures.filter(({ error }) => error.code !== "unavailable");
  if (faults.length > 0) throw failed(faults, "");
  if (answers.length === 0 && failures.length > 0) throw failed(failures, "");
  return { answers, failures };
}

/** Asks one cell after the other until one answers. @throws CellError when none does, or the error of one that fails */
export async function askFirst<T>(
  cells: readonly CellLink[],
  work: (store: OperatorStore) => Promise<T>,
): Promise<Answer<T>> {
  const failures: Failure[] = [];
  for (const cell of cells) {
    try {
      return { cell, value: await cell.ask(work) };
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      failures.push({ cell, error });
      if (error.code !== "unavailable") break;
    }
  }
  throw failed(failures, "");
}

/** The error of an operation that failed in some cells. @param done what was done in the others; empty for nothing */
export function failed(failures: readonly Failure[], done: string): CellError {
  const names = failures.map(({ cell }) => cell.name);
  const [first] = failures;
  const isAway = failures.every(({ error }) => error.code === "unavailable");
  const what = isAway
    ? `${cellNames(names)} ${names.length === 1 ? "does" : "do"} not answer`
    : `the operation failed in ${cellNames(names)}`;
  const cause = failures.length === 1 ? first?.error : new AggregateError(failures.map(({ error }) => error));
  return new CellError(first?.error.code ?? "other", names, `${what}${done === "" ? "" : `; ${done}`}`, { cause });
}
