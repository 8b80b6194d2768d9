import { destinationKindOf } from "../src/adapters/kinds.ts";
import type { DestinationConfig } from "../src/config/types.ts";
import { compileCloudEvents } from "../src/core/delivery/cloudEvents.ts";
import type { DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { createRetryPolicy } from "../src/core/delivery/failure.ts";
import { compileHeaderValue } from "../src/core/delivery/template.ts";
import { createDeliveryStage } from "../src/core/transform/transform.ts";
import { addressingOf } from "../src/setup/destinations.ts";
import type { RoleContext } from "./context.ts";

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
  const eventSources = new Set(
    Object.keys(config.sources).filter((name) => config.sources[name]?.cloudEvents === true),
  );
  const targets = Object.entries(config.destinations).map(async ([name, entry]) => {
    const { kind, headers, transform, cloudEvents, retry, maxAttempts } = entry;
    const kindOf = destinationKindOf(entry);
    const destination = await kindOf.create(entry, {
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
      headers: kindOf.hasHeaderTemplates ? compiled(headers) : headers,
      transform: transform === undefined ? null : createDeliveryStage(transform, evaluator, `destinations.${name}`),
      cloudEvents: cloudEvents && compileCloudEvents(cloudEvents, kindOf.cloudEvents, eventSources),
      retryPolicy: createRetryPolicy(retry, outbox.retryBaseDelayMs),
      maxAttempts,
    };
    return [name, target] as const;
  });
  return new Map(await Promise.all(targets));
}

function compiled(headers: DestinationConfig["headers"]): DeliveryTarget["headers"] {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, compileHeaderValue(value)]));
}
