import { CellError, cellNames, errorText, StoreError } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import type { Changed } from "../../../ports/finishedRows.ts";
import type { MissingCell } from "../../../ports/operatorStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { resolvesWithin, withTimeout } from "../../../time/wait.ts";

export interface Cell {
  readonly name: string;
  readonly store: Store;
  /** False until its tables were checked: nobody asks it before. True by default. */
  readonly isReady?: (() => boolean) | undefined;
}

/**
 * Isolates the faults of a cell: a caller waits two seconds once for a cell that hangs. The cell is then left out until
 * it answers a ping, which later calls send at intervals. A slow cell answers pings, and callers wait for it.
 */
export class CellLink {
  readonly name: string;
  /** In `database.cells`, from 0. */
  readonly place: number;
  readonly #cell: Cell;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Set by the latest answer: undefined while the cell answers. */
  #missing: MissingCell | undefined;
  /** Why it was left out of the latest call that it was left out of; another object each time. */
  #leftOut: MissingCell | undefined;
  /** Monotonic ms of the next ping; undefined unless the cell hangs. */
  #restsUntil: number | undefined;
  #ping: Promise<void> | undefined;

  constructor(cell: Cell, place: number, clock: Clock, log: Log) {
    this.name = cell.name;
    this.place = place;
    this.#cell = cell;
    this.#clock = clock;
    this.#log = log.child({ cell: cell.name });
  }

  /** @returns a function: why the cell was left out of a call since, or is now; undefined if it answered all */
  watch(): () => MissingCell | undefined {
    const before = this.#leftOut;
    return () => (this.#leftOut === before ? this.#missing : this.#leftOut);
  }

  get store(): Store {
    return this.#cell.store;
  }

  /**
   * @param work reads the parts of the store anew: a store replaces them after the check of its tables
   * @throws CellError `unavailable` when the cell does not answer; else the StoreError, with the name of the cell
   */
  async ask<T>(work: (store: Store) => Promise<T>): Promise<T> {
    if (this.#cell.isReady?.() === false) throw this.#leaveOut(new Error("its tables have not been checked yet"));
    if (this.#restsUntil !== undefined) {
      if (this.#clock.monotonic() >= this.#restsUntil) this.#answersPing().catch(ignore);
      throw this.#leaveOut();
    }
    try {
      const working = work(this.store);
      while (!(await resolvesWithin(PATIENCE_MS, working)))
        await Promise.race([working.then(ignore, ignore), this.#answersPing()]);
      const value = await working;
      this.#noteAnswer();
      return value;
    } catch (error) {
      if (!(error instanceof StoreError) || error instanceof CellError) throw error;
      if (error.code === "unavailable") throw this.#leaveOut(error);
      this.#noteAnswer();
      throw new StoreError(error.code, `in the cell ${this.name} ${error.message}`, { cause: error.cause });
    }
  }

  /** Callers share a ping, which reads the tables; locks may stop it. @throws CellError after a timeout: the cell rests */
  async #answersPing(): Promise<void> {
    this.#ping ??= withTimeout(PING_MS, "the ping", () => this.store.schema.hasUnfinished())
      .then(
        () => this.#noteAnswer(),
        (error: unknown) => {
          this.#restsUntil = this.#clock.monotonic() + REST_MS;
          throw this.#leaveOut(error);
        },
      )
      .finally(() => {
        this.#ping = undefined;
      });
    await this.#ping;
  }

  #noteAnswer(): void {
    if (this.#missing !== undefined) this.#log.info({}, "the cell answers again");
    this.#missing = undefined;
    this.#restsUntil = undefined;
  }

  /** Notes a call that the cell is left out of. @param cause undefined: that of the call before */
  #leaveOut(cause?: unknown): CellError {
    const before = this.#missing;
    const reason = cause === undefined ? (before?.reason ?? "") : errorText(cause);
    if (before === undefined) this.#log.warn({ reason }, "the cell does not answer");
    this.#missing = { name: this.name, reason, since: before?.since ?? new Date(this.#clock.now()) };
    this.#leftOut = this.#missing;
    return new CellError("unavailable", [this.name], `the cell ${this.name} does not answer`, {
      cause: new Error(reason),
    });
  }
}

/** After which a call looks whether the cell answers at all, in ms. */
const PATIENCE_MS = 1000;
const PING_MS = 1000;
const REST_MS = 1000;

function ignore(): void {}

interface Answer<T> {
  readonly cell: CellLink;
  readonly value: T;
}

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

/** Reads from every cell that answers. @throws CellError when none answers, or one fails for another reason */
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
 * Asks every cell to change its own rows.
 *
 * @throws CellError that says what was done, when a cell failed and rows remain
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
