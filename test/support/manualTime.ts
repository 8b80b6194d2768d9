import type { Clock, Timer } from "../../src/time/clock.ts";

/** A clock and timers that move only when told to. */
export interface ManualTime {
  readonly clock: Clock;
  readonly timer: Timer;
  /** Delays of the timers that are set now, in ms from now. */
  pending(): number[];
  /** Lets what is ready run, moves on, calls the timers that come due in their order, and lets what they started run until it waits again. */
  advance(ms: number): Promise<void>;
}

interface Pending {
  readonly at: number;
  readonly callback: () => void;
}

/** @param turns of the event loop that what is ready takes at most to wait again */
export function manualTime(start = 1_000_000, turns = TURNS): ManualTime {
  let now = start;
  const timers = new Set<Pending>();
  /** The earliest timer; of several at the same time, the first that was set. */
  const due = (until: number) => {
    let next: Pending | undefined;
    for (const timer of timers) if (timer.at <= until && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  };
  return {
    clock: { now: () => now, monotonic: () => now },
    timer: (ms, callback) => {
      const entry = { at: now + ms, callback };
      timers.add(entry);
      return () => timers.delete(entry);
    },
    pending: () => [...timers].map((timer) => timer.at - now).sort((a, b) => a - b),
    advance: async (ms) => {
      await settle(turns);
      const until = now + ms;
      for (let next = due(until); next !== undefined; next = due(until)) {
        now = next.at;
        timers.delete(next);
        next.callback();
        await settle(turns);
      }
      now = until;
    },
  };
}

/** Lets everything that is ready run: promise callbacks, and one turn of the event loop for each `setImmediate` in a row. */
export async function settle(turns = TURNS): Promise<void> {
  for (let turn = 0; turn < turns; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}

const TURNS = 5;
