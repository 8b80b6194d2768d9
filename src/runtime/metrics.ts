import { collectDefaultMetrics, Registry } from "prom-client";
import { ROLES, type Role } from "../model/roles.ts";
import { SLOT_STATUSES } from "../ports/capture.ts";
import { DESTINATION_STATES } from "../ports/destinationStore.ts";
import type { Metrics } from "../ports/metrics.ts";
import { type Clock, systemClock } from "../time/clock.ts";
import { METRICS, type ServiceMetric } from "./metricDefinitions.ts";
import { histogramFamily, type NumberSeries, numberFamily } from "./series.ts";

/** Pool figures; `waiting` counts callers that have no connection yet. */
interface PoolUsage {
  readonly used: number;
  readonly idle: number;
  readonly waiting: number;
}

interface MetricsOptions {
  /** Version of the service, for `svc_info`. */
  readonly version: string;
  /** Roles of this process, for `svc_role_info`; the metrics of others are not shown. Default: all. */
  readonly roles?: readonly Role[];
  /** Kinds of destinations: values of the label `destination_type`. */
  readonly destinationKinds?: readonly string[];
  readonly clock?: Clock;
  /** Whether prom-client's process and event-loop metrics stand beside ours. Default: true. */
  readonly processMetrics?: boolean;
}

/** The `Metrics` port, and what the metrics route asks of it. */
interface MetricsRegistry {
  readonly metrics: Metrics;
  /** `text/plain; version=0.0.4; charset=utf-8` */
  readonly contentType: string;
  /** All metrics in the Prometheus text format. */
  text(): Promise<string>;
  /** Names where `svc_db_pool_connections` is read at each scrape. */
  observePool(usage: () => PoolUsage): void;
}

/** The monitor wakes the process this often: at prom-client's 10 ms that alone is most of what an idle process does. */
const EVENT_LOOP_RESOLUTION_MS = 100;

/** Makes the metrics of a process, in a registry of their own: two services in one process do not mix. */
export function createMetrics(options: MetricsOptions): MetricsRegistry {
  const clock = options.clock ?? systemClock;
  const startedAt = clock.monotonic();
  const registry = new Registry();
  const roles = options.roles ?? ROLES;
  const registryFor = (metric: ServiceMetric) =>
    metric.roles.some((role) => roles.includes(role)) ? registry : undefined;
  const numbers = (metric: ServiceMetric) => numberFamily(registryFor(metric), metric);
  const histogram = (metric: ServiceMetric) => histogramFamily(registryFor(metric), metric);

  const info = numbers(METRICS.info);
  info.with(options.version).value = 1;
  const roleInfo = numbers(METRICS.roleInfo);
  for (const role of roles) roleInfo.with(role).value = 1;
  const uptime = numbers(METRICS.uptime);
  const pool = numbers(METRICS.dbPoolConnections);
  let readPool: (() => PoolUsage) | undefined;
  const collect = () => {
    uptime.with().value = (clock.monotonic() - startedAt) / 1000;
    for (const [state, count] of Object.entries(readPool?.() ?? {})) set(pool.with(state), count);
  };

  const metrics = makeMetrics(numbers, histogram, options.destinationKinds ?? []);
  if (options.processMetrics ?? true)
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: EVENT_LOOP_RESOLUTION_MS });
  return {
    metrics,
    contentType: registry.contentType,
    text: () => {
      collect();
      return registry.metrics();
    },
    observePool: (usage) => {
      readPool = usage;
    },
  };
}

type Numbers = (metric: ServiceMetric) => ReturnType<typeof numberFamily>;
type Histograms = (metric: ServiceMetric) => ReturnType<typeof histogramFamily>;

