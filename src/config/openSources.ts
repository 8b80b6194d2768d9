import type { ConfigProblem } from "../model/errors.ts";
import type { Config } from "./types.ts";

/**
 * Names the HTTP sources that accept every caller. That is permitted (spec, "Authentication"), and so no warning of the
 * configuration, but nobody should find it out from the outside.
 *
 * @returns one notice for all of them; undefined when each source has `auth`
 */
export function openSourcesNotice(config: Pick<Config, "sources">): ConfigProblem | undefined {
  const open = Object.entries(config.sources).flatMap(([name, source]) =>
    source.kind === "http" && source.auth === undefined ? [name] : [],
  );
  if (open.length === 0) return undefined;
  const names =
    open.length > MAX_NAMES
      ? `${open.slice(0, MAX_NAMES).join(", ")} and ${open.length - MAX_NAMES} more`
      : open.join(", ");
  const message = `without auth, anybody who reaches the data port can send messages to ${names}: set sources.<name>.auth, unless only trusted callers reach it`;
  return { path: "sources", message };
}

const MAX_NAMES = 20;
