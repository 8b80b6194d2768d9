import type { Route } from "../routes.ts";
import { createPull, type PullOptions } from "./operation.ts";
import { claim } from "./operations/claim.ts";
import { acknowledge, extend, giveBack } from "./operations/settle.ts";

/**
 * The pull routes of each source (design, "Pull rows"; docs/pull.md). The source's name is percent-encoded in the path.
 */
export function pullRoutes(options: PullOptions): readonly Route[] {
  const tools = createPull(options);
  const operations = [claim, acknowledge, giveBack, extend];
  return options.sources.flatMap((source) => operations.map((routeOf) => routeOf(tools, source)));
}
