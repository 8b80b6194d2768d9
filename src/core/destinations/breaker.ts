import { errorText } from "../../model/errors.ts";
import type { ClaimToken } from "../../model/rows.ts";
import type { BreakerState, DestinationStore, SharedDestination } from "../../ports/destinationStore.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock, Random } from "../../time/clock.ts";

/**
 * What a delivery shows about its receiver: it works (`healthy`), even if it refuses this one message; it failed as it
 * would for any message (`failed`); or nothing (`unknown`), though another message might fare no better.
 */
export type Verdict = "healthy" | "failed" | "unknown";

export interface ReceiverReport {
  /** `unasked`: the row was not sent, for a reason of its own or because its delivery did not begin. */
  readonly receiver: Verdict | "unasked";
  /** The wait in ms that a failed receiver asked for, if any. */
  readonly retryAfterMs?: number | undefined;
  /** Why the delivery failed, redacted; undefined if it succeeded or did not begin. */
  readonly reason?: string | undefined;
  /** It was cut off, so that it may have succeeded. */
  readonly isInterrupted?: boolean;
}

export const HEALTHY: ReceiverReport = { receiver: "healthy" };
export const NOT_ASKED: ReceiverReport = { receiver: "unasked" };

interface SharedBreakerOptions {
  readonly name: string;
  readonly limits: BreakerLimits;
  readonly store: DestinationStore;
  readonly newToken: () => ClaimToken;
  readonly onChange: () => void;
  /** Called when the breaker closes, here or in another replica. */
  readonly onClose: () => void;
  readonly clock: Clock;
  readonly random: Random;
  readonly metrics: Pick<Metrics, "breakerTransition">;
  readonly log: Log;
}

/** `closed`: deliveries may begin; `open`: none may; `probe`: one may, after {@link SharedBreaker.takeProbe}. */
type BreakerPosition = "closed" | "open" | "probe";

/**
 * The circuit breaker of one destination, shared by all replicas. Failures seen by this replica open it; when its time
 * has passed, the replica that takes the probe sends one row. Every statement changes the shared state only from the
 * expected one, so one of several replicas acts. {@link maintain} retries failed statements.
 */
export class SharedBreaker {
  readonly #options: SharedBreakerOptions;
  readonly #counts: CircuitBreaker;
  #shared: { readonly state: BreakerState; readonly endsAt: number } = { state: "closed", endsAt: 0 };
  /** When this process last changed the shared state, or found it changed: reads that began before are outdated. */
  #changedAt = Number.NEGATIVE_INFINITY;
  /** To be opened for this reason; not written yet. */
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

