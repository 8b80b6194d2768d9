import { errorText, StoppingError } from "../../model/errors.ts";
import type { CaptureState, ChangeLog, LogEvents, OwnedState } from "../../ports/capture.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { HealthComponent, Log, Service } from "../../ports/runtime.ts";
import type { Clock, Timer } from "../../time/clock.ts";
import { FaultLog } from "./faults.ts";
import { SavedPosition } from "./position.ts";
import { CaptureWakes } from "./wakes.ts";

export interface CaptureOptions {
  readonly changes: ChangeLog;
  readonly state: CaptureState;
  /** Wakes the poller. */
  readonly onInsert: () => void;
  /** Told of each change of {@link Capture.capturing}. */
  readonly onChange: (capturing: boolean) => void;
  /** @param failures in a row, 1 at first; @returns how long to wait then, in ms */
  readonly backoffMs: (failures: number) => number;
  /** Waits so many ms; rejects when the signal aborts first. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly timer: Timer;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "captureLag">;
  readonly log: Log;
  /** Shortest time between two saves of the position, in ms. Default 5000. */
  readonly saveIntervalMs?: number | undefined;
}

/** The state while this process owns it. */
interface Session {
  readonly state: OwnedState;
  readonly position: SavedPosition;
  /** Aborts with the reason when the ownership is lost. */
  readonly lost: AbortSignal;
}

const SAVE_INTERVAL_MS = 5000;
/** A connection that ends sooner belongs to the failures before it: a server that ends each one at once is not asked without a pause. */
const STEADY_MS = 10_000;

/**
 * Wakes the poller when the database's log shows outbox inserts (spec, "outbox.capture"): owns the state, and follows the log again and again.
 * Whatever fails here, delivery goes on by polling.
 */
export class Capture implements Service, HealthComponent {
  readonly name = "outbox-capture";
  readonly decidesReadiness = false;
  readonly #options: CaptureOptions;
  readonly #wakes: CaptureWakes;
  readonly #followFaults: FaultLog;
  readonly #saveFaults: FaultLog;
  readonly #stopping = new AbortController();
  readonly #cut = new AbortController();
  #session: Session | undefined;
  /** Lets go of the present follower, so that nothing it tells counts any more. */
  #detach: (() => void) | undefined;
  /** Why it does not follow; undefined while it does. */
  #fault: string | undefined = "change capture has not been started";
  /** Why the position is not saved; undefined when it is. */
  #saveFault: string | undefined;
  #failures = 0;
  #followingSince = 0;
  #running: Promise<void> | undefined;
  #end: Promise<void> | undefined;

