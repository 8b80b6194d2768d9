import { collectDefaultMetrics, Registry } from "prom-client";
import { ROLES, type Role } from "../model/roles.ts";
import { SLOT_STATUSES } from "../ports/capture.ts";
import { DESTINATION_STATES } from "../ports/destinationStore.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { Store } from "../ports/store.ts";
import { type Clock, systemClock } from "../time/clock.ts";
import { METRICS, type ServiceMetric } from "./metricDefinitions.ts";
import { histogramFamily, type NumberSeries, numberFamily } from "./series.ts";

type PoolUsage = ReturnType<Store["poolUsage"]>;

interface MetricsOptions {
  /** Version of the service, for `svc_info`. */
  readonly version: string;
  /** Roles of this process, for `svc_role_info`; the metrics of others are not shown. Default: all. */
  readonly roles?: readonly Role[];
  /** Kinds of destinations: values of the label `destination_type`. */
  readonly destinationKinds?: readonly string[];
  readonly clock?: Clock;
  /** Whether to add prom-client's process and event-loop metrics, and to watch the event loop. Default: true. */
  readonly processMetrics?: boolean;
}

/** The `Metrics` port, and what the metrics route asks of it. */
interface MetricsRegistry {
  readonly metrics: Metrics;
  /** All metrics in the Prometheus text format. */
  text(): Promise<string>;
  /** Names where `svc_db_pool_connections` is read at each scrape. */
  observePool(usage: () => PoolUsage): void;
}

/** The monitor wakes the process this often: at prom-client's 10 ms that alone is most of what an idle process does. */
const EVENT_LOOP_RESOLUTION_MS = 100;

/** Makes the metrics of a process, in a registry of their own: two services in one process do not mix. */
export function createMetrics(options: MetricsOptions): MetricsRegistry {
  const { version, roles = ROLES, clock = systemClock } = options;
  const startedAt = clock.monotonic();
  const registry = new Registry();
  const series = allSeries(registry, roles, options.destinationKinds ?? []);
  series.info.with(version).value = 1;
  for (const role of roles) series.roleInfo.with(role).value = 1;
  if (options.processMetrics ?? true) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: EVENT_LOOP_RESOLUTION_MS });
    const blocked = series.eventLoopBlocked.with();
    // prom-client's maximum begins anew at each scrape, also at one that timed out meanwhile: it forgets the longest
    // blocks.
    const watch = eventLoopWatch(clock, (seconds) => add(blocked, seconds));
    setInterval(watch, WATCH_INTERVAL_MS).unref();
  }
  let readPool: (() => PoolUsage) | undefined;
  return {
    metrics: metricsOf(series),
    text() {
      series.uptime.with().value = (clock.monotonic() - startedAt) / 1000;
      for (const [state, count] of Object.entries(readPool?.() ?? {})) set(series.dbPoolConnections.with(state), count);
      return registry.metrics();
    },
    observePool(usage) {
      readPool = usage;
    },
  };
}

/** The series of every metric by its name in {@link METRICS}. */
type AllSeries = {
  readonly [N in keyof typeof METRICS]: ReturnType<
    (typeof METRICS)[N]["type"] extends "histogram" ? typeof histogramFamily : typeof numberFamily
  >;
};

function allSeries(registry: Registry, roles: readonly Role[], destinationKinds: readonly string[]): AllSeries {
  const familyOf = (metric: ServiceMetric) => {
    const shownIn = metric.roles.some((role) => roles.includes(role)) ? registry : undefined;
    return metric.type === "histogram" ? histogramFamily(shownIn, metric) : numberFamily(shownIn, metric);
  };
  const { outboxPublishDuration } = METRICS;
  const definitions = {
    ...METRICS,
    outboxPublishDuration: { ...outboxPublishDuration, labels: { destination_type: destinationKinds } },
  };
  return Object.fromEntries(
    Object.entries(definitions).map(([name, metric]) => [name, familyOf(metric)]),
  ) as unknown as AllSeries;
}

