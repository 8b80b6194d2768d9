import type { Clock } from "../time/clock.ts";

/** How often the watch runs, in ms: exact enough, and too seldom for an idle process to cost anything. */
export const WATCH_INTERVAL_MS = 250;
/** Shorter blocks are not reported, in ms. */
const SHORTEST_BLOCK_MS = 1000;

/**
 * Watches for times in which the event loop does not turn.
 *
 * @param onBlocked told of each block of over a second, with its length in seconds, up to a quarter of a second too
 * short
 * @returns what to call every `WATCH_INTERVAL_MS`
 */
export function eventLoopWatch(clock: Pick<Clock, "monotonic">, onBlocked: (seconds: number) => void): () => void {
  let last = clock.monotonic();
  return () => {
    const now = clock.monotonic();
    const lateMs = now - last - WATCH_INTERVAL_MS;
    last = now;
    if (lateMs > SHORTEST_BLOCK_MS) onBlocked(lateMs / 1000);
  };
}
