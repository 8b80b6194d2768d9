import type { Expiry } from "../../model/rows.ts";
import { type AttributeInput, atPaths, inHeader } from "./attributes.ts";
import { parseTime, type UnreadableTimes } from "./times.ts";

/** Keys of a source that say until when its messages are to be delivered. */
export interface ExpirySettings {
  readonly expiresAtHeader?: string | undefined;
  readonly expiresAtPath?: string | readonly string[] | undefined;
  /** In ms from the receipt. */
  readonly timeToLive?: number | undefined;
}

/** @returns when a message expires; undefined for never */
export type ExpiryOf = (input: AttributeInput) => Expiry | undefined;

/** @returns undefined where no message expires */
export function createExpiry(settings: ExpirySettings, unreadable: UnreadableTimes): ExpiryOf | undefined {
  const { expiresAtHeader, expiresAtPath, timeToLive } = settings;
  if (expiresAtHeader === undefined && expiresAtPath === undefined && timeToLive === undefined) return undefined;
  const places = [
    ...(expiresAtHeader === undefined ? [] : [{ key: "expiresAtHeader", provider: inHeader(expiresAtHeader) }]),
    ...atPaths(expiresAtPath).map((provider) => ({ key: "expiresAtPath", provider })),
  ];
  const afterMs = timeToLive ?? null;
  return (input) => {
    let at: number | null = null;
    for (const { key, provider } of places) {
      const text = provider.find(input);
      if (text === null) continue;
      at = parseTime(text);
      if (at !== null) break;
      unreadable.found(key);
    }
    return at === null && afterMs === null ? undefined : { at, afterMs };
  };
}
