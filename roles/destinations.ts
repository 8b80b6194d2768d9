import { destinationKindOf } from "../src/adapters/kinds.ts";
import type { Config, DestinationConfig } from "../src/config/types.ts";
import type { DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { createRetryPolicy } from "../src/core/delivery/retry.ts";
import { compileDestinationOf, compileRoutes, type DestinationOf } from "../src/core/delivery/routes.ts";
import { compileAddress, parseRecordKeyTemplate, parseRoutingKeyTemplate } from "../src/core/delivery/template.ts";
import { createDeliveryStage } from "../src/core/transform/transform.ts";
import type { RoleContext } from "./context.ts";

/** Where rows go, by the configuration. */
export function destinationOf({ routes, destinations }: Config): DestinationOf {
  return compileDestinationOf(compileRoutes(routes), new Set(Object.keys(destinations)));
}

/**
 * Every configured destination, compiled, by name. Only the client libraries of the configured kinds are loaded.
 *
 * @param onAnswerEnd receives the end of answers to successful deliveries, as `DestinationTools.onAnswerEnd`
 */
export async function deliveryTargets(
  context: RoleContext,
  onAnswerEnd: (destination: string, isWhole: boolean) => void,
): Promise<ReadonlyMap<string, DeliveryTarget>> {
  const { config, evaluator, clock, metrics, secrets, log } = context;
  const { http, outbox } = config;
  const targets = Object.entries(config.destinations).map(async ([name, entry]) => {
    const { kind, headers, transform, retry, maxAttempts } = entry;
    const destination = await destinationKindOf(entry).create(entry, {
      log: log.child({ destination: name }),
      clock,
      random: Math.random,
      metrics,
      secrets,
      http,
      concurrency: outbox.concurrency,
      onAnswerEnd: (isWhole) => onAnswerEnd(name, isWhole),
    });
    const target: DeliveryTarget = {
      kind,
      destination,
      ...addressingOf(entry),
      headers,
      transform: transform === undefined ? null : createDeliveryStage(transform, evaluator, `destinations.${name}`),
      retryPolicy: createRetryPolicy(retry, outbox.retryBaseDelayMs),
      maxAttempts,
    };
    return [name, target] as const;
  });
  return new Map(await Promise.all(targets));
}

/**
 * Where the messages of a destination go within its broker (spec, "Templates"), as its kind defines it; null for HTTP.
 *
 * @throws Error that names an unknown placeholder or column; the configuration's own check has refused it before
 */
export function addressingOf(config: DestinationConfig): Pick<DeliveryTarget, "address" | "routingKey"> {
  const { address, routingKey } = destinationKindOf(config);
  const keys = config as unknown as Readonly<Record<string, string>>;
  return {
    address:
      address &&
      compileAddress({ name: address.name, template: keys[address.template] ?? "", from: keys[address.from] }),
    routingKey: routingKey && {
      template: TEMPLATES[routingKey.fields](keys[routingKey.template] ?? ""),
      emptyMeansNone: routingKey.emptyMeansNone,
    },
  };
}

const TEMPLATES = { all: parseRoutingKeyTemplate, columns: parseRecordKeyTemplate } as const;
