import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import { ROLES, type Role } from "../model/roles.ts";
import { SLOT_STATUSES } from "../ports/capture.ts";
import { DESTINATION_STATES } from "../ports/destinationStore.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { Store } from "../ports/store.ts";
import { type Clock, systemClock } from "../time/clock.ts";
import { METRICS, type ServiceMetric } from "./metricDefinitions.ts";
import { Exemplars, openMetricsText } from "./openMetrics.ts";
import type { MetricFigures } from "./otlpMetrics.ts";

interface MetricsOptions {
  /** Version of the service, for `svc_info`. */
  readonly version: string;
  /** Roles of this process, for `svc_role_info`; the metrics of others are not shown. Default: all. */
  readonly roles?: readonly Role[];
  /** Kinds of destinations: values of the label `destination_type`. */
  readonly destinationKinds?: readonly string[];
  /** With cells each metric has the label `cell` too. */
  readonly cells?: readonly string[];
  /** Names of the destinations: values of a label `destination`. */
  readonly destinations?: readonly string[];
  /** Upper bounds of the buckets of `svc_message_delivery_duration_seconds` (`metrics.deliveryBuckets`). */
  readonly deliveryBuckets?: readonly number[];
  readonly clock?: Clock;
  /** Whether to add prom-client's process and event-loop metrics, and to watch the event loop. Default: true. */
  readonly processMetrics?: boolean;
}

/** The `Metrics` port, and what the metrics route asks of it. */
interface MetricsRegistry {
  readonly metrics: Metrics;
  /** Those of one cell. */
  ofCell(cell: string): Metrics;
  /** All metrics in the Prometheus text format. */
  text(): Promise<string>;
  /** The same in OpenMetrics, with exemplars. */
  openMetrics(): Promise<string>;
  /** The same for {@link MetricsPush}. */
  figures(): Promise<readonly MetricFigures[]>;
  /** Names the stores whose connections, together, are read at each scrape (`svc_db_pool_connections`). */
  observePools(stores: readonly Pick<Store, "connections">[]): void;
}

/** The monitor wakes the process this often: at prom-client's 10 ms that alone is most of what an idle process does. */
const EVENT_LOOP_RESOLUTION_MS = 100;

/** Makes the metrics of a process, in a registry of their own: two services in one process do not mix. */
export function createMetrics(options: MetricsOptions): MetricsRegistry {
  const { version, roles = ROLES, clock = systemClock } = options;
  const startedAt = clock.monotonic();
  const registry = new Registry();
  const { deliveryBuckets = METRICS.messageDelivery.buckets ?? [] } = options;
  const exemplars = new Exemplars(METRICS.messageDelivery.name, deliveryBuckets);
  const reportsOf = allReports(registry, roles, { ...options, deliveryBuckets });
  const reports = reportsOf(undefined);
  reports.info(version, 1);
  for (const role of roles) reports.roleInfo(role, 1);
  if (options.processMetrics ?? true) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: EVENT_LOOP_RESOLUTION_MS });
    // prom-client's maximum begins anew at each scrape, even if the scrape timed out: it forgets the longest blocks.
    setInterval(eventLoopWatch(clock, reports.eventLoopBlocked), WATCH_INTERVAL_MS).unref();
  }
  const atScrape: (() => void)[] = [];
  const metricsIn = (cell: string | undefined): Metrics => {
    const own = reportsOf(cell);
    const queueDepths = new Map<string, number>();
    atScrape.push(() => {
      for (const [destination, depth] of queueDepths) own.outboxQueueDepth(destination, depth);
    });
    return metricsOf(own, queueDepths, (destination, seconds, traceId) => {
      const labels = cell === undefined ? { destination } : { destination, cell };
      exemplars.add(labels, seconds, traceId, clock.now());
    });
  };
  const collect = (): void => {
    reports.uptime((clock.monotonic() - startedAt) / 1000);
    for (const read of atScrape) read();
  };
  const text = async (): Promise<string> => {
    collect();
    return await registry.metrics();
  };
  return {
    metrics: metricsIn(undefined),
    ofCell: metricsIn,
    text,
    openMetrics: async () => openMetricsText(await text(), exemplars),
    async figures() {
      collect();
      // A read of the event loop's figures begins them anew, which is for the scrape.
      const metrics = registry.getMetricsAsArray().filter(({ name }) => !name.startsWith("nodejs_eventloop_lag"));
      const read = metrics.map((metric) => (metric as unknown as { get(): Promise<MetricFigures> }).get());
      return await Promise.all(read);
    },
    observePools(stores) {
      const pools = [...new Set(stores.map(({ connections }) => connections))];
      atScrape.push(() => {
        const usages = pools.map((pool) => pool.usage());
        for (const state of ["used", "idle", "waiting"] as const) {
          reports.dbPoolConnections(
            state,
            usages.reduce((sum, usage) => sum + usage[state], 0),
          );
        }
      });
    },
  };
}

