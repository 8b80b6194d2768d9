import { Overview } from "../src/core/operations/overview.ts";
import { parseJsonPath } from "../src/core/receipt/jsonPath.ts";
import { Trace } from "../src/core/trace/trace.ts";
import type { RoleContext } from "./context.ts";
import { destinationOf } from "./destinations.ts";

/** The search for messages and what happened to them, with the routes and sources of the configuration. */
export function createTrace({
  config,
  store,
  secrets,
  clock,
}: Pick<RoleContext, "config" | "store" | "secrets" | "clock">): Trace {
  const { sources, destinations, inbox, admin } = config;
  const pullSources = Object.entries(sources).flatMap(([name, { consumption }]) =>
    consumption === "pull" ? [name] : [],
  );
  return new Trace({
    store,
    settings: {
      destinationOf: destinationOf(config),
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

/**
 * The whole installation at a glance, with the sources, destinations and routes of the configuration.
 *
 * @param longestWaitMs for a long count; by default a moment, then the last one is shown
 */
export function createOverview(
  { config, store, secrets, clock }: Pick<RoleContext, "config" | "store" | "secrets" | "clock">,
  longestWaitMs?: number,
): Overview {
  const { sources, destinations, inbox, admin } = config;
  return new Overview({
    store,
    settings: {
      destinations,
      sources,
      destinationOf: destinationOf(config),
      isRelayEnabled: inbox.relay.enabled,
      hidesReasons: admin.redactPayloadPaths.length > 0,
    },
    longestWaitMs,
    secrets,
    clock,
  });
}
