import { errorText } from "../../model/errors.ts";
import type { MessageId } from "../../model/rows.ts";
import { compileTopicPattern } from "../../model/topicPattern.ts";
import type { FinishedRow, FinishedState, LeftRow } from "../../ports/finishedRows.ts";

/** Which finished rows to replay; the fields given are combined with AND (spec, "POST /admin/replay"). */
export interface ReplayRequest {
  /** Dead rows of the inbox, not finished ones of the outbox; no filter. */
  readonly inbox?: boolean | undefined;
  /** Only inbox rows of this source. */
  readonly source?: string | undefined;
  /** Only sent rows, or only dead ones. */
  readonly state?: FinishedState | undefined;
  readonly ids?: readonly MessageId[] | undefined;
  readonly topic?: string | undefined;
  readonly topics?: readonly string[] | undefined;
  /** Only rows that go to this destination. */
  readonly destination?: string | undefined;
  /** ISO-8601 in UTC with microseconds, as {@link parseInstant} gives it; exclusive, as is `createdBefore`. */
  readonly createdAfter?: string | undefined;
  readonly createdBefore?: string | undefined;
  /** No filter: where they are delivered from now on; by default where they went before. */
  readonly toDestination?: string | undefined;
}

export interface Moves {
  readonly moved: number;
  readonly left: readonly LeftRow[];
  readonly position: string | null;
}

/** What would be moved. */
export interface ReplayPreview {
  readonly count: number;
  /** The first rows in the order of sequence. */
  readonly sample: readonly FinishedRow[];
  /** False when there may be more. */
  readonly isExact: boolean;
}

/** The answer to a request without a filter, as the specification words it. */
export const NO_FILTER = "A replay needs at least one filter.";

/** False when no field is set: such a request would replay everything. An empty list is set, and matches nothing. */
export function hasFilter({ inbox: _inbox, toDestination: _toDestination, ...filters }: ReplayRequest): boolean {
  return Object.values(filters).some((field) => field !== undefined);
}

/** @returns which field does not fit the table that is meant, as a reason; undefined if each does */
export function misfit(request: ReplayRequest & { readonly perSecond?: number | undefined }): string | undefined {
  const { inbox = false, source, state, topic, topics, destination, toDestination, perSecond } = request;
  if (inbox && state === "sent") return '"state" is "sent"; of the inbox only dead rows are replayed';
  const wrong = inbox ? { topic, topics, destination, toDestination, perSecond } : { source };
  const name = Object.entries(wrong).find(([, value]) => value !== undefined)?.[0];
  return name && `"${name}" ${inbox ? "does not go with" : "needs"} "inbox"`;
}

/**
 * Reads a request from JSON. As on every admin route, unknown fields are ignored and null counts as absent, as many
 * serializers write absent fields. {@link hasFilter} checks whether any field is set.
 *
 * @param value the parsed body
 * @throws Error whose message is the reason, to follow `Invalid request: `
 */
export function parseReplayRequest(value: unknown): ReplayRequest {
  const fields = requireObject(value);
  const request = {
    inbox: parseFlag(fields, "inbox"),
    source: single(fields, "source", parseText),
    state: single(fields, "state", parseFinishedState),
    ids: list(fields, "ids", parseMessageId),
    topic: single(fields, "topic", parseText),
    topics: list(fields, "topics", parseText),
    destination: single(fields, "destination", parseText),
    createdAfter: single(fields, "createdAfter", (text) => parseInstant(text, "after")),
    createdBefore: single(fields, "createdBefore", (text) => parseInstant(text, "before")),
    toDestination: single(fields, "toDestination", parseText),
  };
  const reason = misfit(request);
  if (reason !== undefined) throw new Error(reason);
  return request;
}

/** A field that is true or false; undefined if it is absent or null. @throws Error that names it */
export function parseFlag(fields: Fields, name: string): boolean | undefined {
  const value = fields[name] ?? undefined;
  if (value === undefined || typeof value === "boolean") return value;
  throw new Error(`"${name}" is not valid; true or false is expected`);
}

/** Reads the state of a finished row. @throws Error with what is expected */
export function parseFinishedState(text: string): FinishedState {
  if (text !== "sent" && text !== "dead") throw new Error('"sent" or "dead" is expected');
  return text;
}

/** Reads the id of a row, in lower case, so that two spellings are one id. @throws Error with what is expected */
export function parseMessageId(text: string): MessageId {
  if (!isUuid(text)) {
    throw new Error("a UUID such as 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f is expected");
  }
  return text.toLowerCase() as MessageId;
}

/** Checks a text that is compared with stored ones. @throws Error with what is expected */
export function parseText(text: string): string {
  if (/\0|\p{Surrogate}/u.test(text)) {
    throw new Error("text without NUL and lone surrogates is expected, for no database stores those");
  }
  return text;
}

/**
 * Reads an instant in ISO 8601: a date, a time, and `Z` or an offset. Databases keep microseconds: finer fractions are
 * rounded outwards, so that every stored time compares the same.
 *
 * @param bound whether rows are created after the instant or before it
 * @returns the instant as `2026-01-05T08:30:00.000000Z`
 * @throws Error with what is expected: for another format, no offset, a day or hour that does not exist, a year before
 *   1 or after 9999
 */
