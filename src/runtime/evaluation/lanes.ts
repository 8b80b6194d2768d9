import type { Evaluation } from "../../ports/evaluator.ts";
import type { EvaluationResult } from "./protocol.ts";

export interface EvaluationJob {
  readonly evaluation: Evaluation;
  readonly lane: Lane;
  readonly settle: (outcome: EvaluationResult | Error) => void;
  /** The time its lane was charged for it, in ms; 0 while it waits. */
  charged: number;
  /** It was lost with a worker that ended by itself. It runs again apart from others; a second loss fails it. */
  wasLost: boolean;
}

/** The evaluations of one `Evaluation.lane`. */
interface Lane {
  readonly name: string;
  /** Oldest first. */
  readonly waiting: EvaluationJob[];
  /** Characters of their inputs. */
  waitingLength: number;
  /** Time it has had of the shared workers, in ms: the lane that has had least is served next. */
  served: number;
  /** What its next evaluation is expected to take, in ms. */
  expectedMs: number;
  /** Until then (monotonic ms) it is served apart: an evaluation of it ended a worker or took all of its time. */
  apartUntil: number;
  /** Until then it is not served at all; later the time when it was last served apart. */
  restsUntil: number;
}

export interface LaneBounds {
  /** Refusable evaluations that wait. */
  readonly count: number;
  /** Characters of their inputs. */
  readonly length: number;
}

const DEFAULT_BOUNDS: LaneBounds = { count: 4096, length: 32 * 1024 * 1024 };
/** Weight of the last evaluation in what the next one is expected to take. */
const NEWEST = 0.1;
/** One evaluation counts for this many times the expected time at most, and 1 ms. */
const MAX_GROWTH = 4;
/** What the first evaluation of a lane is expected to take: it runs by itself. */
export const UNKNOWN_MS = 10;
/** How long after its last offence a lane is served apart. */
const APART_MS = 10_000;
/** A lane rests for as long as its offence took, at most this long: it gets at most half of the time apart. */
const MAX_REST_MS = 1000;
/** Lanes that are kept though they are idle, for the time they have had. */
const MAX_IDLE_LANES = 1000;

/**
 * The evaluations that wait, by lane. The time of the workers is shared fairly: the lane that has had least is next. A
 * lane may hold as much as all lanes together leave free, so that a lane that floods the queue leaves room for others.
 */
export class Lanes {
  readonly #bounds: LaneBounds;
  readonly #lanes = new Map<string, Lane>();
  /** `served` of the lane that was served last. */
  #clock = 0;
  #refusableCount = 0;
  #refusableLength = 0;

  constructor(bounds: LaneBounds = DEFAULT_BOUNDS) {
    this.#bounds = bounds;
  }

