import { errorText, StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { pause, timeout, waitOrAbort } from "../../../time/wait.ts";

/**
 * Pings until the database answers, and logs every ten seconds what it waits for.
 *
 * @param ping one round trip; rejects while the database does not answer
 * @param timeoutMs for all tries together
 * @param signal ends the wait with its reason
 * @throws StoreError with the last failure after `timeoutMs`
 */
export async function untilAnswered(
  ping: () => Promise<void>,
  timeoutMs: number,
  signal: AbortSignal,
  clock: Clock,
  log: Log,
): Promise<void> {
  using limit = timeout(timeoutMs, "waiting for the database", signal);
  let last: unknown = "it never answered a connection attempt";
  let warnAt = clock.monotonic();
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LAST_WAIT_MS)) {
    try {
      return await waitOrAbort(ping(), limit.signal, "waiting for the database");
    } catch (error) {
      signal.throwIfAborted();
      if (!limit.signal.aborted) last = error;
    }
    if (clock.monotonic() >= warnAt) {
      log.warn({ reason: errorText(last), timeoutMs }, "waiting for the database");
      warnAt = clock.monotonic() + WARN_EVERY_MS;
    }
    if (await pause(waitMs, limit.signal)) continue;
    signal.throwIfAborted();
    throw new StoreError("unavailable", `no database answered within ${timeoutMs} ms: ${errorText(last)}`);
  }
}

/** Shorter than those of `Backoff`: the start waits for this. */
const FIRST_WAIT_MS = 50;
const LAST_WAIT_MS = 1000;
const WARN_EVERY_MS = 10_000;
