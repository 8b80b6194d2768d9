import { errorText, StoreError } from "../../../model/errors.ts";
import type { MissingCell, OperatorStore } from "../../../ports/operatorStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { resolvesWithin, waitOrAbort, withTimeout } from "../../../time/wait.ts";

/** A cell of the installation. */
export interface Cell {
  readonly name: string;
  readonly store: OperatorStore;
  /** False until its tables were checked: nobody asks it before. True by default. */
  readonly isReady?: (() => boolean) | undefined;
}

export interface AskOptions<T> {
  /** For changes: waits for the ping of a cell that was away a moment ago, instead of leaving it out. */
  readonly insists?: boolean | undefined;
  /** Ends the wait for a cell that answers pings: a StoreError of the code `contention`. */
  readonly patience?: AbortSignal | undefined;
  /** Is given the result of a statement that was given up and ran all the same. */
  readonly onLate?: ((value: T, cell: CellLink) => void) | undefined;
}

/**
 * Asks one cell, and keeps its trouble from everybody else: whoever asks a cell that hangs waits two seconds once. Then
 * the cell is left out until it answers a ping, which somebody who asks sends in passing now and then. A cell that is
 * only slow answers pings meanwhile, and is waited for.
 */
export class CellLink {
  readonly name: string;
  /** Whether what its store found in the tables is known. Assumed of a cell whose tables others check. */
  isChecked = true;
  readonly #cell: Cell;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Set by the latest answer: undefined while the cell answers. */
  #missing: MissingCell | undefined;
  /** How many calls it was left out of so far, and why of the last one. */
  #leftOut = 0;
  #lastMissing: MissingCell | undefined;
  /** Monotonic ms until which a cell that hangs is left out. */
  #restsUntil = Number.NEGATIVE_INFINITY;
  #hangs = false;
  #ping: Promise<void> | undefined;
  /** Errors that name the cell. */
  readonly #named = new WeakSet<StoreError>();

  constructor(cell: Cell, clock: Clock, log: Log) {
    this.name = cell.name;
    this.#cell = cell;
    this.#clock = clock;
    this.#log = log.child({ cell: cell.name });
  }

  /** @returns tells why it was left out of a call since, or is now; undefined while it answers all */
  watch(): () => MissingCell | undefined {
    const before = this.#leftOut;
    return () => (this.#leftOut === before ? this.#missing : this.#lastMissing);
  }

  get isReady(): boolean {
    return this.#cell.isReady?.() !== false;
  }

  /** The store of the cell, for what asks the database nothing. */
  get store(): OperatorStore {
    return this.#cell.store;
  }

  /**
   * Asks the cell.
   *
   * @param work reads the parts of the store anew: a store replaces them after the check of its tables
   * @throws StoreError that names the cell; with the code `unavailable` when it does not answer
   */
  async ask<T>(work: (store: OperatorStore) => Promise<T>, options: AskOptions<T> = {}): Promise<T> {
    if (!this.isReady) throw this.#lost(new Error("its tables have not been checked yet"));
    if (this.#hangs && options.insists === true) await this.#answersPing();
    if (this.#hangs) {
      if (this.#clock.monotonic() >= this.#restsUntil) this.#answersPing().catch(ignore);
      throw this.#error();
    }
    try {
      const value = await this.#watched(work, options);
      this.#found();
      return value;
    } catch (error) {
      throw error instanceof StoreError ? this.#naming(error) : error;
    }
  }

  /** Waits as long as the cell answers pings, and the caller is patient. */
  async #watched<T>(work: (store: OperatorStore) => Promise<T>, { patience, onLate }: AskOptions<T>): Promise<T> {
    const working = work(this.#cell.store);
    const awaited = patience === undefined ? working : this.#whilePatient(working, patience);
    try {
      while (!(await resolvesWithin(PATIENCE_MS, awaited)))
        await Promise.race([awaited.then(ignore, ignore), this.#answersPing()]);
      return await awaited;
    } catch (error) {
      working.then((value) => onLate?.(value, this), ignore);
      throw error;
    }
  }

  async #whilePatient<T>(working: Promise<T>, patience: AbortSignal): Promise<T> {
    try {
      return await waitOrAbort(working, patience, "the cell");
    } catch (error) {
      if (!patience.aborted) throw error;
      throw new StoreError("contention", "the database is slow: it was not waited for any longer", { cause: error });
    }
  }

  /** Callers share a ping. @throws StoreError when it is not answered in time: then the cell rests */
  async #answersPing(): Promise<void> {
    this.#ping ??= withTimeout(PING_MS, "the ping", () => this.#cell.store.ping())
      .then(
        () => this.#found(),
        (error: unknown) => {
          this.#hangs = true;
          this.#restsUntil = this.#clock.monotonic() + REST_MS;
          throw this.#lost(error);
        },
      )
      .finally(() => {
        this.#ping = undefined;
      });
    await this.#ping;
  }

  #found(): void {
    if (this.#missing !== undefined) this.#log.info({}, "the cell answers again");
    this.#missing = undefined;
    this.#hangs = false;
  }

  #lost(cause: unknown): StoreError {
    const reason = errorText(cause);
    if (this.#missing === undefined) this.#log.warn({ reason }, "the cell does not answer");
    this.#missing = { name: this.name, reason, since: this.#missing?.since ?? new Date(this.#clock.now()) };
    return this.#error();
  }

  #error(): StoreError {
    this.#leftOut += 1;
    this.#lastMissing = this.#missing;
    const reason = this.#missing?.reason ?? "";
    const error = new StoreError("unavailable", `the cell ${this.name} does not answer: ${reason}`);
    this.#named.add(error);
    return error;
  }

  /** The error of a statement, with the name of the cell. */
  #naming(error: StoreError): StoreError {
    if (this.#named.has(error)) return error;
    if (error.code === "unavailable") return this.#lost(error);
    this.#found();
    return new StoreError(error.code, `in the cell ${this.name} ${error.message}`, { cause: error.cause });
  }
}

/** After which a call looks whether the cell answers at all, in ms. */
const PATIENCE_MS = 1000;
const PING_MS = 1000;
/** Within which a call finds out that the cell hangs, in ms. */
export const HANG_FOUND_MS = PATIENCE_MS + PING_MS;
/** Between two pings of a cell that hangs. */
const REST_MS = 5000;

function ignore(): void {}
