import { errorText, StoppingError } from "../../model/errors.ts";
import type { CaptureState, ChangeLog, LogEvents, LogPosition, OwnedState } from "../../ports/capture.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { HealthComponent, Log, Service } from "../../ports/runtime.ts";
import type { Backoff } from "../../time/backoff.ts";
import type { Clock, Timer } from "../../time/clock.ts";
import { untilAborted } from "../../time/wait.ts";

export interface CaptureOptions {
  readonly changes: ChangeLog;
  readonly state: CaptureState;
  /** Wakes the poller. */
  readonly onInsert: () => void;
  /** Told of each change of {@link Capture.capturing}. */
  readonly onChange: (capturing: boolean) => void;
  readonly backoff: Pick<Backoff, "failures" | "next" | "reset">;
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
    await untilAborted(this.#running, this.#cut.signal);
    this.#detach?.();
    this.#fault = "change capture was stopped";
    await this.#giveUpState();
  }

  async #run(): Promise<void> {
    const { wait, backoff } = this.#options;
    const stopping = this.#stopping.signal;
    for (;;) {
      const error = await this.#untilFailure();
      if (stopping.aborted) return;
      const retryMs = backoff.next();
      this.#fault = errorText(error);
      this.#followFaults.failed(error, { failures: backoff.failures, retryMs });
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
    const { clock, backoff, onChange } = this.#options;
    if (clock.monotonic() - this.#followingSince >= STEADY_MS) backoff.reset();
    onChange(false);
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

interface SavedPositionOptions {
  readonly state: OwnedState;
  /** Shortest time between two saves, in ms. */
  readonly intervalMs: number;
  readonly timer: Timer;
  readonly onSaved: () => void;
  readonly onFailed: (error: unknown) => void;
}

/** The position a capture has reached, saved every now and then while it moves. Saves never overlap. */
class SavedPosition {
  readonly #options: SavedPositionOptions;
  #latest: LogPosition | null;
  #saved: LogPosition | null;
  #cancel: (() => void) | undefined;
  #saving: Promise<void> | undefined;
  #closed = false;

  constructor(options: SavedPositionOptions) {
    this.#options = options;
    this.#latest = options.state.position;
    this.#saved = options.state.position;
  }

  /** Where a follower begins; saved or not. */
  get latest(): LogPosition | null {
    return this.#latest;
  }

  /** Remembers a position, to be saved when the interval is over. */
  reached(position: LogPosition): void {
    this.#latest = position;
    this.#arm();
  }

  /**
   * Saves what is not saved yet, after a save that is under way, and nothing from then on. A failure is told to `onFailed`.
   *
   * @param save false where the state belongs to another process by now
   */
  async close(save: boolean): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    await this.#saving;
    if (save && this.#latest !== this.#saved) await this.#save();
  }

  #arm(): void {
    if (this.#closed || this.#latest === this.#saved) return;
    if (this.#cancel !== undefined || this.#saving !== undefined) return;
    const { timer, intervalMs } = this.#options;
    this.#cancel = timer(intervalMs, () => {
      this.#cancel = undefined;
      this.#saving = this.#save().finally(() => {
        this.#saving = undefined;
        this.#arm();
      });
    });
  }

  async #save(): Promise<void> {
    const { state, onSaved, onFailed } = this.#options;
    const position = this.#latest;
    if (position === null) return;
    try {
      await state.save(position);
      this.#saved = position;
      onSaved();
    } catch (error) {
      onFailed(error);
    }
  }
}

/**
 * The log shows a commit a moment before other transactions see its rows: the server writes it, then ends the transaction. A wake at
 * once may thus find nothing, so two more follow the last event of a burst. The first covers that moment, the second a server that
 * waits for a synchronous standby in between.
 */
const FIRST_REPEAT_MS = 20;
const LAST_REPEAT_MS = 250;

/** Turns events of the log into wakes: one for all events of a turn of the event loop, repeated after the last one. */
export class CaptureWakes {
  readonly #wake: () => void;
  readonly #repeats: readonly RepeatedWake[];
  #turn: NodeJS.Immediate | undefined;
  #closed = false;

  constructor(wake: () => void, clock: Clock, timer: Timer) {
    this.#wake = wake;
    this.#repeats = [
      new RepeatedWake(FIRST_REPEAT_MS, true, wake, clock, timer),
      new RepeatedWake(LAST_REPEAT_MS, false, wake, clock, timer),
    ];
  }

  /** Rows are committed, or may have been. */
  event(): void {
    if (this.#closed) return;
    // At the end of the turn: a batch that came in one piece is one wake, and none is asked for before the last of it was read.
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

/** One wake a fixed time after the last event, by a single timer that is not set anew for each event. */
class RepeatedWake {
  readonly #delayMs: number;
  /** Wakes each time the delay is over, also while events go on; otherwise only when they have ended. */
  readonly #duringStream: boolean;
  readonly #wake: () => void;
  readonly #clock: Clock;
  readonly #timer: Timer;
  #lastEventAt = 0;
  #cancel: (() => void) | undefined;

  constructor(delayMs: number, duringStream: boolean, wake: () => void, clock: Clock, timer: Timer) {
    this.#delayMs = delayMs;
    this.#duringStream = duringStream;
    this.#wake = wake;
    this.#clock = clock;
    this.#timer = timer;
  }

  event(): void {
    this.#lastEventAt = this.#clock.monotonic();
    if (this.#cancel === undefined) this.#arm(this.#delayMs);
  }

  cancel(): void {
    this.#cancel?.();
  }

  #arm(ms: number): void {
    this.#cancel = this.#timer(ms, () => {
      this.#cancel = undefined;
      const leftMs = this.#lastEventAt + this.#delayMs - this.#clock.monotonic();
      // Timers may fire a fraction of a millisecond early.
      const isOver = leftMs < 1;
      if (!isOver) this.#arm(Math.ceil(leftMs));
      if (isOver || this.#duringStream) this.#wake();
    });
  }
}

interface FaultLogOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Message of a failure. */
  readonly failed: string;
  /** Message when it works again. */
  readonly again: string;
}

/** A fault that stays is logged again after this time. */
const REPEAT_MS = 5 * 60_000;

/**
 * Logs something that fails again and again: one `warn` for a reason until it changes or five minutes are over, `debug` in
 * between, and one `info` when it works again.
 */
class FaultLog {
  readonly #options: FaultLogOptions;
  #row: { readonly since: number; reason: string; loggedAt: number } | undefined;

  constructor(options: FaultLogOptions) {
    this.#options = options;
  }

  /** @param fields of the line, beside the reason */
  failed(error: unknown, fields: object): void {
    const { clock, log, failed } = this.#options;
    const reason = errorText(error);
    const now = clock.monotonic();
    if (reason === this.#row?.reason && now - this.#row.loggedAt < REPEAT_MS) {
      log.debug({ ...fields, reason }, failed);
      return;
    }
    this.#row = { since: this.#row?.since ?? now, reason, loggedAt: now };
    log.warn({ ...fields, reason }, failed);
  }

  /** @returns whether anything had failed; the log then has how long it did not work */
  recovered(): boolean {
    const row = this.#row;
    if (row === undefined) return false;
    this.#row = undefined;
    const { clock, log, again } = this.#options;
    log.info({ awayMs: Math.round(clock.monotonic() - row.since) }, again);
    return true;
  }
}
