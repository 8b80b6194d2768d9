import type { Expiry } from "../../model/rows.ts";
import type { AttributeInput } from "./attributes.ts";
import { createTimeReader } from "./messageTime.ts";
import type { UnreadableTimes } from "./times.ts";

/** Keys of a source that say until when its messages are to be delivered. */
export interface ExpirySettings {
  readonly expiresAtHeader?: string | undefined;
  readonly expiresAtPath?: string | readonly string[] | undefined;
  /** In ms from the receipt. */
  readonly timeToLive?: number | undefined;
}

/** @returns when a message expires; undefined for never */
type ExpiryOf = (input: AttributeInput) => Expiry | undefined;

/** @returns undefined where no message expires */
export function createExpiry(settings: ExpirySettings, unreadable: UnreadableTimes): ExpiryOf | undefined {
  const { expiresAtHeader, expiresAtPath, timeToLive } = settings;
  if (expiresAtHeader === undefined && expiresAtPath === undefined && timeToLive === undefined) return undefined;
  const read = createTimeReader("expiresAt", { header: expiresAtHeader, path: expiresAtPath }, unreadable);
  const afterMs = timeToLive ?? null;
  return (input) => {
    const at = read(input);
    return at === null && afterMs === null ? undefined : { at, afterMs };
  };
}
