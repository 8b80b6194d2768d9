import type { MessageId } from "../../model/rows.ts";
import { parseDuration } from "../../model/text.ts";
import { compileTopicPattern, LONGEST_PATTERN } from "../../model/topicPattern.ts";
import type { FinishedState } from "../../ports/finishedRows.ts";

/** The texts that operators give, by the command line, over HTTP or in the console. */

/** How a text is read, and how a JSON Schema says it. */
export interface Syntax<T> {
  /** @throws Error with what is expected */
  readonly parse: (text: string) => T;
  readonly schema: { readonly [keyword: string]: unknown; readonly type?: string; readonly enum?: readonly string[] };
}

/** A text that is compared with stored ones. */
export const STORABLE: Syntax<string> = {
  parse(text) {
    if (!/\0|\p{Surrogate}/u.test(text)) return text;
    throw new Error("text without NUL and lone surrogates is expected: databases store neither");
  },
  schema: { type: "string", pattern: "^[^\\u0000]*$" },
};

/** The reason of a failed row, which stands for its group. */
export const FAILURE: Syntax<string> = { parse: (text) => text, schema: { type: "string" } };

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Whether a value is a UUID in any letter case and of any version: applications choose the ids of their rows. */
export function isUuid(value: unknown): value is string {
  return typeof value === "string" && UUID.test(value);
}

/** The id of a row, in lower case, so that two spellings are one id. */
export const MESSAGE_ID: Syntax<MessageId> = {
  parse(text) {
    if (isUuid(text)) return text.toLowerCase() as MessageId;
    throw new Error("a UUID such as 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f is expected");
  },
  schema: { type: "string", format: "uuid" },
};

/** The state of a finished row. */
export const FINISHED_STATE: Syntax<FinishedState> = {
  parse(text) {
    if (text === "sent" || text === "dead") return text;
    throw new Error('"sent" or "dead" is expected');
  },
  schema: { type: "string", enum: ["sent", "dead"] },
};

/** A pattern of topics, as in `routes`; its schema has at most two asterisks in a row. */
export const TOPIC_PATTERN: Syntax<string> = {
  parse(text) {
    compileTopicPattern(STORABLE.parse(text));
    return text;
  },
  schema: { type: "string", pattern: "^(\\*{0,2}[^\\u0000*])*\\*{0,2}$", maxLength: LONGEST_PATTERN },
};

export const choice = <T extends string>(words: readonly T[]): Syntax<T> => ({
  parse(text) {
    const word = words.find((each) => each === text);
    if (word !== undefined) return word;
    throw new Error(`${words.length > 2 ? `one of ${words.join(", ")}` : words.join(" or ")} is expected`);
  },
  schema: { enum: words },
});

/** The name of a configured destination: a misspelt one would mean no row. */
export const destinationName = (names: readonly string[]): Syntax<string> => ({
  parse(text) {
    if (names.includes(text)) return text;
    throw new Error(`the name of a destination is expected (${knownNames(names)})`);
  },
  schema: { type: "string", enum: names },
});

export function knownNames(names: readonly string[]): string {
  return names.length === 0 ? "there are none" : `there are ${names.join(", ")}`;
}

/** A whole number of at most six digits. */
export const numberUpTo = (maximum: number, minimum = 1): Syntax<number> => ({
  parse(text) {
    const value = Number(text);
    if (/^\d{1,6}$/.test(text) && value >= minimum && value <= maximum) return value;
    throw new Error(`a whole number from ${minimum} to ${maximum} is expected`);
  },
  schema: { type: "integer", minimum, maximum },
});

export const LONGEST_REASON = 1000;

/** Why a change is made, for others to read; without blanks around it. */
export const REASON: Syntax<string> = {
  parse(text) {
    if (!/[^\0- ]/.test(text)) throw new Error("a reason that is not blank is expected: it is all that others see");
    const { length } = [...text];
    if (length > LONGEST_REASON) {
      throw new Error(`a reason of at most ${LONGEST_REASON} characters is expected; this one has ${length}`);
    }
    if (/\0|\p{Surrogate}/u.test(text)) throw new Error("text without NUL and lone surrogates is expected");
    return text.replace(/^[\0- ]+|[\0- ]+$/g, "");
  },
  schema: {
    type: "string",
    minLength: 1,
    maxLength: LONGEST_REASON,
    pattern: "^[^\\u0000]*[^\\u0000- ][^\\u0000]*$",
  },
};

