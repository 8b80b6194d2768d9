import { decodedAttribute } from "../../model/cloudEvents.ts";
import type { Expiry, Schedule } from "../../model/rows.ts";
import { type AttributeInput, atPaths, findHeader, inHeader } from "./attributes.ts";
import { hourlyWarning, type WarningTools } from "./refusals.ts";

/** When a message is due and when it expires: ISO 8601 (RFC 3339), or seconds or milliseconds since 1970. */

type Paths = string | readonly string[];

/** Keys of a source that say when its messages are due, and until when they are to be delivered. */
export interface TimeSettings {
  /** Whether messages are events, whose `time` is that of their publication. */
  readonly cloudEvents?: boolean | undefined;
  /** In ms from the publication. */
  readonly initialDelay?: number | undefined;
  readonly scheduledAtHeader?: string | undefined;
  readonly scheduledAtPath?: Paths | undefined;
  readonly deliverAtHeader?: string | undefined;
  readonly deliverAtPath?: Paths | undefined;
  readonly expiresAtHeader?: string | undefined;
  readonly expiresAtPath?: Paths | undefined;
  /** In ms from the receipt. */
  readonly timeToLive?: number | undefined;
}

/** Is given the key of the configuration that names a place with something else than a time. */
type OnUnreadable = (key: string) => void;

/** Warns of times that could not be read, once an hour for each key of a source. */
export const warnOfTimes = (source: string, tools: WarningTools): OnUnreadable =>
  hourlyWarning(
    source,
    "a received message has a time that cannot be read and counts as none: ISO 8601, or seconds or milliseconds since 1970 are expected",
    tools,
  );

/**
 * When a message is due. The time of publication counts only with a delay, which begins with it. The configured places
 * have it, or the event, or the broker.
 *
 * @returns undefined if every message is due at its receipt
 */
export function createSchedule(
  settings: TimeSettings,
  onUnreadable: OnUnreadable,
): ((input: AttributeInput) => Schedule | undefined) | undefined {
  const { cloudEvents = false, initialDelay, deliverAtHeader, deliverAtPath } = settings;
  if (initialDelay === undefined && deliverAtHeader === undefined && deliverAtPath === undefined) return undefined;
  const publishedAtOf = createTimeReader("scheduledAt", settings, onUnreadable);
  const deliverAtOf = createTimeReader("deliverAt", settings, onUnreadable);
  return (input) => {
    const notBefore = deliverAtOf(input);
    if (initialDelay === undefined)
      return notBefore === null ? undefined : { delayMs: 0, publishedAt: null, notBefore };
    const configured = publishedAtOf(input);
    const publishedAt = configured ?? (cloudEvents ? ofEvent(input, onUnreadable) : null) ?? ofBroker(input);
    return { delayMs: initialDelay, publishedAt, notBefore };
  };
}

/** When a message expires. @returns undefined if none does */
export function createExpiry(
  settings: TimeSettings,
  onUnreadable: OnUnreadable,
): ((input: AttributeInput) => Expiry | undefined) | undefined {
  const { expiresAtHeader, expiresAtPath, timeToLive: afterMs = null } = settings;
  if (expiresAtHeader === undefined && expiresAtPath === undefined && afterMs === null) return undefined;
  const expiresAtOf = createTimeReader("expiresAt", settings, onUnreadable);
  return (input) => {
    const at = expiresAtOf(input);
    return at === null && afterMs === null ? undefined : { at, afterMs };
  };
}

function ofEvent({ headers }: AttributeInput, onUnreadable: OnUnreadable): number | null {
  const text = findHeader(headers, "ce-time");
  if (text === undefined || text === "") return null;
  const time = parseTime(decodedAttribute(text));
  if (time === null) onUnreadable("cloudEvents");
  return time;
}

function ofBroker({ properties }: AttributeInput): number | null {
  const time = properties?.publishedAt;
  return time !== undefined && isTime(time) ? time : null;
}

/** Reads a time of a message, in ms since 1970: in the header, then at each path. @param name of the keys' beginning */
function createTimeReader(
  name: "scheduledAt" | "deliverAt" | "expiresAt",
  settings: TimeSettings,
  onUnreadable: OnUnreadable,
): (input: AttributeInput) => number | null {
  const header = settings[`${name}Header`];
  const places = [
    ...(header === undefined ? [] : [{ key: `${name}Header`, provider: inHeader(header) }]),
    ...atPaths(settings[`${name}Path`]).map((provider) => ({ key: `${name}Path`, provider })),
  ];
  return (input) => {
    for (const { key, provider } of places) {
      const text = provider.find(input);
      if (text === null) continue;
      const time = parseTime(text);
      if (time !== null) return time;
      onUnreadable(key);
    }
    return null;
  };
}

const ISO =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?\s*([Zz]|[+-]\d{2}(?::?\d{2})?)?$/;
const NUMBER = /^\d{1,15}(?:\.\d{1,9})?$/;
/** The year 5138 in seconds, 1973 in milliseconds. */
const FIRST_MS = 1e11;
/** The end of the year 9999, which both databases can hold. */
const LAST_MS = 253_402_300_799_999;
const MINUTE_MS = 60_000;

/**
 * @param text the time of a message, unchanged; without a zone it is UTC, and a date alone is its midnight
 * @returns ms since 1970; null for anything else, a time before 1970, and one after the year 9999
 */
export function parseTime(text: string): number | null {
  const trimmed = text.trim();
  const ms = NUMBER.test(trimmed) ? fromNumber(Number(trimmed)) : fromIso(trimmed);
  return ms !== null && isTime(ms) ? ms : null;
}

const isTime = (ms: number): boolean => ms >= 0 && ms <= LAST_MS;

const fromNumber = (value: number): number => Math.round(value < FIRST_MS ? value * 1000 : value);

export function isTimestamp(text: string): boolean {
  return RFC_3339.test(text) && fromIso(text.replace(/\.\d+/, "")) !== null;
}

const RFC_3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$/i;

function fromIso(text: string): number | null {
  const match = ISO.exec(text);
  if (match === null) return null;
  const [, year, month, day, hour = "00", minute = "00", second = "00", fraction = "", zone = "Z"] = match;
  // A leap second is the beginning of the next minute.
  const [seconds, leapMs] = second === "60" ? ["59", 1000] : [second, 0];
  const iso = `${year}-${month}-${day}T${hour}:${minute}:${seconds}.${fraction.slice(0, 3).padEnd(3, "0")}Z`;
  const ms = Date.parse(iso);
  // `Date` takes February 30 for March 2.
  if (Number.isNaN(ms) || new Date(ms).getUTCDate() !== Number(day)) return null;
  const offset = offsetMs(zone);
  return offset === null ? null : ms + leapMs - offset;
}

function offsetMs(zone: string): number | null {
  if (zone === "Z" || zone === "z") return 0;
  const [hours, minutes] = [Number(zone.slice(1, 3)), Number(zone.slice(3).replace(":", ""))];
  if (hours > 23 || minutes > 59) return null;
  return (zone.startsWith("-") ? -1 : 1) * (hours * 60 + minutes) * MINUTE_MS;
}
