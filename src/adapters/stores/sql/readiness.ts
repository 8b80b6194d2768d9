import { setTimeout as delay } from "node:timers/promises";
import { errorText, StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";

/**
 * Asks again and again until the database answers, and says every ten seconds what it waits for.
 *
 * @param ping one round trip; rejects while the database does not answer
 * @param timeoutMs for all tries together
 * @param signal ends the wait with its reason
 * @throws StoreError with the last failure when the time is over
 */
export async function untilAnswered(
  ping: () => Promise<void>,
  timeoutMs: number,
  signal: AbortSignal,
  clock: Clock,
  log: Log,
): Promise<void> {
  const ending = new AbortController();
  const deadline = ending.signal;
  const onAbort = () => ending.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  const timer = setTimeout(() => ending.abort(), Math.min(timeoutMs, MAX_TIMEOUT_MS));
  try {
    await asked(ping, timeoutMs, signal, deadline, clock, log);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

async function asked(
  ping: () => Promise<void>,
  timeoutMs: number,
  signal: AbortSignal,
  deadline: AbortSignal,
  clock: Clock,
  log: Log,
): Promise<void> {
  let last: unknown = "it never answered a connection attempt";
  let warnAt = clock.monotonic();
  for (let waitMs = 50; ; waitMs = Math.min(waitMs * 2, 1000)) {
    try {
      return await untilAborted(ping(), deadline);
    } catch (error) {
      signal.throwIfAborted();
      if (!deadline.aborted) last = error;
      if (clock.monotonic() >= warnAt) {
        log.warn({ reason: errorText(last), timeoutMs }, "waiting for the database");
        warnAt = clock.monotonic() + 10_000;
      }
    }
    // Ends early by a rejection when the time is over or the process stops: both are looked at below.
    await delay(waitMs, undefined, { signal: deadline }).catch(() => {});
    signal.throwIfAborted();
    if (deadline.aborted) {
      throw new StoreError("unavailable", `no database answered within ${timeoutMs} ms: ${errorText(last)}`);
    }
  }
}

/** Settles with `promise`, or rejects with the signal's reason when it aborts first. */
async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let aborted = (): void => {};
  const abort = new Promise<never>((_, reject) => {
    aborted = () => reject(signal.reason);
    if (signal.aborted) aborted();
    else signal.addEventListener("abort", aborted);
  });
  try {
    return await Promise.race([promise, abort]);
  } finally {
    signal.removeEventListener("abort", aborted);
  }
}

/** `setTimeout` fires at once on anything longer. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
