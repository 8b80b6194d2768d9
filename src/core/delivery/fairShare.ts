import { type Linked, LinkedList } from "../../model/linkedList.ts";
import type { Clock } from "../../time/clock.ts";
import type { Verdict } from "../destinations/breaker.ts";

/** A delivery that holds a slot. */
export interface Slot extends Linked {
  readonly destination: string;
  /** Monotonic ms. */
  readonly beganAt: number;
}

interface FairShareOptions {
  /** Slots: most deliveries at a time. */
  readonly concurrency: number;
  /** False with a single destination, which may then use every slot. */
  readonly isShared: boolean;
  /** Whether a destination was last seen slow or failing, before this process began to deliver to it. */
  readonly wasUnhealthy?: (destination: string) => boolean;
  readonly clock: Clock;
}

/**
 * Shares the slots of a process among its destinations, so that none starves another:
 *
 * - The one with the fewest slots gets the next free one.
 * - A destination begins with one slot, and gets one more with each delivery that succeeds, as long as they end within
 *   a second (TCP's slow start). So one that never answers holds a single slot.
 * - None gets all slots: a sixteenth, one at least, stays free for the others. While others are
 *   delivered to, those without any success yet get three quarters at most, however many never answer.
 * - A destination that is slow or fails is unhealthy. Slow: its deliveries take longer than a second and none has ended
 *   sooner lately, from then on until one succeeds sooner; or half of its last answers had to be cut off, since their
 *   body did not end. Failing: half of its last deliveries failed.
 * - As long as others want slots, all unhealthy ones together get an eighth of them, and one more for those that fail
 *   where slow ones hold them; those that fail begin one delivery for 256 of the others. Slow ones take turns: the one
 *   whose last delivery began first is next, and its rows are claimed then.
 * - One that was unhealthy before this process started counts as slow until a delivery succeeds. Such ones are tried one
 *   after another, a second apart (an eighth of the slots at a time), in no more than half of the slots while others want
 *   some: else many that hang would take every slot at the start, or one that hangs would keep those that have recovered
 *   waiting.
 */
export class FairShare {
  /** All slots (`outbox.concurrency`). */
  readonly concurrency: number;
  readonly #isShared: boolean;
  readonly #wasUnhealthy: (destination: string) => boolean;
  readonly #clock: Clock;
  /** Most slots of one destination. */
  readonly #most: number;
  /** Most slots of all unhealthy ones together while others want slots: an eighth. */
  readonly #eighth: number;
  readonly #half: number;
  /** Most slots of all those together that have not succeeded yet, while others have. */
  readonly #mostUnproven: number;
  readonly #states = new Map<string, State>();
  #inUse = 0;
  #begun = 0;
  /** The last delivery to a failing destination: its number among all deliveries, and when it began. */
  #lastOfFailing = { begun: Number.NEGATIVE_INFINITY, at: Number.NEGATIVE_INFINITY };
  /** When a row of a healthy destination last waited for a slot. */
  #waitedAt = Number.NEGATIVE_INFINITY;

  constructor({ concurrency, isShared, wasUnhealthy = () => false, clock }: FairShareOptions) {
    this.concurrency = concurrency;
    this.#isShared = isShared && concurrency > 1;
    this.#wasUnhealthy = wasUnhealthy;
    this.#clock = clock;
    this.#most = concurrency - Math.max(1, Math.floor(concurrency / 16));
    this.#eighth = Math.max(1, Math.floor(concurrency / 8));
    this.#half = Math.max(1, Math.floor(concurrency / 2));
    this.#mostUnproven = concurrency - Math.max(1, Math.floor(concurrency / 4));
  }

