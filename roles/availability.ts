import type { Config } from "../src/config/types.ts";
import type { ConfigProblem } from "../src/model/errors.ts";
import type { Role } from "../src/model/roles.ts";
import { DESTINATION_FACTORIES } from "./destinations.ts";

/**
 * What the configuration asks for and this version cannot do yet. A setting that would be ignored in silence (a source that does
 * not consume, a destination that does not deliver) loses messages: the start is refused instead.
 *
 * @param roles the roles of this process; what no role of it uses is not looked at
 */
export function unavailable(config: Config, roles: ReadonlySet<Role>): readonly ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  const refuse = (path: string, what: string) =>
    problems.push({ path, message: `${what} not available in this version` });
  if (config.database.type !== "postgresql") refuse("database.type", `"${config.database.type}" is`);
  if (roles.has("capture")) refuse("outbox.capture.enabled", "the role capture is");
  if (roles.has("ingest")) {
    for (const [name, source] of Object.entries(config.sources)) {
      if (source.kind !== "http") refuse(`sources.${name}`, `sources of kind ${source.kind} are`);
    }
  }
  if (roles.has("poller")) {
    for (const [name, destination] of Object.entries(config.destinations)) {
      if (!(destination.kind in DESTINATION_FACTORIES)) {
        refuse(`destinations.${name}`, `destinations of kind ${destination.kind} are`);
      }
    }
  }
  return problems;
}
