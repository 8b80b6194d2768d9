/** How statements read what a session's settings (`DateStyle`, `TimeZone`, `extra_float_digits`) would write in many ways. */

/**
 * A time as whole ms since 1970 (`bigint`): the driver understands times as text in one date style only, and which one it is a database or a user may
 * set. NULL for what no clock shows (NULL, `infinity`).
 *
 * @param time an expression of a time type
 */
export function msOf(time: string): string {
  return `CASE WHEN isfinite(${time}) THEN floor(extract(epoch FROM (${time})::timestamptz) * 1000)::bigint END`;
}
