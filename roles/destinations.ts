import { destinationKindOf } from "../src/adapters/kinds.ts";
import type { Config, DestinationConfig } from "../src/config/types.ts";
import { compileCloudEvents } from "../src/core/delivery/cloudEvents.ts";
import { compileDestinationOf, compileRoutes, type DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { createRetryPolicy } from "../src/core/delivery/failure.ts";
import {
  type Address,
  compileAddress,
  compileHeaderValue,
  compilePath,
  parseRecordKeyTemplate,
  parseRoutingKeyTemplate,
} from "../src/core/delivery/template.ts";
import { createDeliveryStage } from "../src/core/transform/transform.ts";
import type { DestinationOf } from "../src/model/rows.ts";
import type { AddressColumn } from "../src/ports/kinds.ts";
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

/**
 * Where the messages of a destination go at its receiver (spec, "Templates"), as its kind defines it; null for a path
 * without placeholders.
 *
 * @throws Error that names an unknown placeholder; the configuration's own check has refused it before
 */
export function addressingOf(config: DestinationConfig): Pick<DeliveryTarget, "address" | "routingKey"> {
  const { address, routingKey } = destinationKindOf(config);
  const keys = config as unknown as Readonly<Record<string, string>>;
  return {
    address: address && compileAddressOf(address, keys),
    routingKey: routingKey && {
      template: TEMPLATES[routingKey.fields](keys[routingKey.template] ?? ""),
      emptyMeansNone: routingKey.emptyMeansNone,
    },
  };
}

function compileAddressOf(
  { name, template, from }: NonNullable<ReturnType<typeof destinationKindOf>["address"]>,
  keys: Readonly<Record<string, string>>,
): Address | null {
  const text = keys[template] ?? "";
  if (from === null) return compilePath(text);
  return compileAddress({ name, template: text, from: keys[from] as AddressColumn | undefined });
}

function compiled(headers: DestinationConfig["headers"]): DeliveryTarget["headers"] {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, compileHeaderValue(value)]));
}

const TEMPLATES = { all: parseRoutingKeyTemplate, columns: parseRecordKeyTemplate } as const;
