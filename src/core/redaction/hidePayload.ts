import { parsedJson } from "../../model/text.ts";
import type { SecretMasker } from "../../ports/runtime.ts";
import { parseWithExactNumbers } from "../receipt/jsonDocument.ts";
import type { JsonPath } from "../receipt/jsonPath.ts";
import { ELLIPSIS, KnownSecrets } from "./redact.ts";

/** Hides fields of payloads from operators (`admin.redactPayloadPaths`). */

export const HIDDEN = "***";

/** A payload without the hidden fields, and how to hide their values in other texts. */
interface HiddenPayload {
  /** Null without a payload, and if fields are hidden but the payload is not JSON: nothing shows where they are. */
  readonly text: string | null;
  /**
   * Masks the hidden values, also escaped or encoded, and the beginning of one in front of the ellipsis of a cut text: a
   * receiver may echo them, and a key may be one of them.
   */
  hideIn(text: string): string;
}

/**
 * @param payload the stored text
 * @param paths of the fields; an index stands for every item of the list
 */
export function hidePayload(payload: string | null, paths: readonly JsonPath[]): HiddenPayload {
  if (payload === null || paths.length === 0) return { text: payload, hideIn: (text) => text };
  const document = parsedJson(payload);
  if (document === undefined) return { text: null, hideIn: (text) => text };
  const values = new Set<string>();
  const shown = paths.reduce<unknown>((value, { segments }) => hiddenAt(value, segments, values), document);
  // A key has the digits of a number that the sender wrote.
  const exact = parseWithExactNumbers(payload);
  for (const { segments } of paths) hiddenAt(exact, segments, values);
  // Of one or two characters: they would be masked in every other word.
  const hidden = new KnownSecrets([...values].filter((value) => value.length > LONGEST_COMMON));
  const hideIn = (text: string) => {
    if (values.has(text)) return HIDDEN;
    const parts = hidden.mask(text, false).split(ELLIPSIS);
    return parts.map((part, n) => hidden.mask(part, n < parts.length - 1)).join(ELLIPSIS);
  };
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

/** The texts of all values below. Truth values say nothing in other texts. */
function collect(value: unknown, values: Set<string>): void {
  if (typeof value === "object" && value !== null) for (const each of Object.values(value)) collect(each, values);
  else if (value !== null && typeof value !== "boolean" && value !== "") values.add(String(value));
}

type ChangeText = (text: string, name: string, of: string) => string | null;

/** A copy of an answer with every foreign text changed. @param change gets the names of the member and its parent */
export function withTexts<T>(value: T, change: ChangeText, name = "", of = ""): T {
  if (typeof value === "string") return (OWN_WORDS.has(name) ? value : change(value, name, of)) as T;
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  if (Array.isArray(value)) return value.map((item) => withTexts(item, change, name, of)) as T;
  return Object.fromEntries(
    Object.entries(value).map(([member, each]) => [member, withTexts(each, change, member, name)]),
  ) as T;
}

const OWN_WORDS: ReadonlySet<string> = new Set(["id", "table", "cell", "position", "state", "event", "code"]);

type Show = <T>(answer: T) => T;

/**
 * The last step of every admin answer, event of the console and list of a command. It masks secrets in keys, topics and
 * reasons. While fields are hidden it leaves out keys and reasons: an answer about many messages has not their payloads,
 * which tell what to mask. `Trace.timeline` shows one message, by its own payload.
 *
 * @param hiddenPaths `admin.redactPayloadPaths`
 */
export function operatorView(secrets: Pick<SecretMasker, "mask">, hiddenPaths: readonly unknown[]): Show {
  const shown = (text: string, name: string, of: string): string | null => {
    // A filter by reason is noted with what an operator did.
    if (name === "detail") return hiddenPaths.length > 0 ? text.replace(NOTED_REASON, "$1null") : text;
    if (!isReason(name) && name !== "key" && name !== "topic" && name !== "by") return text;
    if (hiddenPaths.length > 0 && name === "key") return HIDDEN;
    if (hiddenPaths.length > 0 && isReason(name) && !OF_OTHERS.has(`${of}.${name}`)) return null;
    return secrets.mask(text, isReason(name) && text.length >= SHORTEST_CUT);
  };
  return (answer) => withTexts(answer, shown);
}

const NOTED_REASON = /("(?:reason|lastError)":)"(?:[^"\\]|\\.)*"/g;

/** Whether a member has a text that may repeat what a receiver was sent. */
export const isReason = (name: string): boolean => name === "lastError" || name === "reason";
/** Reasons of operators and databases. */
const OF_OTHERS: ReadonlySet<string> = new Set(["pause.reason", "cells.reason"]);
/** A reason of as many characters may have been cut, within a secret too. */
const SHORTEST_CUT = 200;
