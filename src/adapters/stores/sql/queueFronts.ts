import type { Clock } from "../../../time/clock.ts";
import { higher, lower } from "./rows.ts";

/** The name of the only queue of a table without destinations. */
export const ONE_QUEUE = "\0all";

interface FoundInOrder {
  readonly candidates: number;
  /** Those of the candidates that wait behind an earlier row of their key. */
  readonly heldBack: number;
  /** The candidates begin so many sequence numbers behind the first pending row of the queue. */
  readonly gap: number;
  readonly isFull: boolean;
}

interface FoundInStretch {
  /** The first row that it found, not behind a blocked key. */
  readonly first: string | undefined;
  /** Start of the next claim if it found none. */
  readonly end: string;
  /** No row of the queue is behind it. */
  readonly isRead?: boolean | undefined;
  readonly tookMs: number;
}

/** The start of the claims of each queue, remembered by one process. Without it claims are right, only slower. */
export class QueueFronts {
  readonly #clock: Clock;
  readonly #fronts = new Map<string, QueueFront>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  of(queue: string): QueueFront {
    let front = this.#fronts.get(queue);
    if (front === undefined) {
      front = new QueueFront(this.#clock);
      this.#fronts.set(queue, front);
    }
    return front;
  }

  /** Rows of any queue are free now. */
  sweepSoon(): void {
    for (const front of this.#fronts.values()) front.sweepSoon();
  }

  /** Rows are finished: others of their keys, which may go elsewhere, are free. */
  finished(): void {
    for (const front of this.#fronts.values()) if (front.isHeldBack) front.sweepSoon();
  }
}

/**
 * The claims of a queue start in order at the low-water mark, or at a cursor past a blocked front: rows behind blocked
 * keys, or not due.
 *
 * Sweeps find rows that become free or appear below the cursor. They read the front again from the mark on: a claim in
 * order first, which ends the cursor if the front is free by then, and then stretch by stretch, at most a twentieth of
 * the time. Retries need no sweep: an index has them by their due time.
 */
export class QueueFront {
  readonly #clock: Clock;
  #cursor: string | undefined;
  /** How far the running sweep has come. */
  #sweptTo: string | undefined;
  /** When the next stretch, or the next sweep, is due; monotonic ms. */
  #sweepAt = 0;
  /** The earliest time of the next sweep, even if rows are known to be free; monotonic ms. */
  #mayBeSweptAt = 0;
  /** Until then a queue in which nothing was found is not read again; monotonic ms. */
  #restsUntil = 0;
  /** Most rows of its front wait behind others of their keys. */
  isHeldBack = false;
  /** Rows put off since the front was last free. */
  #putOff = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether its claims are made in order from the mark. */
  get isOpen(): boolean {
    return this.#cursor === undefined || (this.#sweptTo === undefined && this.#clock.monotonic() >= this.#sweepAt);
  }

  /** Whether a claim past its blocked front is worth a statement now. */
  get isRested(): boolean {
    return this.#clock.monotonic() >= this.#restsUntil;
  }

  /** The claim of a stretch to make now. @param mark nothing is unfinished below it */
  stretch(mark: string): { readonly from: string; readonly isSweep: boolean } {
    const isSweep = this.#sweptTo !== undefined && this.#clock.monotonic() >= this.#sweepAt;
    return { from: higher((isSweep ? this.#sweptTo : this.#cursor) ?? mark, mark), isSweep };
  }

  /** @param mark the start of the claim */
  claimedInOrder({ candidates, heldBack, gap, isFull }: FoundInOrder, mark: string, tookMs: number): void {
    const isBlocked = (isFull && 2 * heldBack > candidates) || gap > LONGEST_GAP || this.#putOff > MOST_PUT_OFF;
    this.#putOff = 0;
    this.isHeldBack = isBlocked && 2 * heldBack > candidates;
    if (!isBlocked && candidates > 0) {
      this.#cursor = undefined;
    } else if (this.#cursor !== undefined && candidates > 0) {
      this.#sweptTo = mark;
      this.#sweepAt = this.#clock.monotonic();
    } else if (this.#cursor !== undefined || isBlocked) {
      this.#cursor ??= mark;
      this.#sweepEnded(tookMs);
    }
  }

  claimedStretch(isSweep: boolean, { first, end, isRead, tookMs }: FoundInStretch): void {
    const now = this.#clock.monotonic();
    if (first === undefined && !isSweep) this.#restsUntil = now + Math.min(REST_FACTOR * tookMs, LONGEST_REST_MS);
    if (!isSweep) {
      this.#cursor = higher(first ?? end, this.#cursor ?? "0");
    } else if (first !== undefined) {
      // The claims that follow start there.
      this.#cursor = lower(first, this.#cursor ?? first);
      this.#sweptTo = undefined;
      this.#sweepEnded(tookMs);
    } else if (isRead || this.#cursor === undefined || lower(end, this.#cursor) === this.#cursor) {
      this.#sweptTo = undefined;
      this.#sweepEnded(tookMs);
    } else {
      this.#sweptTo = end;
      this.#sweepAt = now + SWEEP_COST_FACTOR * tookMs;
    }
  }

  putOff(): void {
    this.#putOff += 1;
  }

  /** Rows below the cursor are free now: the next sweep comes after a short rest. */
  sweepSoon(): void {
    this.#sweepAt = Math.min(this.#sweepAt, this.#mayBeSweptAt);
    this.#restsUntil = 0;
  }

  #sweepEnded(tookMs: number): void {
    const now = this.#clock.monotonic();
    this.#sweepAt = now + Math.max(SWEEP_INTERVAL_MS, SWEEP_COST_FACTOR * tookMs);
    this.#mayBeSweptAt = now + SOON_FACTOR * tookMs;
  }
}

/** In sequence numbers: so many rows are read in a quarter of the time of a claim. */
const LONGEST_GAP = 5000;
const MOST_PUT_OFF = 1000;
const SWEEP_INTERVAL_MS = 1000;
const SWEEP_COST_FACTOR = 20;
const SOON_FACTOR = 4;
/** A look that found nothing takes an eleventh of the time at most. */
export const REST_FACTOR = 10;
const LONGEST_REST_MS = 100;
