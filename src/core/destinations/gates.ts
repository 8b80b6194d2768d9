import { errorText } from "../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../model/rows.ts";
import {
  type DestinationFacts,
  type DestinationReport,
  type DestinationStore,
  destinationState,
  type SharedDestination,
} from "../../ports/destinationStore.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock, Random, Timer } from "../../time/clock.ts";
import { type BreakerLimits, Ramp, type ReceiverReport, SharedBreaker } from "./breaker.ts";
import { RateLimiter } from "./rateLimiter.ts";

export interface DestinationLimits {
  readonly concurrency?: number | undefined;
  /** `burst`: most deliveries in any second; by default `perSecond`, rounded up. */
  readonly rateLimit?: { readonly perSecond: number; readonly burst?: number | undefined } | undefined;
  readonly circuitBreaker?: BreakerLimits | undefined;
}

export interface DestinationGatesOptions {
  readonly limits: Readonly<Record<string, DestinationLimits>>;
  /** `outbox.concurrency`. */
  readonly concurrency: number;
  readonly store: DestinationStore;
  readonly newToken: () => ClaimToken;
  readonly clock: Clock;
  readonly timer: Timer;
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Log;
}

interface GateListener {
  /** More or fewer deliveries may begin than before. */
  readonly onChange: () => void;
  /** The breaker of a destination has closed: its receiver is healthy again. */
  readonly onClose: (destination: string) => void;
}

/** The gates of all destinations, in step with what replicas share. Rows without a destination pass freely. */
export class DestinationGates {
  readonly #options: DestinationGatesOptions;
  readonly #gates: ReadonlyMap<string, DestinationGate>;
  #activity = new Map<string, Activity>();
  #listener: GateListener = { onChange: () => {}, onClose: () => {} };
  #recent: ReadonlyMap<string, RecentState> = new Map();
  /** Undefined until the shared state is first read. */
  #unhealthyAtStart: ReadonlySet<string> | undefined;
  #reportedAt = Number.NEGATIVE_INFINITY;
  #faultLoggedAt = Number.NEGATIVE_INFINITY;
  /** Writes under way: of a destination's breaker by its name, of the reports under {@link REPORTS}. */
  readonly #writes = new Map<string, Promise<void>>();
  #writeError: unknown;

  constructor(options: DestinationGatesOptions) {
    this.#options = options;
    this.#gates = new Map(Object.entries(options.limits).map(([name, limits]) => [name, this.#gateOf(name, limits)]));
  }

  listen(listener: GateListener): void {
    this.#listener = listener;
  }

  mayBegin(destination: string, waiting: number): boolean {
    return this.#gates.get(destination)?.mayBegin(waiting) ?? true;
  }

  rowsWanted(destination: string, endedPerSecond: () => number): number | undefined {
    return this.#gates.get(destination)?.rowsWanted(endedPerSecond);
  }

  enter(destination: string): Permit | Promise<Permit | undefined> {
    return this.#gates.get(destination)?.enter() ?? UNGUARDED;
  }

  leave(destination: string, permit: Permit, row: MessageId, report: ReceiverReport): void {
    const gate = this.#gates.get(destination);
    if (gate === undefined) return;
    gate.leave(permit, row, report);
    const { receiver, reason, isInterrupted } = report;
    const hasFailed = reason !== undefined && !isInterrupted;
    if (!hasFailed && receiver !== "healthy") return;
    const at = this.#options.clock.monotonic();
    const activity = this.#activity.get(destination) ?? {};
    this.#activity.set(destination, activity);
    if (hasFailed) activity.failure = { at, reason };
    else activity.succeededAt = at;
  }

  probed(destination: string): readonly MessageId[] {
    return this.#gates.get(destination)?.probed ?? [];
  }

  forgetProbed(destination: string): void {
    this.#gates.get(destination)?.forgetProbed();
  }

  /** Whether nothing is delivered there now, except a probe: it is paused, or its breaker is not closed. */
  isHeld(destination: string): boolean {
    const { isPaused = false, breaker } = this.#gates.get(destination) ?? {};
    return isPaused || (breaker?.state ?? "closed") !== "closed";
  }

  /** Whether replicas last saw this destination slow or failing, when this process first read the shared state. */
  wasUnhealthy(destination: string): boolean {
    return this.#unhealthyAtStart?.has(destination) === true;
  }

