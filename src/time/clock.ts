/** Clock, timer and random numbers of a process, which tests replace. */

export interface Clock {
  /** Wall clock, ms since the Unix epoch. May jump: use it for stamps, never for durations. */
  now(): number;
  /** Monotonic ms from an arbitrary start: for every duration, deadline and lease. */
  monotonic(): number;
}

/** Calls back after `ms` milliseconds, unless the returned function is called first. */
export type Timer = (ms: number, callback: () => void) => () => void;

/** A uniformly distributed number in [0, 1). */
export type Random = () => number;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
};

/** Longest delay of `setTimeout` (about 24.8 days); it fires at once on anything longer. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The timer of the system; it keeps the process alive, and takes delays of any length. */
export const systemTimer: Timer = (ms, callback) => {
  let handle: NodeJS.Timeout;
  const arm = (left: number) => {
    handle =
      left > MAX_TIMEOUT_MS ? setTimeout(() => arm(left - MAX_TIMEOUT_MS), MAX_TIMEOUT_MS) : setTimeout(callback, left);
  };
  arm(ms);
  return () => clearTimeout(handle);
};