  /** Ms until an open breaker lets a probe through; infinite if nothing changes by itself. */
  get changesWithinMs(): number {
    if (this.position !== "open" || this.#opening !== undefined || this.#probe !== undefined) {
      return Number.POSITIVE_INFINITY;
    }
    return Math.max(0, this.#shared.endsAt - this.#options.clock.monotonic());
  }

  /** Call it with the shared state just read. @param readAt monotonic ms at which the read began */
  update(breaker: SharedDestination["breaker"] | undefined, readAt: number): void {
    if (readAt < this.#changedAt) return;
    this.#become(breaker?.state ?? "closed", breaker?.remainingMs ?? 0);
  }

  /** Whether this process may send the probe now: one row, whose end goes to {@link probeEnded}. */
  async takeProbe(): Promise<boolean> {
    if (this.position !== "probe") return false;
    const { store, name, newToken } = this.#options;
    const probe: Probe = { token: newToken(), report: undefined, isConcluding: false };
    this.#probe = probe;
    const isTaken = await this.#runStatement("taking the probe failed", () =>
      store.takeProbe(name, probe.token, this.#leaseMs),
    );
    if (isTaken === true) {
      this.#report("half-open", "info", {}, "circuit breaker half-open: sending a probe");
      this.#changed("half-open");
    } else {
      this.#probe = undefined;
      // Another replica was faster; the next read shows its state.
      this.#become("half-open", UNTIL_NEXT_READ_MS);
    }
    return isTaken === true;
  }

  probeEnded(report: ReceiverReport): void {
    const probe = this.#probe;
    if (probe === undefined || probe.report !== undefined) return;
    probe.report = report;
    void this.#conclude(probe);
  }

  /** A delivery other than a probe has ended. @param beganAt monotonic ms */
  ended(report: ReceiverReport, beganAt: number, row: string): void {
    this.#counts.add(report, beganAt, row);
    if (this.#shared.state !== "closed" || this.#opening !== undefined) return;
    const opening = this.#counts.shouldOpen();
    if (opening === undefined) return;
    this.#opening = { ...opening, isRunning: false };
    this.#options.onChange();
    void this.#open();
  }

  /** Renews the lease of a probe and retries failed statements. Call it about every half second. Never rejects. */
  async maintain(): Promise<void> {
    if (this.#opening !== undefined) await this.#open();
    const probe = this.#probe;
    if (probe === undefined) return;
    if (probe.report !== undefined) return await this.#conclude(probe);
    const { store, name } = this.#options;
    const isOurs = await this.#runStatement("renewing the lease of the probe failed, retrying", () =>
      store.renewProbe(name, probe.token, this.#leaseMs),
    );
    if (isOurs === false && this.#probe === probe && probe.report === undefined) this.#probe = undefined;
  }

  async #open(): Promise<void> {
    const opening = this.#opening;
    if (opening === undefined || opening.isRunning) return;
    opening.isRunning = true;
    const { store, name } = this.#options;
    const opened = await this.#runStatement("opening the circuit breaker failed, retrying", async () => ({
      forMs: await store.open(name, this.#openingOf(null, opening.reason, opening.atLeastMs)),
    }));
    opening.isRunning = false;
    if (opened === undefined) return;
    this.#opening = undefined;
    // Undefined if another replica opened it first.
    if (opened.forMs !== undefined) {
      const fields = { reason: opening.reason, nextProbeMs: opened.forMs };
      this.#report("open", "warn", fields, "circuit breaker open: no deliveries until a probe succeeds");
    }
    this.#changed("open");
  }

  async #conclude(probe: Probe): Promise<void> {
    const { report } = probe;
    if (report === undefined || probe.isConcluding) return;
    probe.isConcluding = true;
    const state = await this.#runStatement("storing the outcome of the probe failed, retrying", () =>
      this.#stateAfter(report, probe.token),
    );
    probe.isConcluding = false;
    if (state === undefined) return;
    if (this.#probe === probe) this.#probe = undefined;
    this.#changed(state);
  }

  /** Runs a statement. @returns undefined when it failed, which is logged */
  async #runStatement<T>(failure: string, statement: () => Promise<T>): Promise<T | undefined> {
    try {
      return await statement();
    } catch (error) {
      this.#options.log.warn({ destination: this.#options.name, reason: errorText(error) }, failure);
      return undefined;
    }
  }

  /** Stores how a probe ended. @returns the shared state, half-open if another replica holds the probe by now */
  async #stateAfter(report: ReceiverReport, token: ClaimToken): Promise<BreakerState> {
    const { store, name, limits } = this.#options;
    const { reason = "unknown reason" } = report;
    switch (report.receiver) {
      case "healthy":
        if (!(await store.close(name, token))) return "half-open";
        this.#report("closed", "info", {}, "circuit breaker closed: the probe succeeded");
        return "closed";
      case "failed": {
        // Uncapped, one answer would hold back the whole fleet for as long as it likes.
        const atLeastMs = Math.min(limits.maxOpenMs, report.retryAfterMs ?? 0);
        const opening = this.#openingOf(token, `the probe failed: ${reason}`, atLeastMs);
        const nextProbeMs = await store.open(name, opening);
        if (nextProbeMs === undefined) return "half-open";
        this.#report("open", "warn", { reason, nextProbeMs }, "probe failed");
        return "open";
      }
      case "unknown": {
        // The next row may end likewise.
        const nextProbeMs = Math.round(limits.openMs * this.#jitter());
        if (!(await store.returnProbe(name, token, nextProbeMs))) return "half-open";
        this.#report("open", "warn", { reason, nextProbeMs }, "probe undecided");
        return "open";
      }
      case "unasked":
        if (!(await store.returnProbe(name, token, 0))) return "half-open";
        this.#report("open", "info", {}, "probe not sent: the next row is the probe");
        return "open";
      default:
        return report.receiver satisfies never;
    }
  }

