import { BUCKETS } from "../../model/cells.ts";
import { errorText } from "../../model/errors.ts";
import { type BucketRow, type BucketTable, SUPERSEDED } from "../../ports/bucketStore.ts";
import type { Log } from "../../ports/runtime.ts";
import { resolvesWithin } from "../../time/wait.ts";
import {
  abandoned,
  type Cell,
  type HalfMove,
  halfMoves,
  type KnownCell,
  lostBy,
  nextEpoch,
  orphaned,
  type Place,
  placeOf,
  superseded,
  twinsOf,
  twinsText,
} from "./places.ts";

interface CellMapOptions {
  /** In the order of the configuration: the first one takes all buckets at first. */
  readonly cells: readonly Cell[];
  readonly log: Log;
  /** Longest wait for a cell, in ms. */
  readonly answerMs?: number;
}

/**
 * Where buckets are, as far as this process knows. It also ends what a mover that died has left: buckets between two
 * cells, and those whose lease has ended; and it mends what a cell that went back in time says of its buckets. Every
 * process may do so at any time, and all at once.
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
    return this.#cells.map(({ name, rows, server, trouble }) => {
      // One whose first answer does not count yet has no trouble, but nobody knows what it has.
      return { name, rows, server, trouble: trouble ?? (rows === undefined ? UNKNOWN : undefined) };
    });
  }

  async #read(): Promise<void> {
    const answered = await this.#readAll();
    await this.#assign(answered);
    const superseded = await Promise.all(answered.map((cell) => this.#supersede(cell)));
    const reopened = await Promise.all(answered.map((cell) => this.#reopen(cell)));
    await this.#answersOf(answered.filter((_, n) => superseded[n] || reopened[n]));
    const isWhole = answered.length === this.#cells.length;
    for (const move of halfMoves(this.#cells)) await this.#finish(move, isWhole);
    // What was read of one cell may be older than what was read of another: again.
    if (isWhole && orphaned(this.#cells).length > 0) {
      const again = await this.#answersOf(this.#cells);
      if (again.length === this.#cells.length)
        for (const move of orphaned(this.#cells)) await this.#finish(move, isWhole);
    }
    this.#noteTwins();
  }

  /** Logs it once. */
  #noteTwins(): void {
    const twins = twinsOf(this.#cells);
    if (twins !== undefined && !this.#areTwinsNoted)
      this.#log.error({ reason: twinsText(twins) }, "cells are mixed up");
    this.#areTwinsNoted = twins !== undefined;
  }

  /**
   * Reads all cells. One that went back says what was so before a move: it counts only beside what the others say after
   * that, each as the server that it was before.
   *
   * @returns those that have answered in time
   */
  async #readAll(): Promise<readonly ReadCell[]> {
    let answered = await this.#ask(this.#cells);
    let areSame = true;
    for (let tries = 0; tries < MOST_READINGS && this.#cells.some((cell) => cell.isAnotherServer); tries += 1) {
      const seen = this.#cells.map((cell) => cell.answeredBy);
      // One that failed a moment ago may know of a move of which the restarted one does not: it is waited for too.
      answered = await this.#ask(this.#cells, true);
      areSame = this.#cells.every((cell, n) => !cell.isAnotherServer || cell.answeredBy === seen[n]);
      if (areSame) break;
    }
    return this.#take(this.#cells, answered, () => areSame);
  }

  /** Reads cells again, between two readings of all. @returns those that have answered in time */
  async #answersOf(cells: readonly ReadCell[]): Promise<readonly ReadCell[]> {
    return this.#take(cells, await this.#ask(cells), () => false);
  }

  async #ask(cells: readonly ReadCell[], isPatient = false): Promise<readonly ReadCell[]> {
    const answers = await Promise.all(cells.map((cell) => cell.read(this.#answerMs, isPatient)));
    return cells.filter((_, n) => answers[n]);
  }

  /**
   * All at once: what one that went back says of its buckets means nothing without what the others say.
   *
   * @param mayBeAnother whether its answer counts although it is that of another server
   * @returns those that have answered and count
   */
  #take(
    cells: readonly ReadCell[],
    answered: readonly ReadCell[],
    mayBeAnother: (cell: ReadCell) => boolean,
  ): readonly ReadCell[] {
    const counted = cells.filter((cell) => !cell.isAnotherServer || mayBeAnother(cell));
    for (const cell of counted) cell.take();
    for (const cell of counted) this.#note(cell);
    return answered.filter((cell) => counted.includes(cell));
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

  async #supersede(cell: ReadCell): Promise<boolean> {
    const buckets = superseded(cell, this.#cells);
    if (buckets.length === 0) return false;
    let marked: readonly number[] = [];
    const isDone = await this.#change(cell, async () => {
      marked = await cell.cell.store.buckets.supersede(buckets);
    });
    if (marked.length > 0)
      this.#log.warn(
        { cell: cell.name, buckets: marked.length, cells: [...new Set(buckets.map((each) => each.cell))] },
        "the cell has gone back to before buckets left it: they stay where they went",
      );
    return isDone;
  }

  /** @param isWhole every cell has answered */
  async #finish(move: HalfMove, isWhole: boolean): Promise<void> {
    const { to, token, buckets } = move;
    const target = this.#cells.find((cell) => cell.name === to);
    // Where it does not answer, nobody can say what is in it.
    if (target === undefined || target.trouble !== undefined || target.rows === undefined) return;
    // As in `lostBy`: it may be a wrong database.
    if (token === SUPERSEDED && target.rows.size === 0) return;
    const store = target.cell.store.buckets;
    let opened: readonly number[] = [];
    const isDone = await this.#change(target, async () => {
      if (token !== null && token !== SUPERSEDED) {
        opened = await store.arrive(buckets, token);
        return;
      }
      // No note of the copies to go by: that of an earlier version, or of a move that the old cell has forgotten.
      const lost = token === null ? [] : lostBy(target, move);
      const kept = buckets.filter((each) => !lost.some(({ bucket }) => bucket === each.bucket));
      await store.open(kept);
      opened = kept.map(({ bucket }) => bucket);
    });
    if (!isDone) return;
    if (opened.length > 0) this.#log.info({ cell: to, buckets: opened.length }, "buckets have arrived");
    await this.#answersOf([target]);
    if (isWhole && target.trouble === undefined && lostBy(target, move).length > 0) await this.#takeBack(move);
  }

  /** The old cell has all rows of the buckets, and the messages that the new one received are lost. */
  async #takeBack({ from: name, to, token }: HalfMove): Promise<void> {
    // Behind the end of the move in the old cell: a note of it that the new one took before is seen now, as is a further move.
    if ((await this.#answersOf(this.#cells)).length < this.#cells.length) return;
    const [from, target] = [name, to].map((each) => this.#cells.find((cell) => cell.name === each));
    const move = halfMoves(this.#cells).find((each) => each.from === name && each.to === to && each.token === token);
    if (from === undefined || target === undefined || move === undefined) return;
    // Another mover may be about to open it under the next epoch.
    const lost = lostBy(target, move).map((each) => ({ ...each, nextEpoch: nextEpoch(each.bucket, this.#cells) }));
    let opened: readonly number[] = [];
    await this.#change(from, async () => {
      opened = await from.cell.store.buckets.takeBack(lost);
    });
    if (opened.length > 0)
      this.#log.warn(
        { cell: from.name, buckets: opened.length, lostBy: target.name },
        "the cell to which buckets had moved has gone back to before they came: they are open again where they were",
      );
    await this.#answersOf([from]);
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
/** Of cells that are restarted just then, behind the first one. */
const MOST_READINGS = 3;
const SILENT = "it does not answer";
const UNKNOWN = "it has not answered yet";

export interface CellOverview extends KnownCell {
  /** Why it is away; undefined where it answers. */
  readonly trouble: string | undefined;
}

/** A cell, and what was read of it last. */
class ReadCell implements CellOverview {
  readonly cell: Cell;
  rows: ReadonlyMap<number, BucketRow> | undefined;
  server: string | undefined;
  trouble: string | undefined;
  /** The log says that it is away. */
  wasNoted = false;
  /** What it has answered since the last {@link take}. */
  #answer: BucketTable | undefined;
  #reading: Promise<void> | undefined;

  constructor(cell: Cell) {
    this.cell = cell;
  }

  get name(): string {
    return this.cell.name;
  }

  /** The server of the answer that is still to be taken. */
  get answeredBy(): string | undefined {
    return this.#answer?.server;
  }

  /** It has answered as another server than the one known: it was restarted, and may have gone back. */
  get isAnotherServer(): boolean {
    return this.#answer !== undefined && this.#answer.server !== this.server;
  }

  /** Its last answer counts from now on. */
  take(): void {
    if (this.#answer === undefined) return;
    this.rows = new Map(this.#answer.rows.map((row) => [row.bucket, row]));
    this.server = this.#answer.server;
    this.#answer = undefined;
  }

  /**
   * @param isPatient waits for one that is away as well
   * @returns whether it has answered; else at once false for one that is away, whose answer counts with the next {@link take}
   */
  async read(answerMs: number, isPatient: boolean): Promise<boolean> {
    const isAway = this.trouble !== undefined && !isPatient;
    this.#reading ??= this.#readOnce();
    const reading = this.#reading;
    if (isAway) return await Promise.race([reading.then(() => this.trouble === undefined), soon()]);
    if (!(await resolvesWithin(answerMs, reading))) this.trouble = SILENT;
    return this.trouble === undefined;
  }

  async #readOnce(): Promise<void> {
    try {
      this.#answer = await this.cell.store.buckets.all();
      this.trouble = undefined;
    } catch (error) {
      this.trouble = errorText(error);
    } finally {
      this.#reading = undefined;
    }
  }
}

const soon = () => new Promise<boolean>((resolve) => setImmediate(() => resolve(false)));
