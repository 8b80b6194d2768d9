import { errorText, StoreError } from "../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../model/rows.ts";
import {
  type DestinationReport,
  type DestinationStore,
  destinationState,
  type SharedDestination,
} from "../../ports/destinationStore.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { SchemaStore } from "../../ports/store.ts";
import type { Clock, Random, Timer } from "../../time/clock.ts";
import { type BreakerLimits, SharedBreaker } from "./breaker.ts";
import { RateLimiter } from "./rateLimiter.ts";
import type { ReceiverReport } from "./receiver.ts";

/** What the configuration says of one destination. */
export interface DestinationLimits {
  readonly concurrency?: number | undefined;
  /** `burst`: most deliveries in any second; by default `perSecond`, rounded up. */
  readonly rateLimit?: { readonly perSecond: number; readonly burst?: number | undefined } | undefined;
  readonly circuitBreaker?: BreakerLimits | undefined;
}

export interface DestinationGatesOptions {
  /** By the name of the destination. */
  readonly limits: Readonly<Record<string, DestinationLimits>>;
  /** `outbox.concurrency`. */
  readonly concurrency: number;
  readonly store: DestinationStore;
  readonly newToken: () => ClaimToken;
  readonly clock: Clock;
  readonly timer: Timer;
  readonly random: Random;
  readonly metrics: Pick<
    Metrics,
    "breakerTransition" | "destinationState" | "destinationInFlight" | "destinationRateLimited"
  >;
  readonly log: Log;
}

export interface GateListener {
  /** More or fewer deliveries may begin than before. */
  readonly onChange: () => void;
  /** The receiver is well again. */
  readonly onClose: (destination: string) => void;
}

/**
 * The gates of all destinations in this process, kept up to date with what replicas share. Rows without a destination pass: nobody is asked there.
 */
export class DestinationGates {
  readonly #options: DestinationGatesOptions;
  readonly #gates: ReadonlyMap<string, DestinationGate>;
  #news = new Map<string, News>();
  #listener: GateListener = { onChange: () => {}, onClose: () => {} };
  #reportedAt = Number.NEGATIVE_INFINITY;

  constructor(options: DestinationGatesOptions) {
    this.#options = options;
    this.#gates = new Map(Object.entries(options.limits).map(([name, limits]) => [name, this.#gateOf(name, limits)]));
  }

  /** Whom to tell of changes. */
  listen(listener: GateListener): void {
    this.#listener = listener;
  }

  /** As {@link DestinationGate.mayBegin}. */
  mayBegin(destination: string, waiting: number): boolean {
    return this.#gates.get(destination)?.mayBegin(waiting) ?? true;
  }

  /** As {@link DestinationGate.rowsWanted}. */
  rowsWanted(destination: string, endedPerSecond: () => number): number | undefined {
    return this.#gates.get(destination)?.rowsWanted(endedPerSecond);
  }

  /** As {@link DestinationGate.enter}. */
  enter(destination: string): Permit | Promise<Permit | undefined> {
    return this.#gates.get(destination)?.enter() ?? UNGUARDED;
  }

  leave(destination: string, pass: Permit, row: MessageId, report: ReceiverReport): void {
    const gate = this.#gates.get(destination);
    if (gate === undefined) return;
    gate.leave(pass, row, report);
    this.#note(destination, report);
  }

  /** As {@link DestinationGate.probed}. */
  probed(destination: string): readonly MessageId[] {
    return this.#gates.get(destination)?.probed ?? [];
  }

  /** As {@link DestinationGate.forgetProbed}. */
  forgetProbed(destination: string): void {
    this.#gates.get(destination)?.forgetProbed();
  }