  /** Adds an evaluation. @returns false when it is refused, since too much waits */
  add(evaluation: Evaluation, settle: EvaluationJob["settle"]): boolean {
    const lane = this.#lane(evaluation.lane);
    if (evaluation.refusable === true && !this.#hasRoom(lane, evaluation)) return false;
    const job: EvaluationJob = { evaluation, lane, settle, charged: 0, wasLost: false };
    lane.waiting.push(job);
    this.#count(job, 1);
    return true;
  }

  /** Gives back evaluations that were taken and not run, in their order. */
  putBack(jobs: readonly EvaluationJob[]): void {
    for (const job of [...jobs].reverse()) {
      job.lane.served -= job.charged;
      job.charged = 0;
      job.lane.waiting.unshift(job);
      this.#count(job, 1);
    }
  }

  /**
   * The next evaluation; it stays in its lane until it is taken.
   *
   * @param apart whether of the lanes that are served apart, or of the others
   * @param now monotonic ms
   */
  next(apart: boolean, now: number): EvaluationJob | undefined {
    let best: Lane | undefined;
    for (const lane of this.#lanes.values()) {
      if (lane.waiting.length === 0 || lane.apartUntil > now !== apart || lane.restsUntil > now) continue;
      const isBefore = best === undefined || (apart ? lane.restsUntil < best.restsUntil : lane.served < best.served);
      if (isBefore) best = lane;
    }
    return best?.waiting[0];
  }

  /** Takes what `next` gave, and charges its lane with what it is expected to take. */
  take(job: EvaluationJob, apart: boolean, now: number): void {
    const { lane } = job;
    lane.waiting.shift();
    this.#count(job, -1);
    if (apart) {
      // Lanes that are served apart take turns.
      lane.restsUntil = now;
      return;
    }
    // A lane that was idle has saved nothing up.
    lane.served = Math.max(lane.served, this.#clock);
    this.#clock = lane.served;
    job.charged = lane.expectedMs;
    lane.served += job.charged;
  }

  /** An evaluation has ended after so many ms: its lane is charged with them, unless it was served apart. */
  ended({ lane, charged }: EvaluationJob, ms: number): void {
    if (charged > 0) lane.served += ms - charged;
    const { expectedMs } = lane;
    // An evaluation that a busy machine held up says little about the next.
    const counted = Math.min(ms, MAX_GROWTH * expectedMs + 1);
    lane.expectedMs = expectedMs === UNKNOWN_MS ? ms : expectedMs + NEWEST * (counted - expectedMs);
  }

  /** An evaluation of the lane ended a worker or took all of its time: the lane rests, then is served apart. */
  offended(lane: Lane, ms: number, now: number): void {
    lane.apartUntil = now + APART_MS;
    lane.restsUntil = now + Math.min(ms, MAX_REST_MS);
  }

  /** Monotonic ms when the last lane that is served apart joins the others; undefined without one. */
  apartUntil(now: number): number | undefined {
    const last = Math.max(...Array.from(this.#lanes.values(), ({ apartUntil }) => apartUntil));
    return last > now ? last : undefined;
  }

  /** Monotonic ms when the next lane with something that waits has rested; undefined when none rests. */
  restsUntil(now: number): number | undefined {
    let first: number | undefined;
    for (const { restsUntil, waiting } of this.#lanes.values()) {
      if (restsUntil > now && waiting.length > 0 && restsUntil < (first ?? Infinity)) first = restsUntil;
    }
    return first;
  }

  /** Takes everything that waits in the lanes that are served apart, or in the others, or in all. */
  drain(apart: boolean | "all", now: number): readonly EvaluationJob[] {
    const drained: EvaluationJob[] = [];
    for (const lane of this.#lanes.values()) {
      if (apart === "all" || lane.apartUntil > now === apart) drained.push(...lane.waiting.splice(0));
    }
    for (const job of drained) this.#count(job, -1);
    return drained;
  }

  #hasRoom(lane: Lane, { input }: Evaluation): boolean {
    if (lane.waiting.length === 0) return true;
    const { count, length } = this.#bounds;
    return (
      lane.waiting.length < count - this.#refusableCount &&
      lane.waitingLength + input.length <= length - this.#refusableLength
    );
  }

  #count({ lane, evaluation }: EvaluationJob, sign: 1 | -1): void {
    const length = sign * evaluation.input.length;
    lane.waitingLength += length;
    if (evaluation.refusable !== true) return;
    this.#refusableCount += sign;
    this.#refusableLength += length;
  }

  #lane(name: string): Lane {
    let lane = this.#lanes.get(name);
    if (lane !== undefined) return lane;
    if (this.#lanes.size >= MAX_IDLE_LANES) this.#forgetIdle();
    lane = { name, waiting: [], waitingLength: 0, served: 0, expectedMs: UNKNOWN_MS, apartUntil: 0, restsUntil: 0 };
    this.#lanes.set(name, lane);
    return lane;
  }

  /**
   * Forgets idle lanes that have had no more time than the others. A forgotten lane may still have running evaluations.
   */
  #forgetIdle(): void {
    const now = performance.now();
    for (const [name, lane] of this.#lanes) {
      if (lane.waiting.length === 0 && lane.served <= this.#clock && lane.apartUntil <= now) this.#lanes.delete(name);
    }
  }
}
