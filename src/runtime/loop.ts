import { errorText, StoppingError } from "../model/errors.ts";
import type { Log, Service } from "../ports/runtime.ts";
import { type Clock, type Random, systemClock, systemTimer, type Timer } from "../time/clock.ts";
import { type BackoffRange, backoffMs, onAbort, sharedController } from "../time/wait.ts";

/**
 * What a pass found: `again` when more work probably waits, `idle` when none does for now, `full` when more waits than
 * may begin: a wake will tell when it may.
 */
export type PassResult = "again" | "idle" | "full";

export interface LoopOptions {
  readonly name: string;
  /** One round of work; `idle` unless it says. `signal` aborts with a `StoppingError` when the time for a graceful stop is over. */
  readonly pass: (signal: AbortSignal) => Promise<PassResult> | Promise<void>;
  /** Wait after an idle or full pass; a function is asked before each wait. */
  readonly intervalMs: number | (() => number);
  /** Called after each failed pass, with how many failed in a row and the wait before the next, in ms. */
  readonly onError: (error: unknown, failures: number, delayMs: number) => void;
  /**
   * Longest rest after an idle pass, in ms. A rest is as long as the pass was and no wake ends it: what comes meanwhile
   * shares the next pass, and passes that find little take at most half of the time. Default 0: none.
   */
  readonly maxRestMs?: number;
  /** Waits after failed passes. Default: 100 ms to 10 s. */
  readonly backoff?: BackoffRange;
  /** Down when no pass has succeeded for this long, in ms; more than the slowest pass and the interval together. */
  readonly staleAfterMs: number;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly timer?: Timer;
}

/** An `onError` that logs the failed pass. @param what the message @param fields further ones of the line */
export function logFailures(log: Log, what: string, fields: object = {}): LoopOptions["onError"] {
  return (error, failures, delayMs) => log.error({ err: error, ...fields, failures, delayMs }, what);
}

const BACKOFF: BackoffRange = { firstMs: 100, longestMs: 10_000 };

/** `created` until start; `running`; `stopping` from the first stop; `stopped` when nothing runs. Never backwards. */
type Phase = "created" | "running" | "stopping" | "stopped";

/**
 * Runs one pass at a time: at once after `again`, else after the interval or a wake, and with growing waits after
 * errors. A loop that was stopped, even before its start, never runs again.
 */
export class Loop implements Service {
  readonly name: string;
  readonly #options: LoopOptions;
  readonly #clock: Clock;
  readonly #timer: Timer;
  readonly #random: Random;
  readonly #cutoff = sharedController();
  #phase: Phase = "created";
  #running: Promise<void> = Promise.resolve();
  #woken = false;
  /** Ends the present wait; undefined while a pass runs. */
  #endWait: (() => void) | undefined;
  #heedsWakes = true;
  #failures = 0;
  #lastError: unknown;
  /** Monotonic ms of the last success. The start counts as one, so that the first pass has its time. */
  #freshSince = 0;

  constructor(options: LoopOptions) {
    this.name = options.name;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#timer = options.timer ?? systemTimer;
    this.#random = options.random ?? Math.random;
  }

