import { decodedAttribute } from "../../model/cloudEvents.ts";
import type { Schedule } from "../../model/rows.ts";
import { type AttributeInput, findHeader } from "./attributes.ts";
import { createTimeReader } from "./messageTime.ts";
import { isTime, parseTime, type UnreadableTimes } from "./times.ts";

/** Keys of a source that say when its messages are due. */
export interface ScheduleSettings {
  /** Whether messages are events, whose `time` is that of their publication. */
  readonly cloudEvents?: boolean | undefined;
  /** In ms from the publication. */
  readonly initialDelay?: number | undefined;
  readonly scheduledAtHeader?: string | undefined;
  readonly scheduledAtPath?: string | readonly string[] | undefined;
  readonly deliverAtHeader?: string | undefined;
  readonly deliverAtPath?: string | readonly string[] | undefined;
}

/** @returns when a message is due; undefined for at its receipt */
type ScheduleOf = (input: AttributeInput) => Schedule | undefined;

/**
 * The time of publication counts only with a delay, which begins with it. The configured places have it, or the
 * event, or the broker.
 *
 * @returns undefined where every message is due at its receipt
 */
export function createSchedule(settings: ScheduleSettings, unreadable: UnreadableTimes): ScheduleOf | undefined {
  const {
    cloudEvents = false,
    initialDelay,
    scheduledAtHeader,
    scheduledAtPath,
    deliverAtHeader,
    deliverAtPath,
  } = settings;
  if (initialDelay === undefined && deliverAtHeader === undefined && deliverAtPath === undefined) return undefined;
  const publication = { header: scheduledAtHeader, path: scheduledAtPath };
  const publishedAtOf = createTimeReader("scheduledAt", publication, unreadable);
  const deliverAtOf = createTimeReader("deliverAt", { header: deliverAtHeader, path: deliverAtPath }, unreadable);
  return (input) => {
    const notBefore = deliverAtOf(input);
    if (initialDelay === undefined)
      return notBefore === null ? undefined : { delayMs: 0, publishedAt: null, notBefore };
    const configured = publishedAtOf(input);
    const publishedAt = configured ?? (cloudEvents ? ofEvent(input, unreadable) : null) ?? ofBroker(input);
    return { delayMs: initialDelay, publishedAt, notBefore };
  };
}

function ofEvent({ headers }: AttributeInput, unreadable: UnreadableTimes): number | null {
  const text = findHeader(headers, "ce-time");
  if (text === undefined || text === "") return null;
  const time = parseTime(decodedAttribute(text));
  if (time === null) unreadable.found("cloudEvents");
  return time;
}

function ofBroker({ properties }: AttributeInput): number | null {
  const time = properties?.publishedAt;
  return time !== undefined && isTime(time) ? time : null;
}