function metricsOf(series: AllSeries): Metrics {
  return {
    outboxMessages: (status, count) => add(series.outboxMessages.with(status), count),
    outboxPending: (count) => set(series.outboxPending.with(), count),
    outboxOldestPendingAge: (seconds) => set(series.outboxOldestPendingAge.with(), seconds),
    outboxReclaimed: (count) => add(series.outboxReclaimed.with(), count),
    outboxProcessError: () => add(series.outboxProcessErrors.with(), 1),
    outboxRowRefused: (count) => add(series.outboxRowsRefused.with(), count),
    outboxProcessingDuration: (seconds) => series.outboxProcessingDuration.with().observe(seconds),
    outboxPublishDuration: (type, seconds) => series.outboxPublishDuration.with(type).observe(seconds),
    outboxDestinationMessage: (destination, outcome) =>
      add(series.outboxDestinationMessages.with(destination, outcome), 1),
    outboxParked: (destination) => add(series.outboxParked.with(destination), 1),
    outboxQueueDepth: (destination, delta) => {
      const depth = series.outboxQueueDepth.with(destination);
      set(depth, depth.value + delta);
    },
    destinationState: (destination, state) => {
      for (const each of DESTINATION_STATES)
        set(series.destinationState.with(destination, each), each === state ? 1 : 0);
    },
    destinationInFlight: (destination, count) => set(series.destinationInFlight.with(destination), count),
    destinationBacklog: (destination, rows, oldestSeconds) => {
      set(series.destinationBacklog.with(destination), rows);
      set(series.destinationOldestAge.with(destination), oldestSeconds);
    },
    destinationRateLimited: (destination, seconds) => add(series.destinationRateLimited.with(destination), seconds),
    breakerTransition: (destination, to) => add(series.breakerTransitions.with(destination, to), 1),
    deliveryLatency: (seconds) => series.deliveryLatency.with().observe(seconds),
    httpPublishResponse: (statusClass) => add(series.httpPublishResponses.with(statusClass), 1),
    transformFailure: (strategy) => add(series.transformFailures.with(strategy), 1),
    inboxMessages: (status, count) => add(series.inboxMessages.with(status), count),
    inboxRelayError: () => add(series.inboxRelayErrors.with(), 1),
    inboxRejection: (reason) => add(series.inboxRejections.with(reason), 1),
    inboxFiltered: () => add(series.inboxFiltered.with(), 1),
    journalDropped: (count) => add(series.journalDropped.with(), count),
    inboxOldestPendingAge: (seconds) => set(series.inboxOldestPendingAge.with(), seconds),
    inboxUnrelayed: (rows) => set(series.inboxUnrelayed.with(), rows),
    claimDuration: (component, seconds) => series.claimDuration.with(component).observe(seconds),
    claimRows: (component, rows) => series.claimRows.with(component).observe(rows),
    claimsLost: (component, count) => add(series.claimsLost.with(component), count),
    blockedKeys: (count) => set(series.blockedKeys.with(), count),
    parkedRows: (count) => set(series.parkedRows.with(), count),
    componentUp: (component, up) => set(series.componentUp.with(component), up ? 1 : 0),
    cleanupDeleted: (table, count) => add(series.cleanupDeleted.with(table), count),
    cleanupDuration: (table, seconds) => series.cleanupDuration.with(table).observe(seconds),
    cleanupLastRun: (table, unixSeconds) => set(series.cleanupLastRun.with(table), unixSeconds),
    captureLag: (seconds) => set(series.captureLag.with(), seconds),
    replicationSlotLag: (retained, unconfirmed) => {
      set(series.replicationSlotLag.with(), retained);
      set(series.replicationSlotUnconfirmed.with(), unconfirmed);
    },
    replicationSlotStatus: (status) => {
      for (const each of SLOT_STATUSES) set(series.replicationSlotStatus.with(each), each === status ? 1 : 0);
    },
  };
}

/** A counter never goes down, and a figure that is none must not spoil it. */
function add(series: NumberSeries, count: number): void {
  if (count > 0 && Number.isFinite(count)) series.value += count;
}

function set(series: NumberSeries, value: number): void {
  if (Number.isFinite(value)) series.value = value;
}

/** How often the watch runs, in ms: exact enough, and too seldom for an idle process to cost anything. */
export const WATCH_INTERVAL_MS = 250;
/** Shorter blocks are not reported, in ms. */
const SHORTEST_BLOCK_MS = 1000;

/**
 * Watches for times in which the event loop does not turn.
 *
 * @param onBlocked told of each block of over a second, with its length in seconds, up to a quarter of a second too
 * short
 * @returns what to call every `WATCH_INTERVAL_MS`
 */
export function eventLoopWatch(clock: Pick<Clock, "monotonic">, onBlocked: (seconds: number) => void): () => void {
  let last = clock.monotonic();
  return () => {
    const now = clock.monotonic();
    const lateMs = now - last - WATCH_INTERVAL_MS;
    last = now;
    if (lateMs > SHORTEST_BLOCK_MS) onBlocked(lateMs / 1000);
  };
}