  /** Ms until a breaker lets a probe through; infinite where nothing changes by itself. */
  get changesWithinMs(): number {
    return Math.min(...[...this.#gates.values()].map(({ breaker }) => breaker?.changesWithinMs ?? Infinity));
  }

  /**
   * Reads what replicas share, and tells them what this one has seen. Call it about every half second, and once before the first delivery.
   *
   * @param isSlow whether deliveries to a destination take long just now
   * @throws StoreError when the database did not answer: everything stays as it was
   */
  async refresh(isSlow: (destination: string) => boolean): Promise<void> {
    const { store, clock } = this.#options;
    if (store.isAvailable) {
      const askedAt = clock.monotonic();
      const states = new Map((await store.states()).map((state) => [state.name, state]));
      let hasChanged = false;
      for (const [name, gate] of this.#gates) hasChanged = gate.learn(states.get(name), askedAt) || hasChanged;
      if (hasChanged) this.#listener.onChange();
      await Promise.all([...this.#gates.values()].map(({ breaker }) => breaker?.upkeep()));
    }
    this.#showStates(isSlow);
    if (store.isAvailable) await this.#report(isSlow);
  }

  stop(): void {
    for (const gate of this.#gates.values()) gate.stop();
  }

  #gateOf(name: string, limits: DestinationLimits): DestinationGate {
    const { store, newToken, clock, timer, random, metrics, log, concurrency } = this.#options;
    const { circuitBreaker, rateLimit } = limits;
    const slots = limits.concurrency ?? Number.POSITIVE_INFINITY;
    const onChange = () => this.#listener.onChange();
    let toldAt = Number.NEGATIVE_INFINITY;
    const onError = (error: unknown) => {
      if (clock.monotonic() - toldAt < TOLD_EVERY_MS) return;
      toldAt = clock.monotonic();
      log.warn({ destination: name, reason: errorText(error) }, "no answer from the rate limit: its rows wait");
    };
    const onClose = () => {
      gate.rampUp();
      this.#listener.onClose(name);
    };
    const breaker = { name, store, newToken, onChange, onClose, clock, random, metrics, log };
    const gate: DestinationGate = new DestinationGate({
      concurrency: slots < concurrency ? slots : Number.POSITIVE_INFINITY,
      ramp: new Ramp(Math.min(slots, concurrency)),
      perSecond: rateLimit?.perSecond,
      isShared: () => store.isAvailable,
      clock,
      rate: rateLimit && new RateLimiter({ name, ...rateLimit, store, clock, timer, onTokens: onChange, onError }),
      breaker: circuitBreaker && new SharedBreaker({ ...breaker, limits: circuitBreaker }),
    });
    return gate;
  }

  #note(destination: string, { receiver, reason }: ReceiverReport): void {
    if (receiver === "unknown") return;
    const at = this.#options.clock.monotonic();
    let news = this.#news.get(destination);
    if (news === undefined) {
      news = {};
      this.#news.set(destination, news);
    }
    if (receiver === "well") news.succeededAt = at;
    else news.failure = { at, reason: reason ?? "" };
  }

  #showStates(isSlow: (destination: string) => boolean): void {
    const { metrics } = this.#options;
    for (const [name, gate] of this.#gates) {
      metrics.destinationInFlight(name, gate.inFlight);
      metrics.destinationRateLimited(name, gate.takeRateLimitedMs() / 1000);
      const breaker = gate.breaker?.state;
      metrics.destinationState(
        name,
        destinationState({
          paused: gate.isPaused,
          open: breaker === "open",
          "half-open": breaker === "half-open",
          slow: isSlow(name),
        }),
      );
    }
  }

  async #report(isSlow: (destination: string) => boolean): Promise<void> {
    const { store, clock } = this.#options;
    const now = clock.monotonic();
    if (now - this.#reportedAt < REPORT_MS) return;
    const reports = [...this.#gates.keys()].flatMap((name): DestinationReport[] => {
      const news = this.#news.get(name);
      if (news === undefined && !isSlow(name)) return [];
      const { succeededAt, failure } = news ?? {};
      return [
        {
          name,
          succeededAgoMs: succeededAt === undefined ? undefined : now - succeededAt,
          failure: failure && { agoMs: now - failure.at, reason: failure.reason },
          isSlow: isSlow(name),
        },
      ];
    });
    if (reports.length === 0) return;
    this.#reportedAt = now;
    const told = this.#news;
    this.#news = new Map();
    try {
      await store.report(reports);
    } catch (error) {
      for (const [name, news] of told) this.#news.set(name, { ...news, ...this.#news.get(name) });
      throw error;
    }
  }
}

/** What has happened at a destination since the last report; monotonic ms. */
interface News {
  succeededAt?: number;
  failure?: { readonly at: number; readonly reason: string };
}

/** Of rows without a destination. */
const UNGUARDED: Permit = { beganAt: 0, isProbe: false, closes: 0 };
const REPORT_MS = 2000;
/** That a rate limit does not answer. */
const TOLD_EVERY_MS = 60_000;

/** A delivery that was let through. */
export interface Permit {
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
  enter(): Permit | Promise<Permit | undefined> {
    const { breaker, rate } = this.#options;
    if (breaker?.position === "probe") {
      return breaker.takeProbe().then((isTaken) => (isTaken ? this.#begin(true) : undefined));
    }
    rate?.use();
    return this.#begin(false);
  }

  leave(pass: Permit, row: MessageId, report: ReceiverReport): void {
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

  #begin(isProbe: boolean): Permit {
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

/**
 * How many deliveries may be in flight to a receiver that has just come back: one, and one more with each that succeeds, up to all there may be. A
 * failure halves it.
 */
export class Ramp {
  readonly #most: number;
  #limit: number;

  /** @param most deliveries in flight; that is also where it begins, until the first {@link restart} */
  constructor(most: number) {
    this.#most = most;
    this.#limit = most;
  }

  /** Infinite once everything may be in flight. */
  get limit(): number {
    return this.#limit < this.#most ? this.#limit : Number.POSITIVE_INFINITY;
  }

  restart(): void {
    this.#limit = 1;
  }

  succeeded(): void {
    this.#limit = Math.min(this.#limit + 1, this.#most);
  }

  failed(): void {
    if (this.#limit < this.#most) this.#limit = Math.max(1, Math.floor(this.#limit / 2));
  }
}

export interface DestinationTroubleOptions {
  readonly schema: Pick<SchemaStore, "destinationFault">;
  readonly clock: Clock;
  readonly log: Log;
}

/** Tells the log, once a minute at most, that what replicas share about destinations cannot be read, and how to mend that. */
export class DestinationTrouble {
  readonly #options: DestinationTroubleOptions;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(options: DestinationTroubleOptions) {
    this.#options = options;
  }

  /** A read has failed. Never rejects. @param failures how many in a row */
  async failed(error: unknown, failures: number): Promise<void> {
    const { clock, log } = this.#options;
    if (clock.monotonic() - this.#toldAt < TOLD_EVERY_MS) return;
    this.#toldAt = clock.monotonic();
    const fault = error instanceof StoreError && error.code === "schema" ? await this.#fault() : undefined;
    const fields = fault === undefined ? {} : { problem: fault.what, remedy: fault.remedy };
    log.error(
      { err: error, failures, ...fields },
      "pauses and circuit breakers not read: the last known ones hold, and rows with a rate limit wait",
    );
  }

  async #fault() {
    // Who may not read the table may not look at it either, or the database has gone meanwhile: the error itself tells.
    return await this.#options.schema.destinationFault().catch(() => undefined);
  }
}
