import { createHttpDestination } from "../src/adapters/destinations/http/index.ts";
import { createKafkaDestination } from "../src/adapters/destinations/kafka/index.ts";
import { createNatsDestination } from "../src/adapters/destinations/nats/index.ts";
import { createRabbitmqDestination } from "../src/adapters/destinations/rabbitmq/index.ts";
import type { DestinationConfig } from "../src/config/types.ts";
import type { DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { createRetryPolicy } from "../src/core/delivery/retry.ts";
import { createDeliveryStage } from "../src/core/transform/transform.ts";
import type { Destination } from "../src/ports/destination.ts";
import { addressingOf } from "./addressing.ts";
import type { RoleContext } from "./context.ts";

type OnAnswerEnd = (destination: string, isWhole: boolean) => void;

/**
 * Every configured destination, compiled, by name.
 *
 * @param onAnswerEnd told of answers to deliveries that succeeded, as `HttpDestinationEnvironment.onAnswerEnd`
 */
export function deliveryTargets(context: RoleContext, onAnswerEnd: OnAnswerEnd): ReadonlyMap<string, DeliveryTarget> {
  const entries = Object.entries(context.config.destinations);
  return new Map(
    entries.map(([name, config]) => {
      const { headers, transform, retry, maxAttempts } = config;
      const stage =
        transform === undefined ? null : createDeliveryStage(transform, context.evaluator, `destinations.${name}`);
      const destination = createDestination(name, config, context, onAnswerEnd);
      const retryPolicy = createRetryPolicy(retry, context.config.outbox.retryBaseDelayMs);
      const addressing = addressingOf(config);
      return [name, { destination, ...addressing, headers, transform: stage, retryPolicy, maxAttempts }];
    }),
  );
}

function createDestination(
  name: string,
  config: DestinationConfig,
  context: RoleContext,
  onAnswerEnd: OnAnswerEnd,
): Destination {
  const { clock, metrics, secrets } = context;
  const tools = { log: context.log.child({ destination: name }), clock, random: Math.random };
  switch (config.kind) {
    case "http": {
      const { http, outbox } = context.config;
      return createHttpDestination(config, {
        ...http,
        connections: outbox.concurrency,
        onAnswerEnd: (isWhole) => onAnswerEnd(name, isWhole),
        clock,
        metrics,
        secrets,
      });
    }
    case "rabbitmq":
      return createRabbitmqDestination(config, tools);
    case "kafka":
      return createKafkaDestination(config, tools);
    case "nats":
      return createNatsDestination(config, tools);
  }
}
