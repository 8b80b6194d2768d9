import { errorText, StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import { backoffMs } from "../../../time/backoff.ts";
import { sleep } from "../../../time/wait.ts";

/**
 * Runs work up to four times, with a line in the log and a random wait before each repetition: victims of each other
 * must not meet again.
 *
 * @param isExpectedToPass whether another try helps, after so far `tries`
 */
export async function retried<T>(
  log: Log,
  work: () => Promise<T>,
  isExpectedToPass: (error: unknown, tries: number) => boolean,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (tries >= MOST_TRIES || !isExpectedToPass(error, tries)) throw error;
      log.debug({ reason: errorText(error), tries }, "trying a statement again");
      await sleep(backoffMs(tries, WAITS, Math.random));
    }
  }
}

/** Whether a statement was rolled back as a victim of others: the same one is expected to pass the next time. */
export function isVictim(error: unknown): boolean {
  return error instanceof StoreError && (error.code === "contention" || error.code === "busy");
}

const MOST_TRIES = 4;
const WAITS = { firstMs: 20, longestMs: 200 };
