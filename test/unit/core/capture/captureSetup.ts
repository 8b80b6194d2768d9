import { Capture, type CaptureOptions } from "../../../../src/core/capture/capture.ts";
import type { CaptureState, ChangeLog, LogEvents, OwnedState } from "../../../../src/ports/capture.ts";
import { eventually } from "../../../support/eventually.ts";
import { manualTime } from "../../../support/manualTime.ts";
import { recordingLog, recordingMetrics } from "../../../support/recorders.ts";

/** One call of `follow`, which lasts until the test ends it or, unless it is deaf, its signal aborts. */
export interface Follow {
  readonly from: string | null;
  readonly events: LogEvents;
  readonly signal: AbortSignal;
  end(error?: Error): void;
}

export class ScriptedLog implements ChangeLog {
  readonly follows: Follow[] = [];
  /** Whether a follow goes on after its signal aborted. */
  deaf = false;

  follow(from: string | null, events: LogEvents, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (error?: Error) => (error === undefined ? resolve() : reject(error));
      this.follows.push({ from, events, signal, end });
      signal.addEventListener("abort", () => {
        if (!this.deaf) resolve();
      });
    });
  }

  /** The newest call. */
  get last(): Follow {
    const last = this.follows.at(-1);
    if (last === undefined) throw new Error("nobody follows the log");
    return last;
  }
}

export class ScriptedState implements CaptureState {
  position: string | null = null;
  opened = 0;
  readonly saved: string[] = [];
  closed = 0;
  /** Whether a save came while another one was under way. */
  overlapped = false;
  openFault: Error | undefined;
  saveFault: Error | undefined;
  /** What the next calls wait for. */
  openGate: Promise<void> = Promise.resolve();
  saveGate: Promise<void> = Promise.resolve();
  closeGate: Promise<void> = Promise.resolve();
  lose: (error: Error) => void = () => {};
  #saving = 0;

  async open(onLost: (error: Error) => void): Promise<OwnedState> {
    this.opened += 1;
    await this.openGate;
    if (this.openFault !== undefined) throw this.openFault;
    this.lose = onLost;
    return {
      position: this.position,
      save: (position) => this.#save(position),
      close: async () => {
        await this.closeGate;
        this.closed += 1;
      },
    };
  }

  async #save(position: string): Promise<void> {
    this.overlapped ||= this.#saving > 0;
    this.#saving += 1;
    try {
      await this.saveGate;
      if (this.saveFault !== undefined) throw this.saveFault;
      this.saved.push(position);
    } finally {
      this.#saving -= 1;
    }
  }
}

/** A capture over a scripted log and state, in time that moves by hand. */
export function setUpCapture(overrides: Partial<CaptureOptions> = {}) {
  const time = manualTime();
  const { timer, clock } = time;
  const changes = new ScriptedLog();
  const state = new ScriptedState();
  const { metrics, calls } = recordingMetrics();
  const { log, lines } = recordingLog();
  const seen = { wakes: 0, changes: [] as boolean[], backoffs: [] as number[] };
  let failures = 0;
  const capture = new Capture({
    changes,
    state,
    onInsert: () => {
      seen.wakes += 1;
    },
    onChange: (capturing) => seen.changes.push(capturing),
    backoff: {
      get failures() {
        return failures;
      },
      next: () => {
        failures += 1;
        seen.backoffs.push(failures);
        return 100 * failures;
      },
      reset: () => {
        failures = 0;
      },
    },
    wait: (ms, signal) =>
      new Promise((resolve, reject) => {
        const cancel = timer(ms, resolve);
        signal.addEventListener("abort", () => {
          cancel();
          reject(signal.reason);
        });
      }),
    timer,
    clock,
    metrics,
    log,
    ...overrides,
  });
  /** Starts it and brings it to its first connection, with all wakes of that behind it. */
  const connect = async () => {
    await capture.start();
    await eventually(() => changes.follows.length > 0, { intervalMs: 1 });
    changes.last.events.following();
    await time.advance(1000);
    seen.wakes = 0;
  };
  /** Ends the present connection with a failure. */
  const fail = async (reason: string) => {
    changes.last.end(new Error(reason));
    await time.advance(0);
  };
  return { time, changes, state, calls, lines, seen, capture, connect, fail };
}

export const never = new AbortController().signal;