const LONGEST_BY = 100;
/** Control characters, line separators, direction marks and what has no width. */
const UNSEEN = "\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff";
/** Visible text without blanks around it. Without flags, so that a JSON Schema can have the same. */
const BY_PATTERN = `^[^ ${UNSEEN}]([^${UNSEEN}]*[^ ${UNSEEN}])?$`;

/** The name that a caller gives. */
export const BY: Syntax<string> = {
  parse(text) {
    const isSeen = new RegExp(BY_PATTERN).test(text) && !/\p{Surrogate}/u.test(text);
    if (isSeen && [...text].length <= LONGEST_BY) return text;
    throw new Error(`1 to ${LONGEST_BY} printable characters without blanks around them are expected, such as alice`);
  },
  schema: { type: "string", minLength: 1, maxLength: LONGEST_BY, pattern: BY_PATTERN },
};

/** Few digits, so that a JSON Schema can have the whole pattern. */
const PAUSE = /^[1-9][0-9]{0,3}[smhd]$/;

/** The duration of a pause, read as ms. */
export const PAUSE_DURATION: Syntax<number> = {
  parse(text) {
    const ms = PAUSE.test(text) ? parseDuration(text) : undefined;
    if (ms !== undefined) return ms;
    throw new Error(
      "a whole number from 1 to 9999 and one of the suffixes s, m, h, d, such as 2h, is expected; leave it out for a pause without end",
    );
  },
  schema: { type: "string", pattern: PAUSE.source },
};

const INSTANT_FORM =
  /^(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)[Tt](?<hour>\d\d):(?<minute>\d\d)(?::(?<second>\d\d)(?:[.,](?<fraction>\d+))?)?(?:[Zz]|(?<sign>[+-])(?<offsetHour>\d\d)(?::?(?<offsetMinute>\d\d))?)$/;

/**
 * An instant in ISO 8601 with `Z` or an offset, read as `2026-01-05T08:30:00.000000Z`. Databases keep microseconds:
 * finer fractions are rounded outwards, so that every stored time compares the same.
 */
export const instant = (bound: "after" | "before"): Syntax<string> => ({
  parse(text) {
    const parts = INSTANT_FORM.exec(text)?.groups;
    if (parts === undefined) {
      throw new Error("an ISO-8601 instant with Z or an offset, such as 2026-01-05T08:30:00Z, is expected");
    }
    const part = (name: string): number => Number(parts[name] ?? 0);
    const local = new Date(0);
    local.setUTCFullYear(part("year"), part("month") - 1, part("day"));
    local.setUTCHours(part("hour"), part("minute"), part("second"));
    const asWritten = ["year", "month", "day", "hour", "minute", "second"].map(part);
    const asMeant = [local.getUTCFullYear(), local.getUTCMonth() + 1, local.getUTCDate()];
    asMeant.push(local.getUTCHours(), local.getUTCMinutes(), local.getUTCSeconds());
    if (asWritten.join() !== asMeant.join() || part("offsetHour") > 23 || part("offsetMinute") > 59) {
      throw new Error("a date, a time and an offset that exist are expected");
    }

    const offsetMinutes = (part("offsetHour") * 60 + part("offsetMinute")) * (parts.sign === "-" ? -1 : 1);
    const fraction = parts.fraction ?? "";
    const roundedUp = bound === "before" && /[1-9]/.test(fraction.slice(6));
    const microseconds = Number(fraction.slice(0, 6).padEnd(6, "0")) + (roundedUp ? 1 : 0);
    const carried = microseconds === 1_000_000 ? 1000 : 0;
    const time = new Date(local.getTime() - offsetMinutes * 60_000 + carried);
    if (time.getUTCFullYear() < 1 || time.getUTCFullYear() > 9999) {
      throw new Error("a year from 0001 to 9999 in UTC is expected");
    }
    const digits = String(microseconds % 1_000_000).padStart(6, "0");
    return `${time.toISOString().slice(0, "2026-01-05T08:30:00".length)}.${digits}Z`;
  },
  schema: { type: "string", format: "date-time" },
});
