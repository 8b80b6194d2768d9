import { sourceKindOf } from "../adapters/kinds.ts";
import type { Config, SourceConfig } from "../config/types.ts";
import { type Decorators, type TracedSource, tracedParts } from "../core/tracing/traced.ts";
import { tracedStore } from "../core/tracing/tracedStore.ts";
import type { NamedDestination } from "../model/spans.ts";
import type { Log, Service } from "../ports/runtime.ts";
import type { Store } from "../ports/store.ts";
import { REPLICA } from "../runtime/log.ts";
import { systemClock } from "../time/clock.ts";
import { addressTemplateOf } from "./destinations.ts";

/** What the composition root puts around the parts of a process; without `tracing.enabled` nothing. */
export interface Tracing extends Decorators {
  store(store: Store): Store;
  /** Sends the last spans when it stops. */
  readonly services: readonly Service[];
}

const same = <T>(part: T): T => part;

export const NO_TRACING: Tracing = {
  receiver: same,
  intake: same,
  sourceStage: same,
  deliveryStage: same,
  delivery: same,
  destination: same,
  store: same,
  services: [],
};

/** `OTEL_SDK_DISABLED`, which turns off traces and pushed metrics alike. */
export const isSdkDisabled = (env: NodeJS.ProcessEnv): boolean => env.OTEL_SDK_DISABLED?.toLowerCase() === "true";

/** @throws ConfigError when the packages of OpenTelemetry are missing, or its variables ask for what is not there */
export async function openTracing(
  config: Config,
  version: string,
  log: Log,
  env: NodeJS.ProcessEnv = process.env,
): Promise<Tracing> {
  const { tracing, database } = config;
  if (!tracing.enabled || isSdkDisabled(env)) return NO_TRACING;
  const { openTracer } = await import("../adapters/tracing/otlp.ts");
  const tracer = await openTracer({ version, replica: REPLICA, env, log });
  const system = database.target.type === "sqlserver" ? "microsoft.sql_server" : "postgresql";
  const names = { system, inbox: database.inboxTableName, outbox: database.outboxTableName } as const;
  // The same store has one decorator: the composition root compares stores.
  const stores = new WeakMap<Store, Store>();
  return {
    ...tracedParts(tracer, tracing, systemClock),
    store(store) {
      const traced = stores.get(store) ?? tracedStore(store, tracer, names, systemClock);
      stores.set(store, traced);
      return traced;
    },
    services: [tracer],
  };
}

export function tracedSource(name: string, settings: SourceConfig): TracedSource {
  const isTrusted = settings.tracing?.trust === true;
  const { kind } = settings;
  if (kind === "http") return { name, isTrusted, broker: undefined };
  return { name, isTrusted, broker: { kind, from: sourceKindOf(settings).readsFrom?.(settings) } };
}

export function namedDestinations(destinations: Config["destinations"]): ReadonlyMap<string, NamedDestination> {
  return new Map(
    Object.entries(destinations).map(([name, entry]) => [
      name,
      { name, kind: entry.kind, address: addressTemplateOf(entry) },
    ]),
  );
}
