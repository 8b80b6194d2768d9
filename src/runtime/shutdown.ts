import { errorText, StoppingError } from "../model/errors.ts";
import type { Log, Service } from "../ports/runtime.ts";
import { type Clock, systemClock, systemTimer, type Timer } from "../time/clock.ts";
import { onAbort, sharedController, waitOrAbort } from "../time/wait.ts";

/**
 * Start in order, stop in phases (spec, "Runtime behaviours", Shutdown). Each service finishes its work; when the
 * phase's time is over, the cutoff signal makes it drop the rest. Later phases run even after a failure.
 */

/** Services that stop in parallel. */
interface Phase {
  readonly name: string;
  readonly services: readonly Service[];
  /** Time for a graceful stop, in ms; then the cutoff signal aborts. */
  readonly timeoutMs: number;
}

interface PhaseTools {
  readonly log: Log;
  readonly clock?: Clock;
  readonly timer?: Timer;
  /** How long a service may take after the cutoff before the shutdown continues without it, in ms. Default 2000. */
  readonly graceMs?: number;
}

/**
 * Starts the services in order. When one fails, or the signal aborts meanwhile, that one and those before it are
 * stopped in reverse order.
 *
 * @param stopTimeoutMs time for each of these stops, in ms
 * @param signal aborts at a stop before the process is up
 * @throws what the failed start threw, or the signal's reason; an AggregateError when stopping failed as well
 */
export async function startInOrder(
  services: readonly Service[],
  stopTimeoutMs: number,
  signal: AbortSignal,
  tools: PhaseTools,
): Promise<void> {
  const begun: Service[] = [];
  try {
    for (const service of services) {
      signal.throwIfAborted();
      begun.unshift(service);
      await waitOrAbort(service.start(), signal, `starting ${service.name}`);
      tools.log.debug({ component: service.name }, "started");
    }
  } catch (error) {
    const phases = begun.map((service) => ({ name: service.name, services: [service], timeoutMs: stopTimeoutMs }));
    try {
      await stopPhases(phases, tools);
    } catch (stopError) {
      const stopErrors = stopError instanceof AggregateError ? stopError.errors : [stopError];
      throw new AggregateError([error, ...stopErrors], "the start failed, and stopping what had started failed too");
    }
    throw error;
  }
}

/** Stops the phases in order, the services of each in parallel. @throws AggregateError with every error, at the end */
export async function stopPhases(phases: readonly Phase[], tools: PhaseTools): Promise<void> {
  const errors: Error[] = [];
  for (const phase of phases) errors.push(...(await stopPhase(phase, tools)));
  if (errors.length > 0) {
    throw new AggregateError(errors, `the shutdown had ${errors.length === 1 ? "1 error" : `${errors.length} errors`}`);
  }
}

async function stopPhase(phase: Phase, tools: PhaseTools): Promise<Error[]> {
  const { log, clock = systemClock, timer = systemTimer } = tools;
  const startedAt = clock.monotonic();
  const cutoff = sharedController();
  const running = new Set(phase.services);
  let cutShort: readonly string[] = [];
  const cancel = timer(phase.timeoutMs, () => {
    cutShort = Array.from(running, (service) => service.name);
    cutoff.abort(new StoppingError(`the time to stop ${phase.name} (${phase.timeoutMs} ms) is over`));
  });
  const errors = await Promise.all(
    phase.services.map(async (service) => {
      const error = await stopService(service, cutoff.signal, tools);
      running.delete(service);
      return error;
    }),
  );
  cancel();
  const failed = errors.filter((error) => error !== undefined);
  const fields = { phase: phase.name, durationMs: Math.round(clock.monotonic() - startedAt) };
  if (failed.length > 0)
    log.error({ ...fields, cutShort, error: failed.map(errorText).join("; ") }, "shutdown phase failed");
  else if (cutShort.length > 0) log.warn({ ...fields, cutShort }, "shutdown phase cut short");
  else log.info(fields, "shutdown phase done");
  return failed;
}

/** Stops one service; gives the error when it fails, or when it has not stopped some time after the cutoff. */
async function stopService(service: Service, cutoff: AbortSignal, tools: PhaseTools): Promise<Error | undefined> {
  const { timer = systemTimer, graceMs = 2000 } = tools;
  const gaveUp = new AbortController();
  let cancel: (() => void) | undefined;
  using _ = onAbort(cutoff, () => {
    cancel = timer(graceMs, () => gaveUp.abort(new Error(`it did not stop within ${graceMs} ms after the cutoff`)));
  });
  try {
    // In an async function, so that a `stop` that throws before it returns a promise counts like any other failure.
    const stopped = (async () => service.stop(cutoff))();
    await waitOrAbort(stopped, gaveUp.signal, `stopping ${service.name}`);
    return undefined;
  } catch (error) {
    return new Error(`stopping ${service.name} failed`, { cause: error });
  } finally {
    cancel?.();
  }
}

/** How the process ends: after an orderly stop on a signal, at once on a second one, with a log line on a fault. */

/** The part of Node's `process` that is used here. */
interface ProcessEvents {
  on(event: string, listener: (value: unknown) => void): unknown;
  removeListener(event: string, listener: (value: unknown) => void): unknown;
  exit(code: number): void;
}

interface SignalOptions {
  readonly log: Log;
  /** Writes out buffered log lines. */
  readonly flush: () => void;
  /** The orderly stop; called once. A rejection makes the exit code 1. */
  readonly stop: () => Promise<void>;
  /** Default: Node's `process`. */
  readonly process?: ProcessEvents;
  readonly clock?: Clock;
}

interface SignalHandling {
  /** Aborts with a `StoppingError` at the first signal, so that a start under way can give up. */
  readonly stopping: AbortSignal;
  /** Removes the handlers. */
  dispose(): void;
}

const SIGNALS = ["SIGTERM", "SIGINT"] as const;

/** The same signal within this time counts once: Ctrl-C under `npm start` comes from the terminal and from npm. */
const SAME_SIGNAL_MS = 200;

/**
 * Installs the handlers. Exit codes: 0 after an orderly stop; 1 when the stop failed or was cut short by a second
 * signal, and after an uncaught exception or rejection.
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
