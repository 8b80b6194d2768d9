import { parkedRowShown } from "../../core/finished/parked.ts";
import { MOST_LISTED, type ParkedSelection, parsePattern } from "../../core/finished/requests.ts";
import type { ParkedRow } from "../../ports/store.ts";
import { numberParameter, textParameter, type ValuesOf } from "./query.ts";

/** `GET /admin/parked`. */

/** At most two asterisks in a row. */
export const TOPIC_PATTERN = "^(\\*{0,2}[^\\u0000*])*\\*{0,2}$";

export const PARKED_QUERY = {
  topic: {
    parse: parsePattern,
    schema: { type: "string", pattern: TOPIC_PATTERN },
    description: "Only rows whose topic matches this pattern, as in `routes`.",
  },
  key: textParameter("Only the row of this key."),
  limit: numberParameter(MOST_LISTED, "Most rows; 50 by default."),
};

export function listParked(list: (selection: ParkedSelection, limit: number) => Promise<readonly ParkedRow[]>) {
  return async ({ limit = 50, ...selection }: ValuesOf<typeof PARKED_QUERY>): Promise<object> => ({
    rows: (await list(selection, limit)).map(parkedRowShown),
  });
}
