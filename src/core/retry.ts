import type { Random } from "../ports/runtime.ts";

/** No row waits longer for its next attempt, whatever the backoff or the receiver asks for. */
export const MAX_RETRY_DELAY_MS = 60_000;
/** Share of the delay that chance adds at most, so that rows which failed together do not come back together. */
const JITTER = 0.25;
/** 2^26 ms is more than any permitted delay; a larger exponent would only risk Infinity, and 0 * Infinity is no delay. */
const MAX_EXPONENT = 26;

/**
 * How long a row waits after a failed delivery (spec, "outbox"; design, "Attempts"):
 * `min(60 s, base * 2^attempt * (1 + 0..0.25))`, lengthened by the receiver's `Retry-After` up to the same 60 s.
 *
 * With the default base of 1000 ms:
 *
 * | failed at `attempt` | wait                |
 * | ------------------- | ------------------- |
 * | 0                   | 1 to 1.25 s         |
 * | 1                   | 2 to 2.5 s          |
 * | 2                   | 4 to 5 s            |
 * | 3                   | 8 to 10 s           |
 * | 4                   | 16 to 20 s          |
 * | 5                   | 32 to 40 s          |
 * | 6 and later         | 60 s                |
 *
 * @param failure `attempt`: failed deliveries before this one; `retryAfterMs`: what the receiver asked for
 * @param baseDelayMs `outbox.retryBaseDelayMs`
 * @returns whole ms
 */
export function retryDelayMs(
  failure: { readonly attempt: number; readonly retryAfterMs: number | undefined },
  baseDelayMs: number,
  random: Random,
): number {
  const exponent = Math.min(Math.max(failure.attempt, 0), MAX_EXPONENT);
  const backoff = baseDelayMs * 2 ** exponent * (1 + random() * JITTER);
  return Math.floor(Math.min(MAX_RETRY_DELAY_MS, Math.max(backoff, failure.retryAfterMs ?? 0)));
}

/**
 * Whether a failure of this row leaves it an attempt: it makes `attempt` grow by one, and the row is dead when that
 * reaches `maxAttempts`.
 */
export function hasAttemptsLeft(row: { readonly attempt: number; readonly maxAttempts: number }): boolean {
  return row.attempt + 1 < row.maxAttempts;
}
