import { PARKED_UNTIL } from "../../../model/rows.ts";

/** How statements read what a session's settings (`DateStyle`, `TimeZone`, `extra_float_digits`) would write in many ways. */

/**
 * A time as whole ms since 1970 (`bigint`): the driver understands times as text in one date style only, and which one it is a database or a user may
 * set. NULL for what no clock shows (NULL, `infinity`). In floating point, a third of the cost of `numeric`; half a microsecond makes up for its rounding.
 *
 * @param time an expression of a time type
 */
export function msOf(time: string): string {
  return `CASE WHEN isfinite(${time}) THEN floor(date_part('epoch', (${time})::timestamptz) * 1000 + 0.0005)::bigint END`;
}

/** `scheduled_at` of a parked row. A column without a time zone holds it in the session's, as it does every other time. */
export const PARKED_AT = `timestamptz '${PARKED_UNTIL}'`;
