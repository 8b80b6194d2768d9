import { errorText } from "../../model/errors.ts";
import type { ClaimToken } from "../../model/rows.ts";
import type { BreakerState, DestinationStore, SharedDestination } from "../../ports/destinationStore.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock, Random } from "../../time/clock.ts";
import { type BreakerLimits, CircuitBreaker } from "./circuitBreaker.ts";
import type { ReceiverReport } from "./receiver.ts";

export interface SharedBreakerOptions {
  /** Of the destination. */
  readonly name: string;
  readonly limits: BreakerLimits;
  readonly store: DestinationStore;
  readonly newToken: () => ClaimToken;
  /** Told of each change after which more or fewer deliveries may begin. */
  readonly onChange: () => void;
  /** Told when the breaker closes, here or in another replica. */
  readonly onClose: () => void;
  readonly clock: Clock;
  readonly random: Random;
  readonly metrics: Pick<Metrics, "breakerTransition">;
  readonly log: Log;
}

/** `closed`: deliveries may begin; `open`: none may; `probe`: one may, once {@link SharedBreaker.takeProbe} says so. */
export type BreakerPosition = "closed" | "open" | "probe";

/**
 * The breaker of one destination as all replicas share it: what this one sees of the receiver opens it, and when its time is over, the replica that gets
 * the probe sends one row. Every step is a statement that changes the shared state only from where it is expected to be, so of several replicas
 * with the same opinion one acts. Until a statement has succeeded it is tried again by {@link upkeep}.
 */
export class SharedBreaker {
  readonly #options: SharedBreakerOptions;
  readonly #counts: CircuitBreaker;
  #shared: { readonly state: BreakerState; readonly endsAt: number } = { state: "closed", endsAt: 0 };
  /** When this process last changed the shared state, or found it changed: what was read before is outdated. */
  #changedAt = Number.NEGATIVE_INFINITY;
  /** To be opened, for this reason; the database does not know it yet. */
  #opening: { readonly reason: string; readonly atLeastMs: number; isRunning: boolean } | undefined;
  #probe: Probe | undefined;

  constructor(options: SharedBreakerOptions) {
    this.#options = options;
    this.#counts = new CircuitBreaker(options.limits, options.clock);
  }

