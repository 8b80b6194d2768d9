import type { Config } from "../src/config/types.ts";
import type { ConfigProblem } from "../src/model/errors.ts";
import type { Role } from "../src/model/roles.ts";

/**
 * What the configuration asks for and this version cannot do yet. A setting that would be ignored in silence loses messages: the start is
 * refused instead.
 *
 * @param roles the roles of this process; what no role of it uses is not looked at
 */
export function unavailable(config: Config, roles: ReadonlySet<Role>): readonly ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  const refuse = (path: string, what: string) =>
    problems.push({ path, message: `${what} not available in this version` });
  if (config.database.type !== "postgresql") refuse("database.type", `"${config.database.type}" is`);
  if (roles.has("capture")) refuse("outbox.capture.enabled", "the role capture is");
  return problems;
}