export function parseInstant(text: string, bound: "after" | "before"): string {
  const parts = INSTANT.exec(text)?.groups;
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
  const instant = new Date(local.getTime() - offsetMinutes * 60_000 + carried);
  if (instant.getUTCFullYear() < 1 || instant.getUTCFullYear() > 9999) {
    throw new Error("a year from 0001 to 9999 in UTC is expected");
  }
  const digits = String(microseconds % 1_000_000).padStart(6, "0");
  return `${instant.toISOString().slice(0, "2026-01-05T08:30:00".length)}.${digits}Z`;
}

const INSTANT =
  /^(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)[Tt](?<hour>\d\d):(?<minute>\d\d)(?::(?<second>\d\d)(?:[.,](?<fraction>\d+))?)?(?:[Zz]|(?<sign>[+-])(?<offsetHour>\d\d)(?::?(?<offsetMinute>\d\d))?)$/;

/** @throws Error, as {@link parseReplayRequest}, for a body that is not a JSON object */
export function requireObject(value: unknown): Fields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
  throw new Error(`the body is ${kindOf(value)}; a JSON object is expected`);
}

export type Fields = Readonly<Record<string, unknown>>;

/** A field that is a text, parsed; undefined where it is absent or null. @throws Error that names it */
export function single<T>(fields: Fields, name: string, parse: (text: string) => T): T | undefined {
  const value = fields[name];
  return value === undefined || value === null ? undefined : textAt(name, value, parse);
}

/** The same for a list. */
export function list<T>(fields: Fields, name: string, parse: (text: string) => T): readonly T[] | undefined {
  const value = fields[name];
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value)) throw new Error(`"${name}" is ${kindOf(value)}; an array of strings is expected`);
  return value.map((item: unknown, n) => textAt(`${name}[${n}]`, item, parse));
}

function textAt<T>(place: string, value: unknown, parse: (text: string) => T): T {
  if (typeof value !== "string") throw new Error(`"${place}" is ${kindOf(value)}; a string is expected`);
  try {
    return parse(value);
  } catch (error) {
    throw new Error(`"${place}" is ${shown(value)}; ${errorText(error)}`);
  }
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (value === undefined) return "missing";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

const SHOWN_CHARACTERS = 60;

function shown(text: string): string {
  return JSON.stringify(text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text);
}

/** Which parked rows; the fields given are combined with AND. */
export interface ParkedSelection {
  readonly ids?: readonly MessageId[] | undefined;
  /** A pattern, as in `routes`. */
  readonly topic?: string | undefined;
  readonly key?: string | undefined;
}

export const MOST_LISTED = 10_000;

/** The fastest replay, in rows a second. */
export const MOST_PER_SECOND = 100_000;

/** @throws Error with what is expected */
export function parsePattern(text: string): string {
  compileTopicPattern(parseText(text));
  return text;
}

/** Whether a change selects rows: by a filter or by `all`, not both. @param all null and false count as absent */
export function saysWhichRows(selection: ParkedSelection, all: unknown): boolean {
  return Object.values(selection).some((field) => field !== undefined) !== (all === true);
}

/**
 * Reads which rows to change from JSON, as {@link parseReplayRequest} does.
 *
 * @param asksReason whether `reason` is required
 * @returns `by`: as {@link callerOf} has it
 * @throws Error whose message is the reason, to follow `Invalid request: `
 */
export function parseParkedChange(
  value: unknown,
  asksReason: boolean,
): { selection: ParkedSelection; reason: string; by: string } {
  const fields = requireObject(value);
  const all = parseFlag(fields, "all");
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
  return { selection, reason, by: parseCaller(fields) };
}

/** Texts that operators give with a change, by the command or over HTTP, for others to read. */

export const LONGEST_REASON = 1000;

/** Checks a reason. @returns it without blanks around it @throws Error with what is expected */
export function parseReason(text: string): string {
  if (!/[^\0- ]/.test(text)) throw new Error("a reason that is not blank is expected: it is all that others see");
  const { length } = [...text];
  if (length > LONGEST_REASON) {
    throw new Error(`a reason of at most ${LONGEST_REASON} characters is expected; this one has ${length}`);
  }
  if (/\0|\p{Surrogate}/u.test(text)) throw new Error("text without NUL and lone surrogates is expected");
  return text.replace(/^[\0- ]+|[\0- ]+$/g, "");
}

/** Most characters of a caller's name. */
export const LONGEST_BY = 100;
/** Control characters, line separators, direction marks and what has no width. */
const UNSEEN = "\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff";
/** Visible text without blanks around it. Without flags, so that the OpenAPI document can have the same. */
export const BY_PATTERN = `^[^ ${UNSEEN}]([^${UNSEEN}]*[^ ${UNSEEN}])?$`;

/** Checks the name that the caller of an admin route gives. @throws Error with what is expected */
export function parseBy(text: string): string {
  const isSeen = new RegExp(BY_PATTERN).test(text) && !/\p{Surrogate}/u.test(text);
  if (isSeen && [...text].length <= LONGEST_BY) return text;
  throw new Error(`1 to ${LONGEST_BY} printable characters without blanks around them are expected, such as alice`);
}

/** Reads who makes a change from the field `by` of a body. @throws Error that names it */
export function parseCaller(value: unknown): string {
  return callerOf(single(requireObject(value), "by", parseBy));
}

/** The caller of a change over HTTP, as stored: credentials name no person, so the caller does. */
export function callerOf(by: string | undefined): string {
  return by === undefined ? "admin route" : `${by} (admin route)`;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Whether a value is a UUID in any letter case and of any version: applications choose the ids of their rows. */
export function isUuid(value: unknown): value is string {
  return typeof value === "string" && UUID.test(value);
}
