/**
 * Waits.
 *
 * @param ms how long
 * @param signal ends the wait at once
 * @returns true when the time is over, false when the signal aborted
 */
export function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const end = (over: boolean) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      resolve(over);
    };
    const onAbort = () => end(false);
    const timer = setTimeout(() => end(true), ms);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