/** Reports to a metric: the values of its labels, in the order of its definition, and the figure, by default 1. */
type Report = (...given: (string | number | boolean)[]) => void;
type Reports = Readonly<Record<keyof typeof METRICS, Report>>;

/** @returns what reports for a cell; for the whole process without one */
function allReports(
  registry: Registry,
  roles: readonly Role[],
  {
    destinationKinds = [],
    destinations = [],
    cells = [],
    deliveryBuckets,
  }: Pick<MetricsOptions, "destinationKinds" | "destinations" | "cells"> &
    Required<Pick<MetricsOptions, "deliveryBuckets">>,
): (cell: string | undefined) => Reports {
  const { outboxPublishDuration, messageDelivery } = METRICS;
  const definitions = {
    ...METRICS,
    outboxPublishDuration: { ...outboxPublishDuration, labels: { destination_type: destinationKinds } },
    messageDelivery: { ...messageDelivery, labels: { destination: destinations }, buckets: deliveryBuckets },
  };
  const reports = Object.entries<ServiceMetric>(definitions).map(([name, metric]) => {
    // Those of other roles count unseen.
    const isShown = metric.roles.some((role) => roles.includes(role));
    return [name, reportTo(metric, cells, isShown ? [registry] : [])] as const;
  });
  return (cell) => Object.fromEntries(reports.map(([name, of]) => [name, of(cell)])) as unknown as Reports;
}

/**
 * Makes the metric. Its series with known label values exist from the start, for a counter that appears with its first
 * increment hides that from `rate()`; but a gauge has no value before its first measurement.
 *
 * @param cells values of the label `cell`; a report of the whole process has none, which Prometheus takes for no label
 */
function reportTo(
  { name, type, help, labels, buckets = [] }: ServiceMetric,
  cells: readonly string[],
  registers: Registry[],
): (cell: string | undefined) => Report {
  const ownLabels = Object.keys(labels);
  const labelNames = cells.length === 0 ? ownLabels : [...ownLabels, "cell"];
  const [values = []] = ownLabels.length === 1 ? Object.values(labels) : [];
  const known = values.flatMap((value) =>
    cells.length === 0 ? [[value]] : ["", ...cells].map((cell) => [value, cell]),
  );
  const record = metricOf();
  const gathered = new Gathered((of, values) => record(labelsOf(of), values));
  return (cell = "") =>
    (...given) => {
      const value = given.length > ownLabels.length ? Number(given.pop()) : 1;
      // One NaN would spoil a sum for the life of the process.
      if (!Number.isFinite(value)) return;
      if (cells.length > 0) given.push(cell);
      gathered.add(given, value);
    };

  /** Makes prom-client's metric. @returns records values of one series, in the order reported */
  function metricOf(): (of: Record<string, string>, values: readonly number[]) => void {
    const config = { name, help, labelNames, registers, collect: () => gathered.release() };
    if (type === "counter") {
      const counter = new Counter(config);
      for (const each of known) counter.inc(labelsOf(each), 0);
      return (of, values) =>
        counter.inc(
          of,
          values.reduce((sum, value) => sum + Math.max(0, value), 0),
        );
    }
    if (type === "gauge") {
      const gauge = new Gauge(config);
      if (labelNames.length === 0) gauge.remove();
      return (of, values) => gauge.set(of, values.at(-1) ?? 0);
    }
    const histogram = new Histogram({ ...config, buckets: [...buckets] });
    for (const each of known) histogram.zero(labelsOf(each));
    return (of, values) => {
      for (const value of values) histogram.observe(of, value);
    };
  }

  function labelsOf(of: LabelValues): Record<string, string> {
    return Object.fromEntries(labelNames.map((label, n) => [label, String(of[n])]));
  }
}

