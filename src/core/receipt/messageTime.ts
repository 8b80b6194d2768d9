import { type AttributeInput, atPaths, inHeader } from "./attributes.ts";
import { parseTime, type UnreadableTimes } from "./times.ts";

interface TimePlaces {
  readonly header?: string | undefined;
  readonly path?: string | readonly string[] | undefined;
}

/** @returns ms since 1970; null where no place holds a time that can be read */
type TimeOf = (input: AttributeInput) => number | null;

/**
 * Reads a time of a message: in the header, then at each path.
 *
 * @param name of the configuration's keys, without `Header` and `Path`
 * @param unreadable is given the keys of places that hold something else
 */
export function createTimeReader(name: string, { header, path }: TimePlaces, unreadable: UnreadableTimes): TimeOf {
  const places = [
    ...(header === undefined ? [] : [{ key: `${name}Header`, provider: inHeader(header) }]),
    ...atPaths(path).map((provider) => ({ key: `${name}Path`, provider })),
  ];
  return (input) => {
    for (const { key, provider } of places) {
      const text = provider.find(input);
      if (text === null) continue;
      const time = parseTime(text);
      if (time !== null) return time;
      unreadable.found(key);
    }
    return null;
  };
}
