import { parsedJson } from "../../model/text.ts";
import { parseWithExactNumbers } from "../receipt/jsonDocument.ts";
import type { JsonPath } from "../receipt/jsonPath.ts";
import { KnownSecrets } from "../redaction/redact.ts";

/** Hides fields of payloads from operators (`admin.redactPayloadPaths`). */

export const HIDDEN = "***";

/** A payload without the hidden fields, and how to hide their values in other texts. */
interface HiddenPayload {
  /** Null without a payload, and for one that is not JSON while fields are hidden: nothing tells where they are. */
  readonly text: string | null;
  /** Masks the hidden values, also escaped or encoded: a receiver may echo them, and a key may be one of them. */
  hideIn(text: string): string;
}

/**
 * @param payload as it is stored
 * @param paths of the fields; an index stands for every item of the list
 */
export function hidePayload(payload: string | null, paths: readonly JsonPath[]): HiddenPayload {
  if (payload === null || paths.length === 0) return { text: payload, hideIn: (text) => text };
  const document = parsedJson(payload);
  if (document === undefined) return { text: null, hideIn: (text) => text };
  const values = new Set<string>();
  const shown = paths.reduce<unknown>((value, { segments }) => hiddenAt(value, segments, values), document);
  // A key has the digits of a number as they were received.
  const exact = parseWithExactNumbers(payload);
  for (const { segments } of paths) hiddenAt(exact, segments, values);
  // Of one or two characters: they would be masked in every other word.
  const hidden = new KnownSecrets([...values].filter((value) => value.length > LONGEST_COMMON));
  const hideIn = (text: string) => (values.has(text) ? HIDDEN : hidden.mask(text, false));
  return { text: JSON.stringify(shown), hideIn };
}

const LONGEST_COMMON = 2;

/** A copy of a value with what lies at the path hidden. @param values gets the texts of what was hidden */
function hiddenAt(value: unknown, [first, ...rest]: readonly (string | number)[], values: Set<string>): unknown {
  if (first === undefined) {
    collect(value, values);
    return HIDDEN;
  }
  if (Array.isArray(value)) {
    return typeof first === "number" ? value.map((item) => hiddenAt(item, rest, values)) : value;
  }
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, first)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, name === first ? hiddenAt(member, rest, values) : member]),
  );
}

/** The texts of all values below. Truth values say nothing where they stand in other texts. */
function collect(value: unknown, values: Set<string>): void {
  if (typeof value === "object" && value !== null) for (const each of Object.values(value)) collect(each, values);
  else if (value !== null && typeof value !== "boolean" && value !== "") values.add(String(value));
}

/** A copy of a message's facts with every text changed that comes from outside. */
export function withTexts<T>(value: T, change: (text: string) => string): T {
  if (typeof value === "string") return change(value) as T;
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  if (Array.isArray(value)) return value.map((item) => withTexts(item, change)) as T;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [name, OWN_WORDS.has(name) ? each : withTexts(each, change)]),
  ) as T;
}

const OWN_WORDS: ReadonlySet<string> = new Set(["id", "table", "cell", "position", "state", "event", "code"]);
