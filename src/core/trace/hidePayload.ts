import type { JsonPath } from "../receipt/jsonPath.ts";

/** Hides fields of payloads from operators (`admin.redactPayloadPaths`). */

const HIDDEN = "***";

/** A payload without the hidden fields, and how to hide their values in other texts. */
interface HiddenPayload {
  /** Null for a payload that is not JSON while fields of it are to be hidden: nothing says where they are. */
  readonly text: string | null;
  /** Replaces the hidden values: a receiver may echo them, and a key may be one of them. */
  hideIn(text: string): string;
}

/**
 * @param payload as it is stored
 * @param paths of the fields; an index stands for every item of the list
 */
export function hidePayload(payload: string, paths: readonly JsonPath[]): HiddenPayload {
  if (paths.length === 0) return { text: payload, hideIn: (text) => text };
  const document = parsed(payload);
  if (document === undefined) return { text: null, hideIn: (text) => text };
  const values = new Set<string>();
  const shown = paths.reduce((value, { segments }) => hiddenAt(value, segments, values), document.value);
  const longestFirst = [...values].sort((a, b) => b.length - a.length);
  return {
    text: JSON.stringify(shown),
    hideIn: (text) => longestFirst.reduce((rest, value) => rest.replaceAll(value, HIDDEN), text),
  };
}

function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

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

/** The texts of all values below; short ones would hide parts of other words. */
function collect(value: unknown, values: Set<string>): void {
  if (typeof value === "object" && value !== null) for (const each of Object.values(value)) collect(each, values);
  else if (value !== null && typeof value !== "boolean" && String(value).length >= LEAST_LENGTH)
    values.add(String(value));
}

const LEAST_LENGTH = 3;
