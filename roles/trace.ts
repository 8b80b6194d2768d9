import { compileRoutes } from "../src/core/delivery/routes.ts";
import { parseJsonPath } from "../src/core/receipt/jsonPath.ts";
import { Trace } from "../src/core/trace/trace.ts";
import type { RoleContext } from "./context.ts";

/** The search for messages and what happened to them, with the routes and sources of the configuration. */
export function createTrace({
  config,
  store,
  secrets,
  clock,
}: Pick<RoleContext, "config" | "store" | "secrets" | "clock">): Trace {
  const routes = compileRoutes(config.routes);
  const { sources, destinations, inbox, admin } = config;
  const pullSources = Object.entries(sources).flatMap(([name, { consumption }]) =>
    consumption === "pull" ? [name] : [],
  );
  return new Trace({
    store,
    settings: {
      destinationOf: (topic) => routes.match(topic)?.destination,
      destinations,
      sources,
      isRelayEnabled: inbox.relay.enabled,
    },
    hiddenPaths: admin.redactPayloadPaths.map(parseJsonPath),
    secrets,
    pullSources,
    clock,
  });
}