  /** Starts the first pass and returns without waiting for it. Does nothing after a stop or when it runs already. */
  async start(): Promise<void> {
    if (this.#phase !== "created") return;
    this.#phase = "running";
    this.#freshSince = this.#clock.monotonic();
    this.#running = this.#run();
  }

  /**
   * Makes the next pass start now instead of after the interval; during a pass, one more follows it. The wait after a
   * failed pass stays: a wake means that there is work, not that the fault is gone.
   */
  wake(): void {
    this.#woken = true;
    if (this.#heedsWakes) this.#endWait?.();
  }

  /** Ends the wait and returns when a running pass has ended, whose signal aborts together with `cutoff`. */
  async stop(cutoff: AbortSignal): Promise<void> {
    const abort = () => this.#cutoff.abort(cutoff.reason instanceof Error ? cutoff.reason : new StoppingError());
    using _ = onAbort(cutoff, abort);
    if (this.#phase !== "stopped") this.#phase = "stopping";
    this.#endWait?.();
    await this.#running.finally(() => {
      this.#phase = "stopped";
    });
  }

  /**
   * Health check: down if the loop does not run, its last pass failed, or none has succeeded for `staleAfterMs`.
   *
   * @throws Error that says why the loop is down
   */
  async check(): Promise<void> {
    const reason = this.#downReason();
    if (reason !== undefined) throw new Error(reason, { cause: this.#lastError });
  }

  #downReason(): string | undefined {
    if (this.#phase !== "running") return `${this.name} is ${this.#phase === "created" ? "not started" : this.#phase}`;
    if (this.#failures > 0) {
      return `${this.name} failed in its last pass: ${errorText(this.#lastError)}`;
    }
    const ageMs = Math.round(this.#clock.monotonic() - this.#freshSince);
    if (ageMs <= this.#options.staleAfterMs) return undefined;
    return `${this.name} has finished no pass for ${ageMs} ms (at most ${this.#options.staleAfterMs} ms are expected)`;
  }

  async #run(): Promise<void> {
    while (this.#phase === "running") {
      this.#woken = false;
      const startedAt = this.#clock.monotonic();
      const result = await this.#onePass();
      const endedAt = this.#clock.monotonic();
      if (result === "failed") await this.#waitForRetry();
      else if (result !== "again" && !this.#woken) await this.#wait(this.#untilNextBeat());
      // A pass that never really waits must not keep timers and sockets from their turn.
      else await new Promise<void>((resolve) => setImmediate(resolve));
      if (result === "idle")
        await this.#restUntil(endedAt + Math.min(endedAt - startedAt, this.#options.maxRestMs ?? 0));
    }
  }

  async #restUntil(time: number): Promise<void> {
    const ms = time - this.#clock.monotonic();
    // A timer cannot be set for less.
    if (ms >= 1) await this.#waitThroughWakes(ms);
  }

  /**
   * Loops with the same interval wait for the same beat: waking up is most of what an idle process costs. A very near
   * beat counts as this one, as timers may be a millisecond early.
   */
  #untilNextBeat(): number {
    const { intervalMs: given } = this.#options;
    const intervalMs = typeof given === "number" ? given : given();
    if (intervalMs <= 0) return 0;
    const leftMs = intervalMs - (this.#clock.monotonic() % intervalMs);
    return Math.ceil(leftMs < intervalMs / 10 ? leftMs + intervalMs : leftMs);
  }

  async #onePass(): Promise<PassResult | "failed"> {
    try {
      const result = await this.#options.pass(this.#cutoff.signal);
      this.#failures = 0;
      this.#lastError = undefined;
      this.#freshSince = this.#clock.monotonic();
      return result ?? "idle";
    } catch (error) {
      // A pass that the cutoff interrupted has not failed.
      if (error instanceof StoppingError && this.#phase !== "running") return "idle";
      this.#failures += 1;
      this.#lastError = error;
      return "failed";
    }
  }

  async #waitForRetry(): Promise<void> {
    const delayMs = backoffMs(this.#failures, this.#options.backoff ?? BACKOFF, this.#random);
    this.#options.onError(this.#lastError, this.#failures, delayMs);
    await this.#waitThroughWakes(delayMs);
  }

  /** Waits for the time or the stop; a wake counts for the pass that follows. */
  async #waitThroughWakes(ms: number): Promise<void> {
    this.#heedsWakes = false;
    await this.#wait(ms);
    this.#heedsWakes = true;
  }

  /** Waits for the time, a wake or the stop. */
  async #wait(ms: number): Promise<void> {
    if (this.#phase !== "running") return;
    await new Promise<void>((resolve) => {
      const cancel = this.#timer(ms, () => this.#endWait?.());
      this.#endWait = () => {
        this.#endWait = undefined;
        cancel();
        resolve();
      };
    });
  }
}