  #openingOf(probe: ClaimToken | null, reason: string, atLeastMs: number) {
    const { limits } = this.#options;
    return {
      probe,
      openMs: limits.openMs,
      maxOpenMs: limits.maxOpenMs,
      factor: this.#jitter(),
      atLeastMs,
      stableAfterMs: Math.max(limits.windowMs, limits.maxOpenMs),
      reason,
    };
  }

  #jitter(): number {
    return 1 + this.#options.random() * JITTER;
  }

  /** This process has changed the shared state; the next read shows for how long it holds. */
  #changed(state: BreakerState): void {
    this.#changedAt = this.#options.clock.monotonic();
    this.#become(state, UNTIL_NEXT_READ_MS);
  }

  #become(state: BreakerState, remainingMs: number): void {
    const was = this.#shared.state;
    this.#shared = { state, endsAt: this.#options.clock.monotonic() + remainingMs };
    if (was === state) return;
    // Counts from before the change do not describe the receiver's present state.
    if (was === "closed" || state === "closed") this.#counts.reset();
    if (state === "closed") this.#options.onClose();
    this.#options.onChange();
  }

  #report(to: BreakerState, level: "info" | "warn", fields: object, message: string): void {
    const { log, metrics, name } = this.#options;
    metrics.breakerTransition(name, to);
    log[level]({ destination: name, ...fields }, message);
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

/** Largest random share. */
const JITTER = 0.2;
/** A killed process' probe ends after this, or `openMs` if longer: no receiver gets probes more often. */
const LEAST_LEASE_MS = 5000;
const UNTIL_NEXT_READ_MS = 1000;

/** `destinations.<name>.circuitBreaker`. */
export interface BreakerLimits {
  /** Share of the deliveries in the window, from above 0 to 1. */
  readonly failureRatio: number;
  readonly minimumAttempts: number;
  readonly windowMs: number;
  readonly openMs: number;
  /** The longest it is open, after doubling. */
  readonly maxOpenMs: number;
}

interface OpeningReason {
  readonly reason: string;
  readonly atLeastMs: number;
}

/**
 * Counts the deliveries of this process to one receiver, and decides when its breaker should open:
 *
 * - `failureRatio` of the deliveries in the window failed, of at least `minimumAttempts`;
 * - only failures for a second, at least `minimumAttempts`: successes before an outage would hide it for half a window,
 *   while rows use up their attempts;
 * - only failures for a whole window, of three rows or more: a receiver that hangs is tried seldom, and would never
 *   reach `minimumAttempts`; or
 * - three answers in the window asked to wait (`Retry-After`).
 */
export class CircuitBreaker {
  readonly #limits: BreakerLimits;
  readonly #clock: Clock;
  /** Tenths of the window, the newest last; empty ones are not kept. */
  #slices: Slice[] = [];
  /** Since the last success. */
  #inARow = 0;
  /** The rows of these, as many as matter. */
  readonly #rowsInARow = new Set<string>();
  /** When the first of these began, and the last one ended. */
  #failingSince = 0;
  #failedAt = 0;
  #askedToWait: { readonly at: number; readonly until: number }[] = [];
  #resetAt = Number.NEGATIVE_INFINITY;

