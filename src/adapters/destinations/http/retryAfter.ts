const SECONDS = /^[0-9]+$/;
/** The three forms that RFC 9110, section 5.6.7 tells recipients to read; all begin with the name of a day. */
const HTTP_DATE = /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)/;

/**
 * Reads a `Retry-After` header (RFC 9110, section 10.2.3): seconds or an HTTP date.
 *
 * @param value the header as it was received
 * @param nowMs wall clock, ms since the Unix epoch
 * @returns ms to wait, 0 for a date that has passed; undefined when there is no readable value
 */
export function parseRetryAfter(value: string | undefined, nowMs: number): number | undefined {
  const text = value?.trim() ?? "";
  if (SECONDS.test(text)) return Math.min(Number(text) * 1000, Number.MAX_SAFE_INTEGER);
  if (!HTTP_DATE.test(text)) return undefined;
  // The old asctime form names no zone; HTTP dates are always GMT.
  const date = Date.parse(text.endsWith("GMT") ? text : `${text} GMT`);
  return Number.isNaN(date) ? undefined : Math.max(0, date - nowMs);
}