  /**
   * The destination that may begin a delivery now; undefined without a candidate or a free slot.
   *
   * @param ready destinations with a row to deliver
   * @param admits whether one of them may be delivered to otherwise; by default each
   */
  next(ready: readonly string[], admits: (destination: string) => boolean = () => true): string | undefined {
    const isFull = this.#inUse >= this.concurrency;
    if (!this.#isShared) return isFull ? undefined : ready.find(admits);
    const now = this.#clock.monotonic();
    const unhealthy: State[] = [];
    let someHealthyWaits = false;
    let best: State | undefined;
    for (const destination of ready) {
      if (!admits(destination)) continue;
      const state = this.#stateOf(destination, now);
      if (this.#isUnhealthy(state, now)) {
        unhealthy.push(state);
        continue;
      }
      someHealthyWaits = true;
      if (isFull) break;
      if (this.#mayBeginHealthy(state) && (best === undefined || isBefore(state, best))) best = state;
    }
    if (isFull) {
      if (someHealthyWaits) this.#waitedAt = now;
      return undefined;
    }
    const isContended = someHealthyWaits || this.#isContended(now);
    for (const state of unhealthy) {
      if (this.#mayBeginUnhealthy(state, now, isContended) && (best === undefined || isBefore(state, best)))
        best = state;
    }
    return best?.destination;
  }

  /** Whether any slot is free. */
  get hasSlot(): boolean {
    return this.#inUse < this.concurrency;
  }

  /** Deliveries so far. */
  get begun(): number {
    return this.#begun;
  }

  /** Rows that would begin to be delivered within so many ms: one for each free slot, and as many as ended of late. */
  beginWithin(ms: number): number {
    let perSecond = 0;
    for (const destination of this.#states.keys()) perSecond += this.perSecond(destination);
    return this.concurrency - this.#inUse + Math.floor((perSecond * ms) / 1000);
  }

  begin(destination: string): Slot {
    const now = this.#clock.monotonic();
    const slot: Slot = { destination, beganAt: now, previous: undefined, next: undefined };
    this.#inUse += 1;
    const state = this.#stateOf(destination, now);
    this.#begun += 1;
    state.lastBegin = this.#begun;
    state.deniedAt = Number.NEGATIVE_INFINITY;
    if (isFailing(state)) this.#lastOfFailing = { begun: this.#begun, at: now };
    state.slots.add(slot);
    return slot;
  }

  end(slot: Slot, verdict: Verdict): void {
    const now = this.#clock.monotonic();
    const state = this.#stateOf(slot.destination, now);
    this.#inUse -= 1;
    state.slots.delete(slot);
    state.isSuspected = false;
    countEnd(state, now);
    if (verdict === "unknown") return;
    if (verdict === "healthy") state.isProven = true;
    state.failures += ((verdict === "failed" ? 1 : 0) - state.failures) / ENDS_REMEMBERED;
    const wasSlow = now - slot.beganAt > SLOW_MS;
    if (wasSlow) state.lastWasSlow = now - state.lastQuickAt > SLOW_MS;
    // A fast failure after slow deliveries is not a recovery: without answers from its broker a client fails at once
    // for a while.
    else if (verdict === "healthy") state.lastWasSlow = false;
    if (!wasSlow && !state.lastWasSlow) state.lastQuickAt = now;
    if (state.lastWasSlow && this.#isContended(now)) state.window = 1;
    else if (verdict === "healthy") state.window = Math.min(state.window + 1, this.concurrency);
  }

  /**
   * The answer to a successful delivery has ended.
   *
   * @param isWhole false where it had to be cut off, which costs its connection
   */
  answerEnded(destination: string, isWhole: boolean): void {
    const state = this.#states.get(destination);
    if (state !== undefined) state.cutOff += ((isWhole ? 0 : 1) - state.cutOff) / ENDS_REMEMBERED;
  }

  /** A destination has recovered: it counts as healthy, and starts again with one slot. */
  forget(destination: string): void {
    const state = this.#states.get(destination);
    if (state === undefined) return;
    state.startAgain();
    state.lastQuickAt = this.#clock.monotonic();
  }

  /** False where every slot is open to every destination: with a single one, of either. */
  get isShared(): boolean {
    return this.#isShared;
  }

  /** Its turn has come, but none of its rows is due. */
  passTurn(destination: string): void {
    const state = this.#states.get(destination);
    if (state !== undefined) state.deniedAt = Number.NEGATIVE_INFINITY;
  }

  /** Whether deliveries to a destination hang or are slow. */
  isSlow(destination: string): boolean {
    const state = this.#states.get(destination);
    return state !== undefined && this.#isSlow(state, this.#clock.monotonic());
  }

  /** Whether a destination is slow or fails. */
  isUnhealthy(destination: string): boolean {
    if (!this.#states.has(destination)) return false;
    const now = this.#clock.monotonic();
    return this.#isUnhealthy(this.#stateOf(destination, now), now);
  }

  /**
   * Whether a delivery is slow and no other ended meanwhile, so that rows behind it would wait. Without any success yet,
   * every delivery counts as slow.
   */
  isStalled(destination: string): boolean {
    const state = this.#states.get(destination);
    if (!this.#isShared || state === undefined) return false;
    if (!state.isProven) return state.slots.size > 0;
    const now = this.#clock.monotonic();
    return state.lastEndedAt < now - STALLED_MS && state.oldestMs(now) > STALLED_MS;
  }

  /** Deliveries of a destination that ended in the last whole second. */
  perSecond(destination: string): number {
    const state = this.#states.get(destination);
    if (state === undefined) return 0;
    const second = Math.floor(this.#clock.monotonic() / 1000);
    if (second === state.second) return state.endedBefore;
    return second === state.second + 1 ? state.ended : 0;
  }

  /** Whether a destination may begin a delivery now, if it had a row. */
  mayBegin(destination: string): boolean {
    const now = this.#clock.monotonic();
    if (!this.#isShared) return true;
    const state = this.#stateOf(destination, now);
    return this.#isUnhealthy(state, now)
      ? this.#mayBeginUnhealthy(state, now, this.#isContended(now))
      : this.#mayBeginHealthy(state);
  }

  #mayBeginHealthy(state: State): boolean {
    return this.#hasWindow(state) && (state.isProven || this.#mayBeginUnproven());
  }

  #mayBeginUnproven(): boolean {
    const since = this.#clock.monotonic() - FORGOTTEN_AFTER_MS;
    let slots = 0;
    let isAnyProven = false;
    for (const state of this.#states.values()) {
      if (!state.isProven) slots += state.slots.size;
      else if (state.lastEndedAt >= since) isAnyProven = true;
    }
    return !isAnyProven || slots < this.#mostUnproven;
  }

  /** Whether a destination has fewer deliveries in flight than it has shown to need, and may have. */
  #hasWindow(state: State): boolean {
    return state.slots.size < Math.min(state.window, this.#most);
  }

  #mayBeginUnhealthy(state: State, now: number, isContended: boolean): boolean {
    if (!this.#hasWindow(state)) return false;
    const mayBegin = this.#hasTurn(state, now, isContended);
    if (!mayBegin) state.deniedAt = now;
    return mayBegin;
  }

  #hasTurn(state: State, now: number, isContended: boolean): boolean {
    const { all, young, youngSuspected } = this.#slotsOfUnhealthy(now);
    if (state.isSuspected) return youngSuspected < this.#eighth && all < (isContended ? this.#half : this.#most);
    if (!isContended) return all < this.#most;
    if (this.#isSlow(state, now) && (all >= this.#eighth || this.#goesFirst(state, now))) return false;
    if (young >= this.#eighth || all > this.#eighth) return false;
    if (!isFailing(state)) return true;
    const { begun, at } = this.#lastOfFailing;
    return this.#begun - begun >= TURNS_OF_OTHERS || now - at >= LONGEST_TURN_MS;
  }

  /** Whether the turn of another slow destination comes before that of this one. */
  #goesFirst(before: State, now: number): boolean {
    for (const state of this.#states.values()) {
      if (state.lastBegin < before.lastBegin && now - state.deniedAt <= TURN_KEPT_MS && this.#isSlow(state, now))
        return true;
    }
    return false;
  }

  #isUnhealthy(state: State, now: number): boolean {
    return isFailing(state) || this.#isSlow(state, now);
  }

  #isSlow(state: State, now: number): boolean {
    if (state.lastWasSlow || state.cutOff >= 0.5) return true;
    // A hanging delivery means little while others succeed.
    return now - state.lastQuickAt > SLOW_MS && state.oldestMs(now) > SLOW_MS;
  }

  #isContended(now: number): boolean {
    return now - this.#waitedAt <= CONTENDED_MS;
  }

  /**
   * Slots of unhealthy destinations, and those of them that are held briefly: one that hangs takes no turn from those that
   * fail. Of the latter, those of suspects.
   */
  #slotsOfUnhealthy(now: number): { readonly all: number; readonly young: number; readonly youngSuspected: number } {
    let all = 0;
    let young = 0;
    let youngSuspected = 0;
    for (const state of this.#states.values()) {
      if (!this.#isUnhealthy(state, now)) continue;
      all += state.slots.size;
      for (const { beganAt } of state.slots) {
        if (now - beganAt > SLOW_MS) continue;
        young += 1;
        if (state.isSuspected) youngSuspected += 1;
      }
    }
    return { all, young, youngSuspected };
  }

  #stateOf(destination: string, now: number): State {
    let state = this.#states.get(destination);
    if (state === undefined) {
      state = new State(destination, now, this.#wasUnhealthy(destination));
      this.#states.set(destination, state);
    } else if (state.slots.size === 0 && now - Math.max(state.lastEndedAt, state.deniedAt) > FORGOTTEN_AFTER_MS) {
      // Its history is outdated. While it only waits for its turn, nothing shows that it has recovered.
      state.startAgain();
      state.isProven = false;
    }
    return state;
  }
}

/** What is known of a destination. */
class State {
  readonly destination: string;
  /** In the order in which they began. */
  readonly slots = new LinkedList<Slot>();
  /** Most slots that it has shown to need. */
  window = 1;
  /** Share of the last deliveries that failed. */
  failures = 0;
  /** Share of the last answers that had to be cut off. */
  cutOff = 0;
  /** One of its deliveries has succeeded. */
  isProven = false;
  lastWasSlow: boolean;
  /** It was unhealthy before this process started, and none of its deliveries has ended since. */
  isSuspected: boolean;
  /** When it last had to wait for its turn; cleared once it takes or passes it. Monotonic ms. */
  deniedAt = Number.NEGATIVE_INFINITY;
  /** When a delivery last ended that did not take long; while the last one took long, only those that succeed count. */
  lastQuickAt = Number.NEGATIVE_INFINITY;
  /** The number of its last delivery among all that began. */
  lastBegin = Number.NEGATIVE_INFINITY;
  lastEndedAt: number;
  /** Monotonic second of the last end of a delivery; how many ended in it, and in the one before. */
  second = 0;
  ended = 0;
  endedBefore = 0;

  constructor(destination: string, now: number, wasUnhealthy: boolean) {
    this.destination = destination;
    this.lastEndedAt = now;
    this.lastWasSlow = wasUnhealthy;
    this.isSuspected = wasUnhealthy;
  }

  /** How long its oldest delivery has taken so far, in ms; 0 without any. */
  oldestMs(now: number): number {
    return this.slots.first === undefined ? 0 : now - this.slots.first.beganAt;
  }

  /** Its history says nothing any more. */
  startAgain(): void {
    this.window = 1;
    this.failures = 0;
    this.cutOff = 0;
    this.lastWasSlow = false;
  }
}

function countEnd(state: State, now: number): void {
  state.lastEndedAt = now;
  const second = Math.floor(now / 1000);
  if (second !== state.second) {
    state.endedBefore = second === state.second + 1 ? state.ended : 0;
    state.ended = 0;
    state.second = second;
  }
  state.ended += 1;
}

function isFailing(state: State): boolean {
  return state.failures >= 0.5;
}

function isBefore(a: State, b: State): boolean {
  return a.slots.size === b.slots.size ? a.lastBegin < b.lastBegin : a.slots.size < b.slots.size;
}

const STALLED_MS = 50;
/** A delivery that takes longer is slow. */
const SLOW_MS = 1000;
/** Deliveries over which failures and cut off answers are averaged. */
const ENDS_REMEMBERED = 8;
const CONTENDED_MS = 1000;
/** For one of those that fail, while others want slots. */
const TURNS_OF_OTHERS = 256;
const LONGEST_TURN_MS = 100;
/** A slow destination whose turn has come has this long to claim a row. */
const TURN_KEPT_MS = 1000;
const FORGOTTEN_AFTER_MS = 10_000;
