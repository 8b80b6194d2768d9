import { createHttpDestination } from "../src/adapters/destinations/http/index.ts";
import type { DestinationConfig, DestinationKind } from "../src/config/types.ts";
import type { DeliveryTarget } from "../src/core/deliver.ts";
import { createDeliveryStage } from "../src/core/transform.ts";
import type { RoleContext } from "./context.ts";

type Factories = {
  readonly [K in DestinationKind]?: (
    config: Extract<DestinationConfig, { readonly kind: K }>,
    context: RoleContext,
  ) => Pick<DeliveryTarget, "destination" | "address" | "routingKey">;
};

/** How each kind of destination is made; a kind without a line here cannot be delivered to by this version. */
export const DESTINATION_FACTORIES = {
  http: (config, { config: { http, outbox }, clock, metrics }) => ({
    destination: createHttpDestination(config, { ...http, connections: outbox.concurrency, clock, metrics }),
    address: null,
    routingKey: null,
  }),
} as const satisfies Factories;

/** Every configured destination, compiled, by name. */
export function deliveryTargets(context: RoleContext): ReadonlyMap<string, DeliveryTarget> {
  const targets = new Map<string, DeliveryTarget>();
  for (const [name, config] of Object.entries(context.config.destinations)) {
    // `unavailable` has refused every other kind before anything was started.
    if (config.kind !== "http") continue;
    const made = DESTINATION_FACTORIES.http(config, context);
    const { headers, transform } = config;
    const stage = transform === undefined ? null : createDeliveryStage(transform, context.evaluator);
    targets.set(name, { ...made, headers, transform: stage });
  }
  return targets;
}
