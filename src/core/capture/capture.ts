import { errorText, StoppingError } from "../../model/errors.ts";
import type { ChangeLog, LogPosition, PositionStore } from "../../ports/capture.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { HealthComponent, Log, Service } from "../../ports/runtime.ts";
import type { Clock, Timer } from "../../time/clock.ts";
import { type Backoff, onAbort, sleep, untilAborted } from "../../time/wait.ts";

interface CaptureOptions {
  readonly changes: ChangeLog;
  readonly positions: PositionStore;
  /** Wakes the poller: rows may have come, or its wait between claims is another one. */
  readonly wake: () => void;
  readonly backoff: Pick<Backoff, "failures" | "next" | "reset">;
  readonly timer: Timer;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "captureLag">;
  readonly log: Log;
}

/** Shortest time between two saves while the position moves, in ms. */
const SAVE_INTERVAL_MS = 5000;
/** A connection that ends sooner counts as a failure: a server that ends each one gets no retry at once. */
const STEADY_MS = 10_000;
/**
 * The log shows a commit a moment before other transactions see its rows: the server writes it, then ends the
 * transaction. So two more wakes follow each event. The first covers that moment, the second a server that waits for a
 * synchronous standby in between.
 */
const REPEATS_MS = [20, 250];

/**
 * Wakes the poller when the database's log shows outbox inserts (spec, "outbox.capture"). Polling covers its failures.
 */
export class Capture implements Service, HealthComponent {
  readonly name = "outbox-capture";
  readonly decidesReadiness = false;
  readonly #options: CaptureOptions;
  readonly #stopping = new AbortController();
  readonly #cutoff = new AbortController();
  readonly #repeats: readonly ReturnType<typeof repeated>[];
  /** The position at which the next follower begins, saved or not. */
  #position: LogPosition | null = null;
  /** Monotonic ms of the last save. */
  #savedAt = Number.NEGATIVE_INFINITY;
  /** The saves so far, one after the other. Never rejects. */
  #saving: Promise<void> = Promise.resolve();
  /** Why it does not follow; undefined while it does. */
  #fault: string | undefined = "change capture has not been started";
  /** The reason of not following that is in the log already. */
  #loggedFault: string | undefined;
  #followingSince = 0;
  #running: Promise<void> | undefined;

  constructor(options: CaptureOptions) {
    const { wake, timer } = options;
    this.#options = options;
    this.#repeats = REPEATS_MS.map((ms) => repeated(ms, wake, timer));
  }

  get capturing(): boolean {
    return this.#fault === undefined;
  }

  /** Starts in the background and returns at once. Does nothing after a stop or when it runs already. */
  async start(): Promise<void> {
    if (this.#running !== undefined || this.#stopping.signal.aborted) return;
    this.#fault = "change capture has not connected yet";
    this.#running = this.#run();
  }

  /** @throws Error with why it does not follow the log */
  async check(): Promise<void> {
    if (this.#fault !== undefined) throw new Error(this.#fault);
  }

  /** Ends the connection, at most until `cutoff` aborts, and saves the position. */
  async stop(cutoff: AbortSignal): Promise<void> {
    using _ = onAbort(cutoff, () => this.#cutoff.abort(cutoff.reason));
    this.#stopping.abort(new StoppingError());
    await untilAborted(this.#running, this.#cutoff.signal);
    for (const repeat of this.#repeats) repeat.cancel();
    this.#fault = "change capture was stopped";
    this.#save();
    await this.#saving;
  }

  async #run(): Promise<void> {
    const { backoff, clock, timer, log, wake } = this.#options;
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      const error = await this.#follow(stopping).catch((reason: unknown) => reason);
      if (stopping.aborted) return;
      if (this.capturing && clock.monotonic() - this.#followingSince >= STEADY_MS) backoff.reset();
      const retryMs = backoff.next();
      const reason = errorText(error);
      this.#fault = reason;
      wake();
      log[reason === this.#loggedFault ? "debug" : "warn"](
        { failures: backoff.failures, retryMs, reason },
        "change capture does not follow the database's log; delivery continues by polling",
      );
      this.#loggedFault = reason;
      await sleep(retryMs, stopping, timer).catch(() => {});
    }
  }

  async #follow(stopping: AbortSignal): Promise<void> {
    const { changes, positions, clock, metrics } = this.#options;
    this.#position ??= await positions.read();
    await changes.follow(
      this.#position,
      {
        following: () => {
          if (!stopping.aborted) this.#followingBegan();
        },
        inserted: (committedAt) => {
          if (stopping.aborted) return;
          metrics.captureLag(Math.max(0, clock.now() - committedAt) / 1000);
          this.#wake();
        },
        reached: (position) => this.#reached(position),
      },
      stopping,
    );
  }

  #followingBegan(): void {
    const { clock, log } = this.#options;
    this.#followingSince = clock.monotonic();
    this.#fault = undefined;
    const again = this.#loggedFault === undefined ? "" : " again";
    this.#loggedFault = undefined;
    log.info({}, `change capture follows the database's log${again}`);
    // Earlier rows were not reported.
    this.#wake();
  }

  #wake(): void {
    this.#options.wake();
    for (const repeat of this.#repeats) repeat.event();
  }

  #reached(position: LogPosition): void {
    this.#position = position;
    const now = this.#options.clock.monotonic();
    if (now - this.#savedAt < SAVE_INTERVAL_MS) return;
    this.#savedAt = now;
    this.#save();
  }

  #save(): void {
    const { positions, log } = this.#options;
    const position = this.#position;
    if (position === null) return;
    this.#saving = this.#saving
      .then(() => positions.save(position))
      .catch((error: unknown) => {
        log.warn({ reason: errorText(error) }, "the position of change capture is not saved");
      });
  }
}

/** One wake a fixed time after an event; the events until then share the next one. */
function repeated(ms: number, wake: () => void, timer: Timer) {
  let cancel: (() => void) | undefined;
  let again = false;
  const arm = (): void => {
    again = false;
    cancel = timer(ms, () => {
      cancel = undefined;
      if (again) arm();
      wake();
    });
  };
  return {
    event(): void {
      if (cancel === undefined) arm();
      else again = true;
    },
    cancel: () => cancel?.(),
  };
}
