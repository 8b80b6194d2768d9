import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { Hourly } from "./hourly.ts";

/** Times in messages: ISO 8601 (RFC 3339), or seconds or milliseconds since 1970. */

const ISO =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?\s*([Zz]|[+-]\d{2}(?::?\d{2})?)?$/;
const NUMBER = /^\d{1,15}(?:\.\d{1,9})?$/;
/** The year 5138 in seconds, 1973 in milliseconds. */
const FIRST_MS = 1e11;
/** The end of the year 9999, which both databases can hold. */
const LAST_MS = 253_402_300_799_999;
const MINUTE_MS = 60_000;

/**
 * @param text as it is in a message; without a zone it is UTC, and a date alone is its midnight
 * @returns ms since 1970; null for anything else, a time before 1970, and one after the year 9999
 */
export function parseTime(text: string): number | null {
  const trimmed = text.trim();
  const ms = NUMBER.test(trimmed) ? fromNumber(Number(trimmed)) : fromIso(trimmed);
  return ms !== null && isTime(ms) ? ms : null;
}

/** Whether a number of ms since 1970 is a time that both databases can hold. */
export const isTime = (ms: number): boolean => ms >= 0 && ms <= LAST_MS;

const fromNumber = (value: number): number => Math.round(value < FIRST_MS ? value * 1000 : value);

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

/** Warns of times that could not be read, once an hour for each key of a source. */
export class UnreadableTimes {
  readonly #options: { readonly source: string; readonly log: Log };
  readonly #hourly: Hourly;

  constructor(options: { readonly source: string; readonly log: Log; readonly clock: Pick<Clock, "monotonic"> }) {
    this.#options = options;
    this.#hourly = new Hourly(options.clock);
  }

  /** @param key of the configuration that names the place; the value itself may be secret */
  found(key: string): void {
    if (!this.#hourly.isDue(key)) return;
    const { source, log } = this.#options;
    log.warn(
      { source, key },
      "a received message has a time that cannot be read and counts as none: ISO 8601, or seconds or milliseconds since 1970 are expected",
    );
  }
}