/** Of one series, in the order of the metric's labels. */
type LabelValues = readonly (string | number | boolean)[];

/** Most reports of a series that wait: a kilobyte, and more would save no time. */
const MOST_GATHERED = 100;

/** Reports that wait for a scrape: a message makes eight, and passed on one by one they are a twentieth of its cost. */
class Gathered {
  readonly #record: (of: LabelValues, values: readonly number[]) => void;
  readonly #series = new Map<string, { readonly of: LabelValues; readonly values: number[] }>();

  constructor(record: (of: LabelValues, values: readonly number[]) => void) {
    this.#record = record;
  }

  add(of: LabelValues, value: number): void {
    const key = of.length === 1 ? String(of[0]) : of.join("\0");
    let series = this.#series.get(key);
    if (series === undefined) {
      series = { of, values: [] };
      this.#series.set(key, series);
    }
    series.values.push(value);
    if (series.values.length >= MOST_GATHERED) this.#recordNow(series);
  }

  release(): void {
    for (const series of this.#series.values()) if (series.values.length > 0) this.#recordNow(series);
  }

  #recordNow({ of, values }: { readonly of: LabelValues; readonly values: number[] }): void {
    this.#record(of, values);
    values.length = 0;
  }
}

/**
 * The port: each method reports to the metric of its name; some do more.
 *
 * @param queueDepths by destination, for the next scrape: they change twice with each message
 */
function metricsOf(
  reports: Reports,
  queueDepths: Map<string, number>,
  exemplify: (destination: string, seconds: number, traceId: string) => void,
): Metrics {
  return {
    ...reports,
    messageDelivery(destination, seconds, traceId) {
      reports.messageDelivery(destination, seconds);
      if (traceId !== undefined) exemplify(destination, seconds, traceId);
    },
    outboxQueueDepth(destination, delta) {
      queueDepths.set(destination, (queueDepths.get(destination) ?? 0) + delta);
    },
    destinationState(destination, state) {
      for (const each of DESTINATION_STATES) reports.destinationState(destination, each, each === state);
    },
    destinationBacklog(destination, rows, oldestSeconds) {
      reports.destinationBacklog(destination, rows);
      reports.destinationOldestAge(destination, oldestSeconds);
    },
    replicationSlotLag(retained, unconfirmed) {
      reports.replicationSlotLag(retained);
      reports.replicationSlotUnconfirmed(unconfirmed);
    },
    replicationSlotStatus(status) {
      for (const each of SLOT_STATUSES) reports.replicationSlotStatus(each, each === status);
    },
  };
}

/** How often the watch runs, in ms: exact enough, and too seldom for an idle process to cost anything. */
export const WATCH_INTERVAL_MS = 250;
/** Shorter blocks are not reported, in ms. */
const SHORTEST_BLOCK_MS = 1000;

/**
 * Watches for times in which the event loop does not turn.
 *
 * @param onBlocked gets the length in seconds of each block of over a second, up to a quarter of a second too short
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
