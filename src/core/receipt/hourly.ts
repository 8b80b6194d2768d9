import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";

export interface WarningTools {
  readonly log: Pick<Log, "warn">;
  readonly clock: Pick<Clock, "monotonic">;
}

/**
 * Makes a warning of what the messages of a source do wrong, logged once an hour for each key.
 *
 * @returns takes the key of the configuration that is concerned, and a code of what happened: no text of the message,
 * which may be secret
 */
export function hourlyWarning(
  source: string,
  message: string,
  { log, clock }: WarningTools,
): (key: string, code?: string) => void {
  const lastAt = new Map<string, number>();
  return (key, code) => {
    const now = clock.monotonic();
    const last = lastAt.get(key);
    if (last !== undefined && now - last < HOUR_MS) return;
    lastAt.set(key, now);
    log.warn({ source, key, ...(code === undefined ? {} : { code }) }, message);
  };
}

const HOUR_MS = 3_600_000;
