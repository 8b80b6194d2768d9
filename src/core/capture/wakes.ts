import type { Clock, Timer } from "../../time/clock.ts";

/**
 * A commit stands in the log a moment before other transactions see its rows: the server writes it, then ends the transaction. A wake at once may
 * thus find nothing, so that two more follow the last event of a burst. The first covers that moment, the second a server that waits for a
 * synchronous standby in between.
 */
const SHORT_ECHO_MS = 20;
const LONG_ECHO_MS = 250;

/** Turns events of the log into wakes: one for all events of a turn of the event loop, and echoes after the last one. */
export class CaptureWakes {
  readonly #wake: () => void;
  readonly #echoes: readonly Echo[];
  #turn: NodeJS.Immediate | undefined;
  #closed = false;

  constructor(wake: () => void, clock: Clock, timer: Timer) {
    this.#wake = wake;
    this.#echoes = [
      new Echo(SHORT_ECHO_MS, true, wake, clock, timer),
      new Echo(LONG_ECHO_MS, false, wake, clock, timer),
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
    for (const echo of this.#echoes) echo.event();
  }

  /** No wake comes after this. */
  close(): void {
    this.#closed = true;
    clearImmediate(this.#turn);
    for (const echo of this.#echoes) echo.cancel();
  }
}

/** One wake a fixed time after the last event, by a single timer that is not set anew for each event. */
class Echo {
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