function makeMetrics(numbers: Numbers, histogram: Histograms, destinationKinds: readonly string[]): Metrics {
  const componentUp = numbers(METRICS.componentUp);
  const outboxMessages = numbers(METRICS.outboxMessages);
  const outboxPending = numbers(METRICS.outboxPending);
  const outboxOldestPendingAge = numbers(METRICS.outboxOldestPendingAge);
  const outboxReclaimed = numbers(METRICS.outboxReclaimed);
  const outboxProcessErrors = numbers(METRICS.outboxProcessErrors);
  const outboxRowsRefused = numbers(METRICS.outboxRowsRefused);
  const outboxProcessingDuration = histogram(METRICS.outboxProcessingDuration);
  const outboxPublishDuration = histogram({
    ...METRICS.outboxPublishDuration,
    labels: { destination_type: destinationKinds },
  });
  const outboxDestinationMessages = numbers(METRICS.outboxDestinationMessages);
  const outboxParked = numbers(METRICS.outboxParked);
  const outboxQueueDepth = numbers(METRICS.outboxQueueDepth);
  const destinationState = numbers(METRICS.destinationState);
  const destinationInFlight = numbers(METRICS.destinationInFlight);
  const destinationBacklog = numbers(METRICS.destinationBacklog);
  const destinationOldestAge = numbers(METRICS.destinationOldestAge);
  const destinationRateLimited = numbers(METRICS.destinationRateLimited);
  const breakerTransitions = numbers(METRICS.breakerTransitions);
  const blockedKeys = numbers(METRICS.blockedKeys);
  const parkedRows = numbers(METRICS.parkedRows);
  const deliveryLatency = histogram(METRICS.deliveryLatency);
  const httpPublishResponses = numbers(METRICS.httpPublishResponses);
  const transformFailures = numbers(METRICS.transformFailures);
  const inboxMessages = numbers(METRICS.inboxMessages);
  const inboxRelayErrors = numbers(METRICS.inboxRelayErrors);
  const inboxRejections = numbers(METRICS.inboxRejections);
  const inboxFiltered = numbers(METRICS.inboxFiltered);
  const inboxOldestPendingAge = numbers(METRICS.inboxOldestPendingAge);
  const inboxUnrelayed = numbers(METRICS.inboxUnrelayed);
  const claimDuration = histogram(METRICS.claimDuration);
  const claimRows = histogram(METRICS.claimRows);
  const claimsLost = numbers(METRICS.claimsLost);
  const cleanupDeleted = numbers(METRICS.cleanupDeleted);
  const cleanupDuration = histogram(METRICS.cleanupDuration);
  const cleanupLastRun = numbers(METRICS.cleanupLastRun);
  const captureLag = numbers(METRICS.captureLag);
  const replicationSlotLag = numbers(METRICS.replicationSlotLag);
  const replicationSlotUnconfirmed = numbers(METRICS.replicationSlotUnconfirmed);
  const replicationSlotStatus = numbers(METRICS.replicationSlotStatus);

  return {
    outboxMessages: (status, count) => add(outboxMessages.with(status), count),
    outboxPending: (count) => set(outboxPending.with(), count),
    outboxOldestPendingAge: (seconds) => set(outboxOldestPendingAge.with(), seconds),
    outboxReclaimed: (count) => add(outboxReclaimed.with(), count),
    outboxProcessError: () => add(outboxProcessErrors.with(), 1),
    outboxRowRefused: (count) => add(outboxRowsRefused.with(), count),
    outboxProcessingDuration: (seconds) => outboxProcessingDuration.with().observe(seconds),
    outboxPublishDuration: (type, seconds) => outboxPublishDuration.with(type).observe(seconds),
    outboxDestinationMessage: (destination, outcome) => add(outboxDestinationMessages.with(destination, outcome), 1),
    outboxParked: (destination) => add(outboxParked.with(destination), 1),
    outboxQueueDepth: (destination, delta) => {
      const series = outboxQueueDepth.with(destination);
      set(series, series.value + delta);
    },
    destinationState: (destination, state) => {
      for (const each of DESTINATION_STATES) set(destinationState.with(destination, each), each === state ? 1 : 0);
    },
    destinationInFlight: (destination, count) => set(destinationInFlight.with(destination), count),
    destinationBacklog: (destination, rows, oldestSeconds) => {
      set(destinationBacklog.with(destination), rows);
      set(destinationOldestAge.with(destination), oldestSeconds);
    },
    destinationRateLimited: (destination, seconds) => add(destinationRateLimited.with(destination), seconds),
    breakerTransition: (destination, to) => add(breakerTransitions.with(destination, to), 1),
    deliveryLatency: (seconds) => deliveryLatency.with().observe(seconds),
    httpPublishResponse: (statusClass) => add(httpPublishResponses.with(statusClass), 1),
    transformFailure: (strategy) => add(transformFailures.with(strategy), 1),
    inboxMessages: (status, count) => add(inboxMessages.with(status), count),
    inboxRelayError: () => add(inboxRelayErrors.with(), 1),
    inboxRejection: (reason) => add(inboxRejections.with(reason), 1),
    inboxFiltered: () => add(inboxFiltered.with(), 1),
    inboxOldestPendingAge: (seconds) => set(inboxOldestPendingAge.with(), seconds),
    inboxUnrelayed: (rows) => set(inboxUnrelayed.with(), rows),
    claimDuration: (component, seconds) => claimDuration.with(component).observe(seconds),
    claimRows: (component, rows) => claimRows.with(component).observe(rows),
    claimsLost: (component, count) => add(claimsLost.with(component), count),
    blockedKeys: (count) => set(blockedKeys.with(), count),
    parkedRows: (count) => set(parkedRows.with(), count),
    componentUp: (component, up) => set(componentUp.with(component), up ? 1 : 0),
    cleanupDeleted: (table, count) => add(cleanupDeleted.with(table), count),
    cleanupDuration: (table, seconds) => cleanupDuration.with(table).observe(seconds),
    cleanupLastRun: (table, unixSeconds) => set(cleanupLastRun.with(table), unixSeconds),
    captureLag: (seconds) => set(captureLag.with(), seconds),
    replicationSlotLag: (retained, unconfirmed) => {
      set(replicationSlotLag.with(), retained);
      set(replicationSlotUnconfirmed.with(), unconfirmed);
    },
    replicationSlotStatus: (status) => {
      for (const each of SLOT_STATUSES) set(replicationSlotStatus.with(each), each === status ? 1 : 0);
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
