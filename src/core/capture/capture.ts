import { errorText, StoppingError } from "../../model/errors.ts";
import type { CaptureState, ChangeLog, LogEvents, LogPosition, OwnedState } from "../../ports/capture.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { HealthComponent, Log, Service } from "../../ports/runtime.ts";
import type { Backoff } from "../../time/backoff.ts";
import type { Clock, Timer } from "../../time/clock.ts";
import { linked, onAbort, untilAborted } from "../../time/wait.ts";

export interface CaptureOptions {
  readonly changes: ChangeLog;
  readonly state: CaptureState;
  readonly onInsert: () => void;
  /** Called at each change of {@link Capture.capturing}. */
  readonly onChange: (capturing: boolean) => void;
  readonly backoff: Pick<Backoff, "failures" | "next" | "reset">;
  /** Waits this many ms; rejects when the signal aborts first. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly timer: Timer;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "captureLag">;
  readonly log: Log;
}

/** The state while this process owns it. */
interface Session {
  readonly state: OwnedState;
  /** Aborts with the reason when the ownership is lost. */
  readonly lost: AbortSignal;
  /** Where the next follower begins, saved or not. */
  position: LogPosition | null;
  /** Monotonic ms of the last save. */
  savedAt: number;
  /** The saves so far, one after the other. Never rejects. */
  saving: Promise<void>;
}

/** Shortest time between two saves while the position moves, in ms. */
const SAVE_INTERVAL_MS = 5000;
/** A connection that ends sooner counts as a failure: a server that ends each one gets no retry at once. */
const STEADY_MS = 10_000;

/**
 * Wakes the poller when the database's log shows outbox inserts (spec, "outbox.capture"): owns the state, and follows
 * the log again after each failure. Delivery continues by polling meanwhile.
 */
export class Capture implements Service, HealthComponent {
  readonly name = "outbox-capture";
  readonly decidesReadiness = false;
  readonly #options: CaptureOptions;
  readonly #wakes: CaptureWakes;
  readonly #stopping = new AbortController();
  readonly #cut = new AbortController();
  #session: Session | undefined;
  /** Why it does not follow; undefined while it does. */
  #fault: string | undefined = "change capture has not been started";
  /** The reasons that are in the log already: of not following, and of not saving the position. */
  #loggedFault: string | undefined;
  #loggedSaveFault: string | undefined;
  #followingSince = 0;
  #running: Promise<void> | undefined;
  #end: Promise<void> | undefined;