  constructor(limits: BreakerLimits, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  /** Counts the end of a delivery, unless it began before the last reset. @param beganAt monotonic ms */
  add({ receiver, retryAfterMs }: ReceiverReport, beganAt: number, row: string): void {
    if (receiver === "unknown" || receiver === "unasked" || beganAt < this.#resetAt) return;
    const now = this.#clock.monotonic();
    const slice = this.#sliceAt(now);
    slice.attempts += 1;
    if (receiver === "healthy") {
      this.#endStreak();
      return;
    }
    slice.failures += 1;
    if (this.#inARow === 0) this.#failingSince = beganAt;
    this.#inARow += 1;
    if (this.#rowsInARow.size < LEAST_ROWS_IN_A_ROW) this.#rowsInARow.add(row);
    this.#failedAt = now;
    if (retryAfterMs !== undefined && retryAfterMs > 0) {
      this.#askedToWait = [...this.#askedToWait.slice(1 - WAITS_ASKED), { at: now, until: now + retryAfterMs }];
    }
  }

  shouldOpen(): OpeningReason | undefined {
    const { failureRatio, minimumAttempts, windowMs, maxOpenMs } = this.#limits;
    const now = this.#clock.monotonic();
    const waits = this.#askedToWait.filter(({ at }) => now - at <= windowMs);
    if (waits.length >= WAITS_ASKED) {
      const atLeastMs = Math.min(maxOpenMs, Math.max(...waits.map(({ until }) => until - now)));
      return { reason: `${WAITS_ASKED} answers asked to wait (Retry-After)`, atLeastMs: Math.max(0, atLeastMs) };
    }
    this.#forgetBefore(now - windowMs);
    const attempts = this.#slices.reduce((sum, slice) => sum + slice.attempts, 0);
    const failures = this.#slices.reduce((sum, slice) => sum + slice.failures, 0);
    if (attempts >= minimumAttempts && failures / attempts >= failureRatio) {
      return { reason: `${failures} of ${attempts} deliveries failed within ${windowMs} ms`, atLeastMs: 0 };
    }
    const failingMs = this.#failedAt - this.#failingSince;
    const isSudden = this.#inARow >= minimumAttempts && failingMs >= Math.min(SUDDEN_MS, windowMs);
    if (isSudden || (this.#rowsInARow.size >= LEAST_ROWS_IN_A_ROW && failingMs >= windowMs)) {
      return { reason: `all ${this.#inARow} deliveries within ${Math.round(failingMs)} ms failed`, atLeastMs: 0 };
    }
    return undefined;
  }

  reset(): void {
    this.#slices = [];
    this.#endStreak();
    this.#askedToWait = [];
    this.#resetAt = this.#clock.monotonic();
  }

  #endStreak(): void {
    this.#inARow = 0;
    this.#rowsInARow.clear();
  }

  #sliceAt(now: number): Slice {
    const { windowMs } = this.#limits;
    this.#forgetBefore(now - windowMs);
    const newest = this.#slices.at(-1);
    if (newest !== undefined && now - newest.beganAt < windowMs / SLICES) return newest;
    const slice = { beganAt: now, attempts: 0, failures: 0 };
    this.#slices.push(slice);
    return slice;
  }

  #forgetBefore(time: number): void {
    while (this.#slices[0] !== undefined && this.#slices[0].beganAt <= time) this.#slices.shift();
  }
}

interface Slice {
  /** Monotonic ms. */
  readonly beganAt: number;
  attempts: number;
  failures: number;
}

const SLICES = 10;
const SUDDEN_MS = 1000;
/** One or two rows that fail all night are not an outage. */
const LEAST_ROWS_IN_A_ROW = 3;
const WAITS_ASKED = 3;

/** Limits deliveries to a recovered receiver: one at first, one more per success, half as many after a failure. */
export class Ramp {
  readonly #most: number;
  #limit: number;

  /** @param most deliveries in flight, also until the first {@link restart} */
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
