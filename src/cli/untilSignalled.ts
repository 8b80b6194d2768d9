import { errorText } from "../model/errors.ts";
import { handleSignals } from "../runtime/signals.ts";
import type { CommandIo } from "./config.ts";
import type { Prepared } from "./run.ts";

/**
 * Runs the work of a command that changes rows, until it is done or a signal ends it: then what the work throws is told as how far it came, and the command
 * fails.
 *
 * @param work is to end soon when its signal aborts
 * @throws what the work threw where no signal came
 */
export async function untilSignalled(
  { running: { log, flush } }: Pick<Prepared, "running">,
  io: CommandIo,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  let ended: Promise<void> = Promise.resolve();
  const signals = handleSignals({ log, flush, stop: () => ended });
  ended = work(signals.stopping);
  try {
    await ended;
  } catch (error) {
    if (!signals.stopping.aborted) throw error;
    io.stderr.write(`svc: ${errorText(error)}\n`);
    io.setExitCode(EXIT_FAILURE);
  } finally {
    signals.dispose();
    flush();
  }
}

const EXIT_FAILURE = 1;
