import { BUCKETS } from "../../model/cells.ts";
import { errorText } from "../../model/errors.ts";
import type { BucketRow } from "../../ports/bucketStore.ts";
import type { Log } from "../../ports/runtime.ts";
import { resolvesWithin } from "../../time/wait.ts";
import { abandoned, type Cell, halfMoved, type KnownCell, type Place, placeOf, twinsOf, twinsText } from "./places.ts";

interface CellMapOptions {
  /** In the order of the configuration: the first one takes all buckets at first. */
  readonly cells: readonly Cell[];
  readonly log: Log;
  /** Longest wait for a cell, in ms. */
  readonly answerMs?: number;
}

/**
 * Where buckets are, as far as this process knows. It also ends what a mover that died has left: buckets between two
 * cells, and those whose lease has ended. Every process may do so at any time, and all at once.
 */
export class CellMap {
  readonly #cells: readonly ReadCell[];
  readonly #log: Log;
  readonly #answerMs: number;
  #reading: Promise<void> | undefined;
  /** Of callers that came while another reads: what they ask about may be newer. */
  #next: Promise<void> | undefined;
  #areTwinsNoted = false;

  constructor({ cells, log, answerMs = ANSWER_MS }: CellMapOptions) {
    this.#cells = cells.map((cell) => new ReadCell(cell));
    this.#log = log;
    this.#answerMs = answerMs;
  }

  cellOf(bucket: number): Place {
    return placeOf(bucket, this.#cells);
  }

  /**
   * Reads the tables of all cells again, one read at a time. It waits for each cell a moment at most, and not for one
   * that did not answer the last time, of which it keeps what it knew. Never rejects.
   */
  async refresh(): Promise<void> {
    if (this.#reading === undefined) return await this.#begin();
    this.#next ??= this.#reading.then(() => {
      this.#next = undefined;
      return this.#begin();
    });
    await this.#next;
  }

  #begin(): Promise<void> {
    this.#reading = this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  /** What is known of each cell, in the order of the configuration. */
  cells(): readonly CellOverview[] {
    return this.#cells.map(({ name, rows, trouble }) => ({ name, rows, trouble }));
  }

  async #read(): Promise<void> {
    const answered = await this.#answersOf(this.#cells);
    await this.#assign(answered);
    const reopened = await Promise.all(answered.map((cell) => this.#reopen(cell)));
    await Promise.all([...halfMoved(this.#cells)].map(([name, buckets]) => this.#finish(name, buckets)));
    await this.#answersOf(answered.filter((_, n) => reopened[n]));
    this.#noteTwins();
  }

  /** Logs it once. */
  #noteTwins(): void {
    const twins = twinsOf(this.#cells);
    if (twins !== undefined && !this.#areTwinsNoted)
      this.#log.error({ reason: twinsText(twins) }, "cells are mixed up");
    this.#areTwinsNoted = twins !== undefined;
  }

  /** @returns those that have answered in time */
  async #answersOf(cells: readonly ReadCell[]): Promise<readonly ReadCell[]> {
    const answers = await Promise.all(cells.map((cell) => cell.read(this.#answerMs)));
    for (const cell of cells) this.#note(cell);
    return cells.filter((_, n) => answers[n]);
  }

  /** Logs that a cell went away, or came back. */
  #note(cell: ReadCell): void {
    const { name, trouble } = cell;
    if (cell.wasNoted === (trouble !== undefined)) return;
    cell.wasNoted = trouble !== undefined;
    if (trouble === undefined) this.#log.info({ cell: name }, "the cell answers again");
    else
      this.#log.warn(
        { cell: name, reason: trouble },
        "the cell is away: where its buckets are is as it was known last",
      );
  }

  /** The first cell takes everything: an installation that had one database keeps its keys there. */
  async #assign(answered: readonly ReadCell[]): Promise<void> {
    const [first] = this.#cells;
    if (first === undefined || answered.length < this.#cells.length) return;
    if (this.#cells.some(({ rows }) => rows?.size !== 0)) return;
    const all = Array.from({ length: BUCKETS }, (_, bucket) => ({ bucket, epoch: 1 }));
    if (!(await this.#change(first, () => first.cell.store.buckets.open(all)))) return;
    this.#log.info({ cell: first.name }, "no cell had any buckets: this one takes them all");
    // All of them: one that has the same table now is the same database.
    await this.#answersOf(answered);
  }

  async #reopen(cell: ReadCell): Promise<boolean> {
    const buckets = abandoned(cell);
    if (buckets.length === 0) return false;
    let opened: readonly number[] = [];
    const isDone = await this.#change(cell, async () => {
      opened = await cell.cell.store.buckets.reopen(buckets, null);
    });
    if (opened.length > 0)
      this.#log.warn(
        { cell: cell.name, buckets: opened.length },
        "buckets were being moved by a process that is gone: they stay here",
      );
    return isDone;
  }

  async #finish(name: string, buckets: readonly { readonly bucket: number; readonly epoch: number }[]): Promise<void> {
    const target = this.#cells.find((cell) => cell.name === name);
    // Where it does not answer, nobody can say what is in it.
    if (target === undefined || target.trouble !== undefined || target.rows === undefined) return;
    if (!(await this.#change(target, () => target.cell.store.buckets.open(buckets)))) return;
    this.#log.info({ cell: name, buckets: buckets.length }, "buckets have arrived");
    await target.read(this.#answerMs);
  }

  /** @returns whether it was done in time */
  async #change(cell: ReadCell, change: () => Promise<void>): Promise<boolean> {
    let isDone = false;
    const changed = change().then(
      () => {
        isDone = true;
      },
      (error: unknown) => {
        cell.trouble = errorText(error);
      },
    );
    if (!(await resolvesWithin(this.#answerMs, changed))) cell.trouble = SILENT;
    return isDone;
  }
}

const ANSWER_MS = 1000;
const SILENT = "it does not answer";

export interface CellOverview extends KnownCell {
  /** Why it is away; undefined where it answers. */
  readonly trouble: string | undefined;
}

/** A cell, and what was read of it last. */
class ReadCell implements CellOverview {
  readonly cell: Cell;
  rows: ReadonlyMap<number, BucketRow> | undefined;
  trouble: string | undefined;
  /** The log says that it is away. */
  wasNoted = false;
  #reading: Promise<void> | undefined;

  constructor(cell: Cell) {
    this.cell = cell;
  }

  get name(): string {
    return this.cell.name;
  }

  /** @returns whether it has answered; at once false for one that is away, whose answer counts when it comes */
  async read(answerMs: number): Promise<boolean> {
    const isAway = this.trouble !== undefined;
    this.#reading ??= this.#readOnce();
    const reading = this.#reading;
    if (isAway) return await Promise.race([reading.then(() => this.trouble === undefined), soon()]);
    if (!(await resolvesWithin(answerMs, reading))) this.trouble = SILENT;
    return this.trouble === undefined;
  }

  async #readOnce(): Promise<void> {
    try {
      const rows = await this.cell.store.buckets.all();
      this.rows = new Map(rows.map((row) => [row.bucket, row]));
      this.trouble = undefined;
    } catch (error) {
      this.trouble = errorText(error);
    } finally {
      this.#reading = undefined;
    }
  }
}

const soon = () => new Promise<boolean>((resolve) => setImmediate(() => resolve(false)));
