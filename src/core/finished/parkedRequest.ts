import { compileTopicPattern } from "../delivery/topicPattern.ts";
import { callerOf, LONGEST_REASON, parseBy, parseReason } from "./operatorText.ts";
import type { ParkedSelection } from "./parked.ts";
import { list, parseMessageId, parseText, requireObject, single } from "./replayRequest.ts";

/** Most rows that one list shows. */
export const MOST_LISTED = 10_000;

/** @throws Error that says what is expected */
export function parsePattern(text: string): string {
  compileTopicPattern(parseText(text));
  return text;
}

/** @throws Error that says what is expected */
export function parseLimit(text: string): number {
  const limit = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= MOST_LISTED) return limit;
  throw new Error(`a whole number from 1 to ${MOST_LISTED} is expected`);
}

/**
 * Whether a change says which rows it means: a filter, or all of them, and not both.
 *
 * @param all null and false count as absent
 */
export function saysWhichRows(selection: ParkedSelection, all: unknown): boolean {
  return Object.values(selection).some((field) => field !== undefined) !== (all === true);
}

/**
 * Reads which rows to change from JSON. Unknown fields are ignored, and null counts as absent, as on every admin route.
 *
 * @param value the parsed body
 * @param asksReason whether `reason` is required
 * @returns `by`: as {@link callerOf} has it
 * @throws Error whose message is the reason, to stand behind `Invalid request: `
 */
export function parseParkedChange(
  value: unknown,
  asksReason: boolean,
): { selection: ParkedSelection; reason: string; by: string } {
  const fields = requireObject(value);
  const { all } = fields;
  if (all !== undefined && all !== null && typeof all !== "boolean") throw new Error('"all" is neither true nor false');
  const selection: ParkedSelection = {
    ids: list(fields, "ids", parseMessageId),
    topic: single(fields, "topic", parsePattern),
    key: single(fields, "key", parseText),
  };
  if (!saysWhichRows(selection, all)) {
    throw new Error(
      'say which rows: "ids", "topic" or "key", or "all": true for every parked row, which goes with none of them',
    );
  }
  const reason = asksReason ? single(fields, "reason", parseReason) : "";
  if (reason === undefined)
    throw new Error(`"reason" is missing; a text of 1 to ${LONGEST_REASON} characters is expected`);
  return { selection, reason, by: callerOf(single(fields, "by", parseBy)) };
}
