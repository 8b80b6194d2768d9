import { destinationState } from "../../model/destinations.ts";
import { errorText } from "../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../model/rows.ts";
import type { DestinationReport, DestinationStore } from "../../ports/destinationStore.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock, Random, Timer } from "../../time/clock.ts";
import type { BreakerLimits } from "./circuitBreaker.ts";
import { DestinationGate, type Pass } from "./gate.ts";
import { Ramp } from "./ramp.ts";
import { RateLimiter } from "./rateLimiter.ts";
import type { ReceiverReport } from "./receiver.ts";
import { SharedBreaker } from "./sharedBreaker.ts";

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
  enter(destination: string): Pass | Promise<Pass | undefined> {
    return this.#gates.get(destination)?.enter() ?? UNGUARDED;
  }

  leave(destination: string, pass: Pass, row: MessageId, report: ReceiverReport): void {
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
const UNGUARDED: Pass = { beganAt: 0, isProbe: false, closes: 0 };
const REPORT_MS = 2000;
/** That a rate limit does not answer. */
const TOLD_EVERY_MS = 60_000;