  constructor(options: CaptureOptions) {
    const { onInsert, clock, timer } = options;
    this.#options = options;
    this.#wakes = new CaptureWakes(onInsert, clock, timer);
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

  /** @throws Error with why it does not follow the log */
  async check(): Promise<void> {
    if (this.#fault !== undefined) throw new Error(this.#fault);
  }

  /** Ends the connection, at most until `cutoff` aborts, saves the position and releases the state. */
  async stop(cutoff: AbortSignal): Promise<void> {
    this.#end ??= this.#stop();
    using _ = onAbort(cutoff, () => this.#cut.abort(cutoff.reason));
    await this.#end;
  }

  async #stop(): Promise<void> {
    this.#stopping.abort(new StoppingError());
    this.#wakes.close();
    await untilAborted(this.#running, this.#cut.signal);
    this.#ended();
    this.#fault = "change capture was stopped";
    await this.#giveUpState();
  }

  async #run(): Promise<void> {
    const { wait, backoff, log } = this.#options;
    const stopping = this.#stopping.signal;
    for (;;) {
      const error = await this.#untilFailure();
      if (stopping.aborted) return;
      const retryMs = backoff.next();
      const reason = errorText(error);
      this.#fault = reason;
      log[reason === this.#loggedFault ? "debug" : "warn"](
        { failures: backoff.failures, retryMs, reason },
        "change capture does not follow the database's log; delivery goes on by polling",
      );
      this.#loggedFault = reason;
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
    const lost = new AbortController();
    const state = await this.#options.state.open((error) => lost.abort(error));
    if (this.#stopping.signal.aborted) {
      await state.close();
      return undefined;
    }
    const { position } = state;
    return { state, lost: lost.signal, position, savedAt: Number.NEGATIVE_INFINITY, saving: Promise.resolve() };
  }

  async #follow(session: Session): Promise<void> {
    const { lost } = session;
    using ending = linked(this.#stopping.signal);
    using _ = onAbort(lost, () => ending.abort(lost.reason));
    const { signal } = ending;
    const events: LogEvents = {
      following: () => {
        if (!signal.aborted) this.#began();
      },
      inserted: (committedAt) => {
        if (!signal.aborted) this.#inserted(committedAt);
      },
      reached: (position) => this.#reached(session, position),
    };
    try {
      lost.throwIfAborted();
      await this.#options.changes.follow(session.position, events, signal);
      lost.throwIfAborted();
    } finally {
      this.#ended();
    }
  }

  #began(): void {
    if (this.capturing) return;
    this.#followingSince = this.#options.clock.monotonic();
    this.#fault = undefined;
    const again = this.#loggedFault === undefined ? "" : " again";
    this.#loggedFault = undefined;
    this.#options.log.info({}, `change capture follows the database's log${again}`);
    this.#options.onChange(true);
    // Earlier rows were not reported.
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
    const { clock, backoff, onChange } = this.#options;
    if (clock.monotonic() - this.#followingSince >= STEADY_MS) backoff.reset();
    onChange(false);
  }

  #reached(session: Session, position: LogPosition): void {
    if (this.#session !== session) return;
    session.position = position;
    const now = this.#options.clock.monotonic();
    if (now - session.savedAt < SAVE_INTERVAL_MS) return;
    session.savedAt = now;
    this.#save(session);
  }

  #save(session: Session): void {
    const { state, position, saving } = session;
    const { log } = this.#options;
    if (position === null) return;
    session.saving = saving
      .then(() => state.save(position))
      .then(
        () => {
          this.#loggedSaveFault = undefined;
        },
        (error: unknown) => {
          const reason = errorText(error);
          if (reason === this.#loggedSaveFault) return;
          this.#loggedSaveFault = reason;
          log.warn(
            { reason },
            "the position of change capture is not saved: a restart would begin at the last saved one",
          );
        },
      );
  }

  async #giveUpState(): Promise<void> {
    const session = this.#session;
    this.#session = undefined;
    if (session === undefined) return;
    if (!session.lost.aborted && session.position !== session.state.position) this.#save(session);
    await session.saving;
    await session.state.close();
  }
}

/**
 * The log shows a commit a moment before other transactions see its rows: the server writes it, then ends the
 * transaction. A wake at once may find nothing, so two more follow the last event of a burst. The first covers that
 * moment, the second a server that waits for a synchronous standby in between.
 */
const FIRST_REPEAT_MS = 20;
const LAST_REPEAT_MS = 250;

/** Turns events of the log into wakes: one per turn of the event loop, repeated after the last one. */
export class CaptureWakes {
  readonly #wake: () => void;
  readonly #repeats: readonly ReturnType<typeof repeatedWake>[];
  #turn: NodeJS.Immediate | undefined;
  #closed = false;

  constructor(wake: () => void, clock: Clock, timer: Timer) {
    this.#wake = wake;
    this.#repeats = [
      repeatedWake(FIRST_REPEAT_MS, true, wake, clock, timer),
      repeatedWake(LAST_REPEAT_MS, false, wake, clock, timer),
    ];
  }

  event(): void {
    if (this.#closed) return;
    // At the end of the turn: a batch that arrived in one piece is one wake, after all of it was read.
    this.#turn ??= setImmediate(() => {
      this.#turn = undefined;
      this.#wake();
    });
    for (const repeat of this.#repeats) repeat.event();
  }

  /** No wake comes after this. */
  close(): void {
    this.#closed = true;
    clearImmediate(this.#turn);
    for (const repeat of this.#repeats) repeat.cancel();
  }
}

/** One wake a fixed time after the last event; `duringStream` also after each delay while events continue. */
function repeatedWake(delayMs: number, duringStream: boolean, wake: () => void, clock: Clock, timer: Timer) {
  let lastEventAt = 0;
  let cancel: (() => void) | undefined;
  const arm = (ms: number): void => {
    cancel = timer(ms, () => {
      cancel = undefined;
      const leftMs = lastEventAt + delayMs - clock.monotonic();
      // Timers may fire a fraction of a millisecond early.
      const isOver = leftMs < 1;
      if (!isOver) arm(Math.ceil(leftMs));
      if (isOver || duringStream) wake();
    });
  };
  return {
    event(): void {
      lastEventAt = clock.monotonic();
      if (cancel === undefined) arm(delayMs);
    },
    cancel: () => cancel?.(),
  };
}