  constructor(options: CaptureOptions) {
    const { onInsert, clock, timer, log } = options;
    this.#options = options;
    this.#wakes = new CaptureWakes(onInsert, clock, timer);
    this.#followFaults = new FaultLog({
      clock,
      log,
      failed: "change capture does not follow the database's log; delivery goes on by polling",
      again: "change capture follows the database's log again",
    });
    this.#saveFaults = new FaultLog({
      clock,
      log,
      failed: "the position of change capture is not saved; a restart would begin at the one saved last",
      again: "the position of change capture is saved again",
    });
  }

  /** Whether what is committed now will wake the poller. */
  get capturing(): boolean {
    return this.#fault === undefined;
  }

  /** Starts in the background and returns at once. Does nothing after a stop or when it runs already. */
  async start(): Promise<void> {
    if (this.#running !== undefined || this.#stopping.signal.aborted) return;
    this.#fault = "change capture has not connected yet";
    this.#running = this.#run();
  }

  /** @throws Error that says why the log is not followed, or the position not saved */
  async check(): Promise<void> {
    const fault = this.#fault ?? this.#saveFault;
    if (fault !== undefined) throw new Error(fault);
  }

  /** Ends the connection, at most until `cutoff` aborts, saves the position and gives the state up. */
  async stop(cutoff: AbortSignal): Promise<void> {
    this.#end ??= this.#stop();
    const cut = () => this.#cut.abort(cutoff.reason);
    if (cutoff.aborted) cut();
    else cutoff.addEventListener("abort", cut, { once: true });
    await this.#end;
    cutoff.removeEventListener("abort", cut);
  }

  async #stop(): Promise<void> {
    this.#stopping.abort(new StoppingError());
    this.#wakes.close();
    await Promise.race([this.#running, aborted(this.#cut.signal)]);
    this.#detach?.();
    this.#fault = "change capture was stopped";
    await this.#giveUpState();
  }

  async #run(): Promise<void> {
    const { wait, backoffMs } = this.#options;
    const stopping = this.#stopping.signal;
    for (;;) {
      const error = await this.#untilFailure();
      if (stopping.aborted) return;
      this.#failures += 1;
      const retryMs = backoffMs(this.#failures);
      this.#fault = errorText(error);
      this.#followFaults.failed(error, { failures: this.#failures, retryMs });
      if (this.#session?.lost.aborted) await this.#giveUpState();
      try {
        await wait(retryMs, stopping);
      } catch (waitError) {
        if (!stopping.aborted) throw waitError;
      }
      if (stopping.aborted) return;
    }
  }

  /** @returns why it ended, or anything when the capture stops */
  async #untilFailure(): Promise<unknown> {
    try {
      this.#session ??= await this.#open();
      if (this.#session === undefined) return undefined;
      await this.#follow(this.#session);
      return new Error("the follower of the database's log ended without a reason");
    } catch (error) {
      return this.#session?.lost.aborted ? this.#session.lost.reason : error;
    }
  }

  /** @returns undefined when the capture was stopped meanwhile */
  async #open(): Promise<Session | undefined> {
    const { changes, timer, saveIntervalMs = SAVE_INTERVAL_MS } = this.#options;
    const lost = new AbortController();
    const state = await this.#options.state.open(changes.settings, (error) => lost.abort(error));
    if (this.#stopping.signal.aborted) {
      await state.close();
      return undefined;
    }
    const position = new SavedPosition({
      state,
      intervalMs: saveIntervalMs,
      timer,
      onSaved: () => {
        this.#saveFault = undefined;
        this.#saveFaults.recovered();
      },
      onFailed: (error) => {
        this.#saveFault = errorText(error);
        this.#saveFaults.failed(error, {});
      },
    });
    return { state, position, lost: lost.signal };
  }

  async #follow({ position, lost }: Session): Promise<void> {
    const stopping = this.#stopping.signal;
    const ending = new AbortController();
    const onStop = () => ending.abort(stopping.reason);
    const onLost = () => ending.abort(lost.reason);
    let detached = false;
    const detach = () => {
      if (detached) return;
      detached = true;
      stopping.removeEventListener("abort", onStop);
      lost.removeEventListener("abort", onLost);
      this.#ended();
    };
    this.#detach = detach;
    stopping.addEventListener("abort", onStop);
    lost.addEventListener("abort", onLost);
    const events: LogEvents = {
      following: () => {
        if (!detached && !ending.signal.aborted) this.#began();
      },
      inserted: (committedAt) => {
        if (!detached) this.#inserted(committedAt);
      },
      reached: (at) => {
        if (!detached) position.reached(at);
      },
    };
    try {
      lost.throwIfAborted();
      await this.#options.changes.follow(position.latest, events, ending.signal);
      lost.throwIfAborted();
    } finally {
      detach();
    }
  }

  #began(): void {
    if (this.capturing) return;
    this.#followingSince = this.#options.clock.monotonic();
    this.#fault = undefined;
    if (!this.#followFaults.recovered()) this.#options.log.info({}, "change capture follows the database's log");
    this.#options.onChange(true);
    // Rows that came before were not told.
    this.#wakes.event();
  }

  #inserted(committedAt: number): void {
    const { clock, metrics } = this.#options;
    metrics.captureLag(Math.max(0, clock.now() - committedAt) / 1000);
    this.#wakes.event();
  }

  #ended(): void {
    if (!this.capturing) return;
    this.#fault = "the connection to the database's log has just ended";
    if (this.#options.clock.monotonic() - this.#followingSince >= STEADY_MS) this.#failures = 0;
    this.#options.onChange(false);
  }

  async #giveUpState(): Promise<void> {
    const session = this.#session;
    this.#session = undefined;
    this.#saveFault = undefined;
    if (session === undefined) return;
    await session.position.close(!session.lost.aborted);
    await session.state.close();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