  /** What the metric of the states knows from now on, besides the shared state. @param recent by destination */
  showRecent(recent: ReadonlyMap<string, RecentState>): void {
    this.#recent = recent;
  }

  /** Ms until a breaker admits a probe; infinite if nothing changes by itself. */
  get changesWithinMs(): number {
    return Math.min(...[...this.#gates.values()].map(({ breaker }) => breaker?.changesWithinMs ?? Infinity));
  }

  /**
   * Reads the shared state, and begins to write what this process has seen, without waiting: a write that waits for a
   * lock must not delay a pause. Call it about every half second, and once before the first delivery.
   *
   * @param readStates for the gates of several cells at once
   * @throws StoreError if the database did not answer (everything stays unchanged), or a write has failed since the
   *   last call
   */
  async refresh(
    isSlow: (destination: string) => boolean,
    readStates = () => this.#options.store.states(),
  ): Promise<void> {
    const { store, clock } = this.#options;
    if (store.isAvailable) {
      const readAt = clock.monotonic();
      const states = new Map((await readStates()).map((state) => [state.name, state]));
      this.#unhealthyAtStart ??= new Set([...states.values()].filter(isUnhealthy).map(({ name }) => name));
      let hasChanged = false;
      for (const [name, gate] of this.#gates) hasChanged = gate.update(states.get(name), readAt) || hasChanged;
      if (hasChanged) this.#listener.onChange();
    }
    this.#showStates(isSlow);
    if (!store.isAvailable) return;
    for (const [name, { breaker }] of this.#gates)
      if (breaker !== undefined) this.#write(name, () => breaker.maintain());
    this.#write(REPORTS, () => this.#report(isSlow));
    const error = this.#writeError;
    this.#writeError = undefined;
    if (error !== undefined) throw error;
  }

  /** Logs a failed refresh, at most once a minute. @param failures how many in a row */
  refreshFailed(error: unknown, failures: number): void {
    const { clock, log } = this.#options;
    if (clock.monotonic() - this.#faultLoggedAt < LOG_INTERVAL_MS) return;
    this.#faultLoggedAt = clock.monotonic();
    log.error(
      { err: error, failures },
      "reading pauses and circuit breakers failed: the last known ones apply, and rows with a rate limit wait",
    );
  }

  /** Call it after the last {@link refresh}. Resolves when the writes under way have ended. */
  async stop(): Promise<void> {
    for (const gate of this.#gates.values()) gate.stop();
    await Promise.all(this.#writes.values());
  }

  /** Begins a write, unless the last one of that name is still under way. */
  #write(name: string, write: () => Promise<void>): void {
    if (this.#writes.has(name)) return;
    const written = write()
      .catch((error: unknown) => {
        this.#writeError = error;
      })
      .finally(() => this.#writes.delete(name));
    this.#writes.set(name, written);
  }

  #gateOf(name: string, { concurrency = Infinity, rateLimit, circuitBreaker }: DestinationLimits): DestinationGate {
    const { store, clock, log } = this.#options;
    const onChange = () => this.#listener.onChange();
    let loggedAt = Number.NEGATIVE_INFINITY;
    const onError = (error: unknown) => {
      if (clock.monotonic() - loggedAt < LOG_INTERVAL_MS) return;
      loggedAt = clock.monotonic();
      log.warn({ destination: name, reason: errorText(error) }, "taking from the rate limit failed: its rows wait");
    };
    const onClose = () => {
      gate.rampUp();
      this.#listener.onClose(name);
    };
    const gate: DestinationGate = new DestinationGate({
      concurrency: concurrency < this.#options.concurrency ? concurrency : Infinity,
      ramp: circuitBreaker && new Ramp(Math.min(concurrency, this.#options.concurrency)),
      perSecond: rateLimit?.perSecond,
      store,
      clock,
      rate: rateLimit && new RateLimiter({ ...this.#options, name, ...rateLimit, onTokens: onChange, onError }),
      breaker:
        circuitBreaker && new SharedBreaker({ ...this.#options, name, limits: circuitBreaker, onChange, onClose }),
    });
    return gate;
  }

  #showStates(isSlow: (destination: string) => boolean): void {
    const { metrics } = this.#options;
    for (const [name, gate] of this.#gates) {
      metrics.destinationInFlight(name, gate.inFlight);
      metrics.destinationRateLimited(name, gate.takeRateLimitedMs() / 1000);
      const { shared } = gate;
      const state = destinationState({
        isPaused: gate.isPaused,
        breaker: gate.breaker?.state ?? "closed",
        isSlow: isSlow(name) || shared?.isSlow === true,
        lastSuccessAt: shared?.lastSuccessAt ?? null,
        lastFailureAt: shared?.lastFailureAt ?? null,
        ...(this.#recent.get(name) ?? NOTHING_RECENT),
      });
      metrics.destinationState(name, state);
    }
  }

  async #report(isSlow: (destination: string) => boolean): Promise<void> {
    const { store, clock } = this.#options;
    const now = clock.monotonic();
    if (now - this.#reportedAt < REPORT_INTERVAL_MS) return;
    const reports = [...this.#gates.keys()].flatMap((name): DestinationReport[] => {
      const activity = this.#activity.get(name);
      if (activity === undefined && !isSlow(name)) return [];
      const { succeededAt, failure } = activity ?? {};
      const succeededAgoMs = succeededAt === undefined ? undefined : now - succeededAt;
      const lastFailure = failure && { agoMs: now - failure.at, reason: failure.reason };
      return [{ name, succeededAgoMs, failure: lastFailure, isSlow: isSlow(name) }];
    });
    if (reports.length === 0) return;
    this.#reportedAt = now;
    const reported = this.#activity;
    this.#activity = new Map();
    try {
      await store.report(reports);
    } catch (error) {
      for (const [name, activity] of reported) this.#activity.set(name, { ...activity, ...this.#activity.get(name) });
      throw error;
    }
  }
}

/** Slow lately, or it was slow or failed since its last known success, however long ago. */
function isUnhealthy({ isSlow, lastSuccessAt, lastFailureAt, slowAt }: SharedDestination): boolean {
  const isSinceSuccess = (at: Date | null) => at !== null && (lastSuccessAt === null || at >= lastSuccessAt);
  return isSlow || isSinceSuccess(lastFailureAt) || isSinceSuccess(slowAt);
}

/** The facts about a destination that take longer to read than its shared row. */
type RecentState = Pick<DestinationFacts, "recent" | "parked">;

const NOTHING_RECENT: RecentState = { recent: null, parked: 0 };

/** What has happened at a destination since the last report; monotonic ms. */
interface Activity {
  succeededAt?: number;
  failure?: { readonly at: number; readonly reason: string };
}

interface Permit {
  /** Monotonic ms. */
  readonly beganAt: number;
  readonly isProbe: boolean;
  /** How often the breaker had closed before. */
  readonly closes: number;
}

/** Of rows without a destination. */
const UNGUARDED: Permit = { beganAt: 0, isProbe: false, closes: 0 };
/** Not the name of a destination. */
const REPORTS = "";
const REPORT_INTERVAL_MS = 2000;
/** Shortest interval of log lines about the same failure. */
const LOG_INTERVAL_MS = 60_000;

interface GateOptions {
  /** Most deliveries in flight in this process; infinite without a limit of its own. */
  readonly concurrency: number;
  readonly rate: RateLimiter | undefined;
  readonly perSecond: number | undefined;
  readonly breaker: SharedBreaker | undefined;
  readonly ramp: Ramp | undefined;
  /** While it is available, deliveries wait for the first read of the shared state. */
  readonly store: Pick<DestinationStore, "isAvailable">;
  readonly clock: Clock;
}

class DestinationGate {
  readonly #options: GateOptions;
  #inFlight = 0;
  /** Those begun since the breaker closed; older ones may hang, and say nothing about the receiver now. */
  #sinceClose = 0;
  /** How often the breaker has closed. */
  #closes = 0;
  #isKnown = false;
  #isPaused = false;
  #shared: SharedDestination | undefined;
  /** Rows whose probe failed since the breaker opened. The row may be the reason, so the next probe takes another. */
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

  get shared(): SharedDestination | undefined {
    return this.#shared;
  }

  get breaker(): SharedBreaker | undefined {
    return this.#options.breaker;
  }

  /** Ms for which rows have waited for the rate limit since the last call. */
  takeRateLimitedMs(): number {
    return this.#options.rate?.takeWaitedMs() ?? 0;
  }

  stop(): void {
    this.#options.rate?.stop();
  }

  /** Rows this process should hold: none while closed, few while held back; undefined for as many as are claimed. */
  rowsWanted(endedPerSecond: () => number): number | undefined {
    const { breaker, perSecond = Infinity, concurrency, ramp, clock } = this.#options;
    if (this.#isClosed) return 0;
    if (breaker?.position === "probe") return this.#mayProbe ? 1 : 0;
    if (clock.monotonic() - this.#heldBackAt > HELD_BACK_MS) return undefined;
    const slots = Math.min(concurrency, ramp?.limit ?? Infinity);
    const forSlots = slots === Infinity ? slots : Math.max(ROWS_PER_SLOT * slots, endedPerSecond() / 4);
    return Math.max(LEAST_ROWS, Math.ceil(Math.min(forSlots, perSecond / 2)));
  }

  /** Whether a delivery may begin. @param waiting number of waiting rows: as many tokens are requested */
  mayBegin(waiting: number): boolean {
    const { breaker, rate, clock } = this.#options;
    if (this.#isClosed) return false;
    if (breaker?.position === "probe") return this.#mayProbe;
    if (this.#hasFreeSlot && (rate === undefined || rate.available() > 0)) return true;
    if (waiting > 0) {
      if (this.#hasFreeSlot) rate?.want(waiting);
      this.#heldBackAt = clock.monotonic();
    }
    return false;
  }

  /** Admits a delivery. @returns undefined when it must not begin after all: another replica sends the probe */
  enter(): Permit | Promise<Permit | undefined> {
    const { breaker, rate } = this.#options;
    if (breaker?.position === "probe") {
      return breaker.takeProbe().then((isTaken) => (isTaken ? this.#begin(true) : undefined));
    }
    rate?.use();
    return this.#begin(false);
  }

  leave(permit: Permit, row: MessageId, report: ReceiverReport): void {
    const { breaker, ramp } = this.#options;
    this.#inFlight -= 1;
    if (permit.closes === this.#closes) this.#sinceClose -= 1;
    if (report.receiver === "healthy") ramp?.succeeded();
    else if (report.receiver === "failed") ramp?.failed();
    if (!permit.isProbe) {
      breaker?.ended(report, permit.beganAt, row);
      return;
    }
    if (report.receiver === "failed" || report.receiver === "unknown") {
      const [oldest] = this.#probed;
      if (this.#probed.size >= MOST_PROBED && oldest !== undefined) this.#probed.delete(oldest);
      this.#probed.add(row);
    }
    breaker?.probeEnded(report);
  }

  /** @param readAt monotonic ms at which the read began @returns whether a pause has begun or ended */
  update(shared: SharedDestination | undefined, readAt: number): boolean {
    const isPaused = shared?.pause != null;
    const hasChanged = !this.#isKnown || isPaused !== this.#isPaused;
    this.#isKnown = true;
    this.#isPaused = isPaused;
    this.#shared = shared;
    this.#options.breaker?.update(shared?.breaker, readAt);
    return hasChanged;
  }

  /** Rows that the next probe must not claim. */
  get probed(): readonly MessageId[] {
    return this.#options.breaker?.position === "probe" ? [...this.#probed] : [];
  }

  /** Only probed rows are due: each may be tried again. */
  forgetProbed(): void {
    this.#probed.clear();
  }

  /** The breaker has closed: the backlog goes out one by one at first. */
  rampUp(): void {
    this.#sinceClose = 0;
    this.#closes += 1;
    this.#probed.clear();
    this.#options.ramp?.restart();
  }

  get #isClosed(): boolean {
    const { store, breaker } = this.#options;
    return (!this.#isKnown && store.isAvailable) || this.#isPaused || breaker?.position === "open";
  }

  /** Deliveries from before the breaker opened may hang, and hold all of the destination's slots. */
  get #mayProbe(): boolean {
    return this.#inFlight < this.#options.concurrency;
  }

  get #hasFreeSlot(): boolean {
    const { concurrency, ramp } = this.#options;
    return this.#inFlight < concurrency && this.#sinceClose < (ramp?.limit ?? Infinity);
  }

  #begin(isProbe: boolean): Permit {
    this.#inFlight += 1;
    this.#sinceClose += 1;
    return { beganAt: this.#options.clock.monotonic(), isProbe, closes: this.#closes };
  }
}

/** Few rows are claimed for this long after a row had to wait. */
const HELD_BACK_MS = 1000;
const LEAST_ROWS = 2;
const MOST_PROBED = 100;
/** So that no slot waits for a claim. */
const ROWS_PER_SLOT = 4;
