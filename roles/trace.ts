import type { Config } from "../src/config/types.ts";
import { Overview } from "../src/core/operations/overview.ts";
import { parseJsonPath } from "../src/core/receipt/jsonPath.ts";
import { Trace } from "../src/core/trace/trace.ts";
import type { OperatorContext } from "./context.ts";
import { destinationOf } from "./destinations.ts";

type Tools = Pick<OperatorContext, "config" | "store" | "secrets" | "clock">;

const settingsOf = (config: Config) => ({
  destinationOf: destinationOf(config),
  destinations: config.destinations,
  sources: config.sources,
  isRelayEnabled: config.inbox.relay.enabled,
});

/** The search for messages and what happened to them, with the routes and sources of the configuration. */
export function createTrace({ config, store, secrets, clock }: Tools): Trace {
  const pullSources = Object.entries(config.sources).flatMap(([name, { consumption }]) =>
    consumption === "pull" ? [name] : [],
  );
  const hiddenPaths = config.admin.redactPayloadPaths.map(parseJsonPath);
  return new Trace({ store, settings: settingsOf(config), hiddenPaths, secrets, pullSources, clock });
}

/**
 * The whole installation at a glance, with the sources, destinations and routes of the configuration.
 *
 * @param longestWaitMs for a long count; by default a moment, then the last one is shown
 */
export function createOverview({ config, store, clock }: Omit<Tools, "secrets">, longestWaitMs?: number): Overview {
  return new Overview({ store, settings: settingsOf(config), longestWaitMs, clock });
}
