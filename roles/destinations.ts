import { destinationKindOf } from "../src/adapters/kinds.ts";
import type { DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { createRetryPolicy } from "../src/core/delivery/retry.ts";
import { createDeliveryStage } from "../src/core/transform/transform.ts";
import { addressingOf } from "./addressing.ts";
import type { RoleContext } from "./context.ts";

/**
 * Every configured destination, compiled, by name. Only the client libraries of the configured kinds are loaded.
 *
 * @param onAnswerEnd told of answers to deliveries that succeeded, as `DestinationTools.onAnswerEnd`
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
