import type { ConfigProblem } from "../src/model/errors.ts";
import type { Role } from "../src/model/roles.ts";

/**
 * What the configuration asks for and this version cannot do yet. A setting that would be ignored in silence loses messages: the start is
 * refused instead.
 *
 * @param roles the roles of this process; what no role of it uses is not looked at
 */
export function unavailable(roles: ReadonlySet<Role>): readonly ConfigProblem[] {
  if (!roles.has("capture")) return [];
  return [{ path: "outbox.capture.enabled", message: "the role capture is not available in this version" }];
}
