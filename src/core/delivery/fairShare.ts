import { type Linked, LinkedList } from "../../model/collections.ts";
import { NO_DESTINATION } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { Verdict } from "../destinations/breaker.ts";
import type { DestinationGates } from "../destinations/gates.ts";
import { MAX_CLAIM_BYTES } from "./claims.ts";
import type { KeyQueues } from "./keyQueues.ts";

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
 * - A destination begins with one slot, and gets one more with each delivery that succeeds (TCP's slow start). None
 *   gets the last sixteenth, one slot at least.
 * - Destinations without a success yet leave a quarter of the slots to the others.
 * - A destination is slow if its deliveries take longer than a second and none has ended sooner lately, until one
 *   succeeds sooner. It fails if half of its last deliveries failed. While healthy ones want slots, the slow ones
 *   together get an eighth, in turns, and the failing ones another eighth.
 * - A destination that was unhealthy before this process started counts as slow until a delivery succeeds. Unhealthy
 *   ones without a success yet get half of the slots: many that hang would take every slot at the start.
 */
export class FairShare {
  readonly concurrency: number;
  readonly isShared: boolean;
  readonly #wasUnhealthy: (destination: string) => boolean;
  readonly #clock: Clock;
  readonly #states = new Map<string, State>();
  #inUse = 0;
  /** When a row of a healthy destination last waited for a slot. */
  #waitedAt = Number.NEGATIVE_INFINITY;

  constructor({ concurrency, isShared, wasUnhealthy = () => false, clock }: FairShareOptions) {
    this.concurrency = concurrency;
    this.isShared = isShared && concurrency > 1;
    this.#wasUnhealthy = wasUnhealthy;
    this.#clock = clock;
  }

  /** The one of `ready` that `admits` accepts and that may begin a delivery now; undefined without a free slot. */
  next(ready: readonly string[], admits: (destination: string) => boolean = () => true): string | undefined {
    if (!this.isShared) return this.hasSlot ? ready.find(admits) : undefined;
    const now = this.#clock.monotonic();
    const wanting = ready.filter(admits).map((destination) => this.#stateOf(destination, now));
    const healthy = wanting.filter((state) => !this.#isUnhealthy(state, now));
    if (!this.hasSlot) {
      if (healthy.length > 0) this.#waitedAt = now;
      return undefined;
    }
    const isContended = healthy.length > 0 || this.#isContended;
    let best: State | undefined;
    for (const state of wanting) {
      if (this.#mayBegin(state, now, isContended) && (best === undefined || isBefore(state, best))) best = state;
    }
    return best?.destination;
  }

  get hasSlot(): boolean {
    return this.#inUse < this.concurrency;
  }

  /** Whether rows may be claimed for an unhealthy destination: it may begin a delivery, and has not just begun one. */
  mayClaim(destination: string): boolean {
    const now = this.#clock.monotonic();
    const state = this.#stateOf(destination, now);
    return now - state.begunAt >= UNHEALTHY_REST_MS && this.#mayBegin(state, now, this.#isContended);
  }

  /** Most rows that wait for an unhealthy destination: one while others want slots, else what it delivers soon. */
  mostWaiting(destination: string): number {
    if (this.#isContended) return 1;
    return Math.max(this.#states.get(destination)?.window ?? 1, this.perSecond(destination) / 4);
  }

  get #isContended(): boolean {
    return this.#clock.monotonic() - this.#waitedAt <= CONTENDED_MS;
  }

  /** Rows that would begin to be delivered within so many ms: one for each free slot, and as many as ended of late. */
  capacityWithin(ms: number): number {
    let perSecond = 0;
    for (const destination of this.#states.keys()) perSecond += this.perSecond(destination);
    return this.concurrency - this.#inUse + Math.floor((perSecond * ms) / 1000);
  }

  begin(destination: string): Slot {
    const now = this.#clock.monotonic();
    const slot: Slot = { destination, beganAt: now, previous: undefined, next: undefined };
    const state = this.#stateOf(destination, now);
    this.#inUse += 1;
    state.begunAt = now;
    state.slots.add(slot);
    return slot;
  }

  end(slot: Slot, verdict: Verdict): void {
    const now = this.#clock.monotonic();
    const state = this.#stateOf(slot.destination, now);
    this.#inUse -= 1;
    state.slots.delete(slot);
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
    if (state.lastWasSlow && this.#isContended) state.window = 1;
    else if (verdict === "healthy") state.window = Math.min(state.window + 1, this.concurrency);
  }

  /** A destination has recovered: it counts as healthy, and starts again with one slot. */
  forget(destination: string): void {
    const state = this.#states.get(destination);
    if (state === undefined) return;
    state.startAgain();
    state.lastQuickAt = this.#clock.monotonic();
  }

  isSlow(destination: string): boolean {
    const state = this.#states.get(destination);
    return state !== undefined && isSlow(state, this.#clock.monotonic());
  }

  isUnhealthy(destination: string): boolean {
    if (!this.#states.has(destination)) return false;
    const now = this.#clock.monotonic();
    return this.#isUnhealthy(this.#stateOf(destination, now), now);
  }

  /** Deliveries of a destination that ended in the last whole second, or in the running one if these are more by now. */
  perSecond(destination: string): number {
    const state = this.#states.get(destination);
    if (state === undefined) return 0;
    const second = Math.floor(this.#clock.monotonic() / 1000);
    if (second === state.second) return Math.max(state.endedBefore, state.ended);
    return second === state.second + 1 ? state.ended : 0;
  }

  #mayBegin(state: State, now: number, isContended: boolean): boolean {
    const most = this.concurrency - this.#part(16);
    if (state.slots.size >= Math.min(state.window, most)) return false;
    if (!this.#isUnhealthy(state, now)) return state.isProven || this.#mayBeginUnproven();
    const mostUnhealthy = isContended ? this.#part(8) : state.isProven ? most : this.#part(2);
    const mayBegin = this.#slotsOfUnhealthy(isSlow(state, now), now) < mostUnhealthy;
    if (!mayBegin) state.deniedAt = now;
    return mayBegin;
  }

  #mayBeginUnproven(): boolean {
    let slots = 0;
    let isAnyProven = false;
    for (const state of this.#states.values()) {
      if (state.isProven) isAnyProven = true;
      else slots += state.slots.size;
    }
    return !isAnyProven || slots < this.concurrency - this.#part(4);
  }

  /** @param areSlow true for the slow destinations, false for the failing ones */
  #slotsOfUnhealthy(areSlow: boolean, now: number): number {
    let slots = 0;
    for (const state of this.#states.values())
      if (this.#isUnhealthy(state, now) && isSlow(state, now) === areSlow) slots += state.slots.size;
    return slots;
  }

  #part(divisor: number): number {
    return Math.max(1, Math.floor(this.concurrency / divisor));
  }

  #isUnhealthy(state: State, now: number): boolean {
    return state.failures >= 0.5 || isSlow(state, now);
  }

  #stateOf(destination: string, now: number): State {
    let state = this.#states.get(destination);
    if (state === undefined) {
      state = new State(destination, now, this.#wasUnhealthy(destination));
      this.#states.set(destination, state);
    } else if (state.slots.size === 0 && now - Math.max(state.lastEndedAt, state.deniedAt) > FORGOTTEN_AFTER_MS) {
      // Its history is outdated. While it only waits for its turn, nothing shows that it has recovered.
      state.startAgain();
    }
    return state;
  }
}

class State {
  readonly destination: string;
  /** In the order in which they began. */
  readonly slots = new LinkedList<Slot>();
  /** Most slots that it has shown to need. */
  window = 1;
  /** Share of the last deliveries that failed. */
  failures = 0;
  isProven = false;
  lastWasSlow: boolean;
  /** When it last had to wait for its turn; monotonic ms. */
  deniedAt = Number.NEGATIVE_INFINITY;
  /** When a quick delivery last ended. While the last delivery was slow, only a success counts. */
  lastQuickAt = Number.NEGATIVE_INFINITY;
  begunAt = Number.NEGATIVE_INFINITY;
  lastEndedAt: number;
  /** Monotonic second of the last end of a delivery; how many ended in it, and in the one before. */
  second = 0;
  ended = 0;
  endedBefore = 0;

  constructor(destination: string, now: number, wasUnhealthy: boolean) {
    this.destination = destination;
    this.lastEndedAt = now;
    this.lastWasSlow = wasUnhealthy;
  }

  startAgain(): void {
    this.window = 1;
    this.failures = 0;
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

function isSlow({ lastWasSlow, lastQuickAt, slots }: State, now: number): boolean {
  if (lastWasSlow) return true;
  // A hanging delivery means little while others succeed.
  return now - lastQuickAt > SLOW_MS && slots.first !== undefined && now - slots.first.beganAt > SLOW_MS;
}

function isBefore(a: State, b: State): boolean {
  return a.slots.size === b.slots.size ? a.begunAt < b.begunAt : a.slots.size < b.slots.size;
}

const SLOW_MS = 1000;
/** Deliveries over which failures are averaged. */
const ENDS_REMEMBERED = 8;
const CONTENDED_MS = 1000;
const FORGOTTEN_AFTER_MS = 10_000;
/**
 * Between the last delivery to an unhealthy destination and the next claim for it. Deliveries that fail at once, as
 * without a broker connection, would use all CPU for its backlog, thousands a second, and delay messages of the others.
 */
const UNHEALTHY_REST_MS = 50;

interface ClaimRoomsOptions {
  readonly queues: KeyQueues;
  readonly share: FairShare;
  readonly gates: Pick<DestinationGates, "rowsWanted">;
  readonly destinations: readonly string[];
  readonly batchSize: number;
}

/**
 * How many rows each destination has room for: what it delivers soon, less what waits for it here. A destination that
 * is paused, open or full has none and is not asked, so its rows stay in the database and delay no others.
 */
export class ClaimRooms {
  readonly #options: ClaimRoomsOptions;

  constructor(options: ClaimRoomsOptions) {
    this.#options = options;
  }

  /** Names that no process alive has configured: rows that are pinned to them are claimed to die. */
  unknown: readonly string[] = [];

  /** The room of each destination that has some, the emptiest first. */
  all(): ReadonlyMap<string, number> {
    const { destinations, queues, batchSize } = this.#options;
    const rooms = destinations.map((each) => [each, this.of(each)] as const).filter(([, room]) => room > 0);
    rooms.sort(([a], [b]) => queues.waitingAt(a) - queues.waitingAt(b));
    // Rows without a destination are claimed to die.
    const others = [NO_DESTINATION, ...this.unknown].map((each) => [each, batchSize] as const);
    return new Map(rooms.length === 0 ? [] : [...rooms, ...others]);
  }

  /** Destinations that have no room only because enough of their rows wait here. */
  get busy(): ReadonlySet<string> {
    const { destinations, queues } = this.#options;
    return new Set(
      destinations.filter((each) => queues.waitingAt(each) > 0 && !this.isLimited(each) && this.of(each) === 0),
    );
  }

  /** Whether a destination is paused, open or at its limits: no row of it is claimed. */
  isClosed(destination: string): boolean {
    return this.#rowsWanted(destination) === 0;
  }

  areFree(): boolean {
    return this.#options.destinations.every((each) => this.#rowsWanted(each) === undefined && !this.isUnhealthy(each));
  }

  /**
   * The rows to claim for a destination now; 0 while half of the rows that may wait here do. As many rows may wait as
   * the destination delivers in half a second, two for each slot at least, and a batch while a slot is free: rows that
   * wait here keep their keys from other replicas.
   */
  of(destination: string): number {
    const { queues, share, batchSize } = this.#options;
    if (queues.bytesWaitingAt(destination) > MAX_CLAIM_BYTES / 2) return 0;
    if (this.isUnhealthy(destination) && !share.mayClaim(destination)) return 0;
    const soon = Math.max(share.perSecond(destination) / 2, share.hasSlot ? batchSize : 2 * share.concurrency);
    const most = Math.min(soon, 2 * batchSize, this.#cap(destination));
    const waiting = queues.waitingAt(destination);
    return waiting > most / 2 ? 0 : Math.min(Math.ceil(most - waiting), batchSize);
  }

  /** Whether its limits or its trouble let few rows through. */
  isLimited(destination: string): boolean {
    return this.#cap(destination) !== Number.POSITIVE_INFINITY;
  }

  /** Whether the waiting rows of a destination go back: it is closed, or many more wait than it lets through. */
  isOverfull(destination: string): boolean {
    return this.#options.queues.waitingAt(destination) > 2 * this.#cap(destination);
  }

  isUnhealthy(destination: string): boolean {
    const { share } = this.#options;
    return share.isShared && share.isUnhealthy(destination);
  }

  /** Most rows of a destination that wait here, as its limits or its trouble let few through; infinite without either. */
  #cap(destination: string): number {
    const { share } = this.#options;
    const wanted = this.#rowsWanted(destination) ?? Number.POSITIVE_INFINITY;
    return this.isUnhealthy(destination) ? Math.min(wanted, share.mostWaiting(destination)) : wanted;
  }

  #rowsWanted(destination: string): number | undefined {
    const { gates, share } = this.#options;
    // A function, since few calls need it: reading the clock for each would cost a tenth of the poller's time.
    return gates.rowsWanted(destination, () => share.perSecond(destination));
  }
}
