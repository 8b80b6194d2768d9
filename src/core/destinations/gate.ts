import type { MessageId } from "../../model/rows.ts";
import type { SharedDestination } from "../../ports/destinationStore.ts";
import type { Clock } from "../../time/clock.ts";
import type { Ramp } from "./ramp.ts";
import type { RateLimiter } from "./rateLimiter.ts";
import type { ReceiverReport } from "./receiver.ts";
import type { SharedBreaker } from "./sharedBreaker.ts";

/** A delivery that was let through. */
export interface Pass {
  /** Monotonic ms. */
  readonly beganAt: number;
  readonly isProbe: boolean;
  /** How often the breaker had closed before. */
  readonly closes: number;
}

export interface GateOptions {
  /** Most deliveries in flight in this process; infinite where the destination has no limit of its own. */
  readonly concurrency: number;
  readonly rate: RateLimiter | undefined;
  readonly perSecond: number | undefined;
  readonly breaker: SharedBreaker | undefined;
  readonly ramp: Ramp;
  /** Whether there is a state that replicas share: it has to be known before anything begins. */
  readonly isShared: () => boolean;
  readonly clock: Clock;
}

/** What keeps deliveries to one destination from beginning in this process: a pause, its breaker, its rate limit, its own concurrency. */
export class DestinationGate {
  readonly #options: GateOptions;
  #inFlight = 0;
  /** Those that began since the breaker last closed: the ones before may hang for long, and tell nothing of the receiver as it is now. */
  #sinceClose = 0;
  /** How often the breaker has closed. */
  #closes = 0;
  /** What replicas share has been read. */
  #isKnown = false;
  #isPaused = false;
  /** Rows whose probe failed since the breaker opened: the next one is of another row, since it may be these that fail, and not the receiver. */
  readonly #probed = new Set<MessageId>();
  /** When a row last had to wait for a token or for one of the destination's own slots. */
  #heldBackAt = Number.NEGATIVE_INFINITY;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  get breaker(): SharedBreaker | undefined {
    return this.#options.breaker;
  }

  /** Ms for which rows have waited for the rate limit since this was last asked. */
  takeRateLimitedMs(): number {
    return this.#options.rate?.takeWaitedMs() ?? 0;
  }

  stop(): void {
    this.#options.rate?.stop();
  }

  /**
   * How many rows this process should hold: none while the destination is closed, few while it lets few through. Undefined for as many as are claimed.
   *
   * @param endedPerSecond tells the deliveries in the last second
   */
  rowsWanted(endedPerSecond: () => number): number | undefined {
    const { breaker, perSecond, concurrency, ramp, clock } = this.#options;
    if (this.#isClosed) return 0;
    if (breaker?.position === "probe") return 1;
    if (clock.monotonic() - this.#heldBackAt > HELD_BACK_MS) return undefined;
    const slots = Math.min(concurrency, ramp.limit);
    const forSlots = slots === Number.POSITIVE_INFINITY ? slots : Math.max(ROWS_PER_SLOT * slots, endedPerSecond() / 4);
    const forRate = perSecond === undefined ? Number.POSITIVE_INFINITY : perSecond / 2;
    return Math.max(LEAST_ROWS, Math.ceil(Math.min(forSlots, forRate)));
  }

  /**
   * Whether a delivery may begin.
   *
   * @param waiting rows that wait for one; tokens are asked for as many
   */
  mayBegin(waiting: number): boolean {
    const { breaker, rate, clock } = this.#options;
    if (this.#isClosed) return false;
    if (breaker?.position === "probe") return true;
    if (this.#hasFreeSlot && (rate === undefined || rate.available() > 0)) return true;
    if (waiting > 0) {
      if (this.#hasFreeSlot) rate?.want(waiting);
      this.#heldBackAt = clock.monotonic();
    }
    return false;
  }

  /** Lets a delivery through. @returns undefined when it must not begin after all: another replica sends the probe */
  enter(): Pass | Promise<Pass | undefined> {
    const { breaker, rate } = this.#options;
    if (breaker?.position === "probe") {
      return breaker.takeProbe().then((isTaken) => (isTaken ? this.#begin(true) : undefined));
    }
    rate?.use();
    return this.#begin(false);
  }

  leave(pass: Pass, row: MessageId, report: ReceiverReport): void {
    const { breaker, ramp } = this.#options;
    this.#inFlight -= 1;
    if (pass.closes === this.#closes) this.#sinceClose -= 1;
    if (report.receiver === "well") ramp.succeeded();
    else if (report.receiver === "failed") ramp.failed();
    if (!pass.isProbe) {
      breaker?.ended(report, pass.beganAt, row);
      return;
    }
    if (report.receiver === "failed") {
      const [oldest] = this.#probed;
      if (this.#probed.size >= MOST_PROBED && oldest !== undefined) this.#probed.delete(oldest);
      this.#probed.add(row);
    }
    breaker?.probeEnded(report);
  }

  /** The shared state was read. @param askedAt monotonic ms at which the read began @returns whether a pause has begun or ended */
  learn(shared: SharedDestination | undefined, askedAt: number): boolean {
    const isPaused = shared?.pause != null;
    const hasChanged = !this.#isKnown || isPaused !== this.#isPaused;
    this.#isKnown = true;
    this.#isPaused = isPaused;
    this.#options.breaker?.learn(shared?.breaker, askedAt);
    return hasChanged;
  }

  /** Rows that are not to be claimed for the next probe. */
  get probed(): readonly MessageId[] {
    return this.#options.breaker?.position === "probe" ? [...this.#probed] : [];
  }

  /** There are no other rows: each may be tried again. */
  forgetProbed(): void {
    this.#probed.clear();
  }

  /** The breaker has closed: the rows that gathered meanwhile come one by one at first. */
  rampUp(): void {
    this.#sinceClose = 0;
    this.#closes += 1;
    this.#probed.clear();
    this.#options.ramp.restart();
  }

  get #isClosed(): boolean {
    return (!this.#isKnown && this.#options.isShared()) || this.#isPaused || this.#options.breaker?.position === "open";
  }

  get #hasFreeSlot(): boolean {
    const { concurrency, ramp } = this.#options;
    return this.#inFlight < concurrency && this.#sinceClose < ramp.limit;
  }

  #begin(isProbe: boolean): Pass {
    this.#inFlight += 1;
    this.#sinceClose += 1;
    return { beganAt: this.#options.clock.monotonic(), isProbe, closes: this.#closes };
  }
}

/** For so long after a row had to wait, few rows are claimed. */
const HELD_BACK_MS = 1000;
const LEAST_ROWS = 2;
const MOST_PROBED = 100;
/** So that no slot waits for a claim. */
const ROWS_PER_SLOT = 4;