  get position(): BreakerPosition {
    if (this.#opening !== undefined || this.#probe !== undefined) return "open";
    if (this.#shared.state === "closed") return "closed";
    return this.#options.clock.monotonic() >= this.#shared.endsAt ? "probe" : "open";
  }

  get state(): BreakerState {
    return this.#opening !== undefined && this.#shared.state === "closed" ? "open" : this.#shared.state;
  }

  /** Ms until an open breaker lets a probe through; infinite where nothing changes by itself. */
  get changesWithinMs(): number {
    if (this.position !== "open" || this.#opening !== undefined || this.#probe !== undefined) {
      return Number.POSITIVE_INFINITY;
    }
    return Math.max(0, this.#shared.endsAt - this.#options.clock.monotonic());
  }

  /**
   * The shared state was read.
   *
   * @param askedAt monotonic ms at which the read began; answered at this moment
   */
  learn(breaker: SharedDestination["breaker"] | undefined, askedAt: number): void {
    if (askedAt < this.#changedAt) return;
    this.#become(breaker?.state ?? "closed", breaker?.remainingMs ?? 0);
  }

  /** Whether this process may send the probe now. The caller sends one row then, and reports it under {@link probeEnded}. */
  async takeProbe(): Promise<boolean> {
    if (this.position !== "probe") return false;
    const { store, name, newToken, log } = this.#options;
    const probe: Probe = { token: newToken(), report: undefined, isConcluding: false };
    this.#probe = probe;
    let isTaken = false;
    try {
      isTaken = await store.takeProbe(name, probe.token, this.#leaseMs);
    } catch (error) {
      log.warn({ destination: name, reason: errorText(error) }, "probe not taken");
    }
    if (isTaken) this.#changed("half-open");
    else {
      this.#probe = undefined;
      // Somebody else was quicker. The next read tells more.
      this.#become("half-open", UNTIL_NEXT_READ_MS);
    }
    return isTaken;
  }

  probeEnded(report: ReceiverReport): void {
    const probe = this.#probe;
    if (probe === undefined || probe.report !== undefined) return;
    probe.report = report;
    void this.#conclude(probe);
  }

  /** A delivery of a row that is no probe has ended. @param beganAt monotonic ms */
  ended(report: ReceiverReport, beganAt: number, row: string): void {
    this.#counts.add(report, beganAt, row);
    if (this.#shared.state !== "closed" || this.#opening !== undefined) return;
    const opening = this.#counts.shouldOpen();
    if (opening === undefined) return;
    this.#opening = { ...opening, isRunning: false };
    this.#options.onChange();
    void this.#open();
  }

  /** Renews the lease of a probe, and tries again what the database did not take. Call it about every half second. Never rejects. */
  async upkeep(): Promise<void> {
    if (this.#opening !== undefined) await this.#open();
    const probe = this.#probe;
    if (probe === undefined) return;
    if (probe.report !== undefined) return await this.#conclude(probe);
    const { store, name, log } = this.#options;
    try {
      const isOurs = await store.renewProbe(name, probe.token, this.#leaseMs);
      if (!isOurs && this.#probe === probe && probe.report === undefined) this.#probe = undefined;
    } catch (error) {
      log.warn({ destination: name, reason: errorText(error) }, "lease of the probe not renewed");
    }
  }

  async #open(): Promise<void> {
    const opening = this.#opening;
    if (opening === undefined || opening.isRunning) return;
    opening.isRunning = true;
    const { store, name, log } = this.#options;
    try {
      const isOurs = await store.open(name, this.#openingOf(null, opening.reason, opening.atLeastMs));
      this.#opening = undefined;
      if (isOurs) this.#tellOpen(opening.reason);
      this.#changed("open");
    } catch (error) {
      opening.isRunning = false;
      log.warn({ destination: name, reason: errorText(error) }, "circuit breaker not opened in the database yet");
    }
  }

  async #conclude(probe: Probe): Promise<void> {
    const { report } = probe;
    if (report === undefined || probe.isConcluding) return;
    probe.isConcluding = true;
    const { name, log } = this.#options;
    let state: BreakerState;
    try {
      state = await this.#stateAfter(report, probe.token);
    } catch (error) {
      probe.isConcluding = false;
      log.warn({ destination: name, reason: errorText(error) }, "outcome of the probe not in the database yet");
      return;
    }
    if (this.#probe === probe) this.#probe = undefined;
    this.#changed(state);
  }

  /** Stores what a probe told. @returns the shared state after it; half-open where the probe is somebody else's by now */
  async #stateAfter(report: ReceiverReport, token: ClaimToken): Promise<BreakerState> {
    const { store, name } = this.#options;
    switch (report.receiver) {
      case "well":
        if (!(await store.close(name, token))) return "half-open";
        this.#tellClosed();
        return "closed";
      case "failed": {
        const reason = `the probe failed: ${report.reason ?? "no reason is known"}`;
        if (!(await store.open(name, this.#openingOf(token, reason, report.retryAfterMs ?? 0)))) return "half-open";
        this.#tellOpen(reason);
        return "open";
      }
      case "unknown":
        await store.returnProbe(name, token);
        return "open";
      default:
        return report.receiver satisfies never;
    }
  }

  #openingOf(probe: ClaimToken | null, reason: string, atLeastMs: number) {
    const { limits, random } = this.#options;
    return {
      probe,
      openMs: limits.openMs,
      maxOpenMs: limits.maxOpenMs,
      factor: 1 + random() * JITTER,
      atLeastMs,
      stableAfterMs: Math.max(limits.windowMs, limits.maxOpenMs),
      reason,
    };
  }

  /** This process has acted on the shared state. For how long it holds the next read tells. */
  #changed(state: BreakerState): void {
    this.#changedAt = this.#options.clock.monotonic();
    this.#become(state, UNTIL_NEXT_READ_MS);
  }

  #become(state: BreakerState, remainingMs: number): void {
    const was = this.#shared.state;
    this.#shared = { state, endsAt: this.#options.clock.monotonic() + remainingMs };
    if (was === state) return;
    // What was counted before says nothing of the receiver as it is now.
    if (was === "closed" || state === "closed") this.#counts.reset();
    if (state === "closed") this.#options.onClose();
    this.#options.onChange();
  }

  #tellOpen(reason: string): void {
    const { log, metrics, name } = this.#options;
    metrics.breakerTransition(name, "open");
    log.warn({ destination: name, reason }, "circuit breaker open: no delivery is tried until a probe succeeds");
  }

  #tellClosed(): void {
    const { log, metrics, name } = this.#options;
    metrics.breakerTransition(name, "closed");
    log.info({ destination: name }, "circuit breaker closed: the probe succeeded");
  }

  get #leaseMs(): number {
    return Math.max(LEAST_LEASE_MS, this.#options.limits.openMs);
  }
}

interface Probe {
  readonly token: ClaimToken;
  report: ReceiverReport | undefined;
  isConcluding: boolean;
}

/** Share of the time that chance adds at most. */
const JITTER = 0.2;
/** A probe whose process was killed is over after this, or `openMs` where that is longer: no receiver gets probes closer to each other. */
const LEAST_LEASE_MS = 5000;
const UNTIL_NEXT_READ_MS = 1000;
