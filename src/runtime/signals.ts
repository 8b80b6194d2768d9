import { errorText, StoppingError } from "../model/errors.ts";
import type { Log } from "../ports/runtime.ts";
import type { Clock } from "../time/clock.ts";
import { systemClock } from "../time/clock.ts";
import { sharedController } from "../time/wait.ts";

/** How the process ends: on a signal after an orderly stop, on a second one at once, on a fault nobody caught with a log line. */

/** The part of Node's `process` that is used here. */
export interface ProcessEvents {
  on(event: string, listener: (value: unknown) => void): unknown;
  removeListener(event: string, listener: (value: unknown) => void): unknown;
  exit(code: number): void;
}

export interface SignalOptions {
  readonly log: Log;
  /** Writes out buffered log lines. */
  readonly flush: () => void;
  /** The orderly stop; called once. A rejection makes the exit code 1. */
  readonly stop: () => Promise<void>;
  /** Default: Node's `process`. */
  readonly process?: ProcessEvents;
  readonly clock?: Clock;
}

export interface SignalHandling {
  /** Aborts with a `StoppingError` at the first signal, so that a start that is still under way can give up. */
  readonly stopping: AbortSignal;
  /** Takes the handlers off. */
  dispose(): void;
}

const SIGNALS = ["SIGTERM", "SIGINT"] as const;

/**
 * The same signal within this time is the same one: Ctrl-C under `npm start` arrives twice, from the terminal and handed on by npm, a few
 * milliseconds apart. Nobody asks twice that fast.
 */
const SAME_SIGNAL_MS = 200;

/**
 * Installs the handlers. Exit codes: 0 after an orderly stop; 1 when the stop failed, was cut short by a second signal, or when an
 * exception or rejection was caught by nobody.
 */
export function handleSignals(options: SignalOptions): SignalHandling {
  const { log, flush, clock = systemClock } = options;
  const target = options.process ?? process;
  const stopping = sharedController();
  let first: { readonly signal: string; readonly at: number } | undefined;

  const exit = (code: number) => {
    flush();
    target.exit(code);
  };
  const stop = async (signal: string) => {
    log.info({ signal }, "stopping; a second signal ends the process at once");
    stopping.abort(new StoppingError(`the service is stopping (${signal})`));
    try {
      await options.stop();
      log.info({}, "stopped");
      exit(0);
    } catch (error) {
      log.error({ error: errorText(error) }, "stopped with errors");
      exit(1);
    }
  };
  const onSignal = (signal: string) => () => {
    if (first === undefined) {
      first = { signal, at: clock.monotonic() };
      void stop(signal);
    } else if (signal === first.signal && clock.monotonic() - first.at < SAME_SIGNAL_MS) {
      log.info({ signal }, "the same signal twice at once counts as one; the next one ends the process at once");
    } else {
      log.warn({ signal }, "second signal: ending without waiting; messages in flight are delivered again");
      exit(1);
    }
  };
  const onFault = (kind: string) => (fault: unknown) => {
    const stack = fault instanceof Error ? fault.stack : undefined;
    log.error({ kind, error: errorText(fault), stack }, "unexpected error: ending the process");
    exit(1);
  };

  const handlers: readonly (readonly [string, (value: unknown) => void])[] = [
    ...SIGNALS.map((signal) => [signal, onSignal(signal)] as const),
    ["uncaughtException", onFault("uncaughtException")],
    ["unhandledRejection", onFault("unhandledRejection")],
  ];
  for (const [event, handler] of handlers) target.on(event, handler);
  return {
    stopping: stopping.signal,
    dispose: () => {
      for (const [event, handler] of handlers) target.removeListener(event, handler);
    },
  };
}
