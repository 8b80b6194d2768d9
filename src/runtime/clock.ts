import type { Clock, Timer } from "../ports/runtime.ts";

/** The clock of the system. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};

/** Longest delay `setTimeout` can hold (about 24.8 days); it fires at once on anything longer. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The timer of the system; it keeps the process alive, and takes delays of any length (`retention.*.cleanupInterval` has no limit). */
export const systemTimer: Timer = (ms, callback) => {
  let handle: NodeJS.Timeout;
  const arm = (left: number) => {
    handle =
      left > MAX_TIMEOUT_MS ? setTimeout(() => arm(left - MAX_TIMEOUT_MS), MAX_TIMEOUT_MS) : setTimeout(callback, left);
  };
  arm(ms);
  return () => clearTimeout(handle);
};
