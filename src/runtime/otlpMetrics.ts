import type { Log, Service } from "../ports/runtime.ts";
import { timeout } from "../time/wait.ts";
import { Loop, logFailures } from "./loop.ts";

/** A metric of prom-client's `Registry.getMetricsAsJSON`. */
export interface MetricFigures {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly values: readonly {
    readonly value: number;
    readonly labels: Readonly<Record<string, string | number | undefined>>;
    readonly metricName?: string;
  }[];
}

interface PushOptions {
  readonly read: () => Promise<readonly MetricFigures[]>;
  readonly version: string;
  readonly replica: string;
  readonly env: NodeJS.ProcessEnv;
  readonly intervalMs: number;
  readonly log: Log;
  readonly now: () => number;
}

/**
 * Pushes the metrics over OTLP/HTTP in JSON (https://opentelemetry.io/docs/specs/otlp/) to the collector that the
 * variables `OTEL_EXPORTER_OTLP_*` name, by default that of this machine: cumulative figures, under the names of
 * Prometheus. A collector that is away or hangs costs one warning and no memory.
 */
export class MetricsPush implements Service {
  readonly name = "metrics push";
  readonly #options: PushOptions;
  readonly #startedAt: number;
  readonly #loop: Loop;
  #isFailing = false;

  constructor(options: PushOptions) {
    this.#options = options;
    this.#startedAt = options.now();
    const { intervalMs, log } = options;
    this.#loop = new Loop({
      name: this.name,
      pass: (signal) => this.push(signal),
      intervalMs,
      staleAfterMs: Number.POSITIVE_INFINITY,
      onError: logFailures(log, "pushing the metrics failed"),
    });
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  /** Pushes once more. */
  async stop(cutoff: AbortSignal): Promise<void> {
    await this.#loop.stop(cutoff);
    if (!this.#isFailing) await this.push(cutoff);
  }

  /** Never rejects. */
  async push(cutoff?: AbortSignal): Promise<void> {
    const { read, env, log, now } = this.#options;
    try {
      const body = JSON.stringify(this.#request(await read(), now()));
      using limit = timeout(Number(env.OTEL_EXPORTER_OTLP_TIMEOUT) || TIMEOUT_MS, "the push", cutoff);
      const answer = await fetch(endpointOf(env), {
        method: "POST",
        headers: { ...headersOf(env), "content-type": "application/json" },
        body,
        signal: limit.signal,
      });
      await answer.body?.cancel();
      if (!answer.ok) throw new Refused(`it answered ${answer.status}`);
      if (this.#isFailing) log.info({}, "the collector takes metrics again");
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing)
        log.warn({ reason: reasonOf(error) }, "the collector takes no metrics; the next push has all");
      this.#isFailing = true;
    }
  }

  #request(metrics: readonly MetricFigures[], now: number): object {
    const { env, version, replica } = this.#options;
    const given = pairsOf(env.OTEL_RESOURCE_ATTRIBUTES);
    const resource = {
      "service.name": "svc",
      "service.version": version,
      "service.instance.id": replica,
      ...given,
      ...(env.OTEL_SERVICE_NAME && { "service.name": env.OTEL_SERVICE_NAME }),
    };
    const times = { startTimeUnixNano: nanoseconds(this.#startedAt), timeUnixNano: nanoseconds(now) };
    return {
      resourceMetrics: [
        {
          resource: { attributes: attributesOf(resource) },
          scopeMetrics: [
            { scope: { name: "svc", version }, metrics: metrics.map((metric) => otlpMetric(metric, times)) },
          ],
        },
      ],
    };
  }
}

class Refused extends Error {}

/** Errors of `fetch` quote addresses and headers, which may hold credentials. */
function reasonOf(error: unknown): string {
  if (error instanceof Refused) return error.message;
  const { name, cause } = error as { readonly name?: string; readonly cause?: { readonly code?: string } };
  return cause?.code ?? name ?? "unknown";
}

interface Times {
  readonly startTimeUnixNano: string;
  readonly timeUnixNano: string;
}

function otlpMetric({ name, help, type, values }: MetricFigures, times: Times): object {
  const metric = { name, description: help };
  if (type === "histogram") {
    return {
      ...metric,
      histogram: { aggregationTemporality: CUMULATIVE, dataPoints: histogramPoints(name, values, times) },
    };
  }
  // JSON has no NaN.
  const finite = values.filter(({ value }) => Number.isFinite(value));
  const dataPoints = finite.map(({ labels, value }) => ({
    ...times,
    attributes: attributesOf(labels),
    asDouble: value,
  }));
  if (type === "counter")
    return { ...metric, sum: { aggregationTemporality: CUMULATIVE, isMonotonic: true, dataPoints } };
  return { ...metric, gauge: { dataPoints } };
}

/** Prometheus counts into a bucket what is in the lower ones too. */
function histogramPoints(name: string, values: MetricFigures["values"], times: Times): readonly object[] {
  const series = new Map<string, { labels: object; bounds: number[]; totals: number[]; sum: number; count: number }>();
  for (const { labels, value, metricName } of values) {
    const { le, ...own } = labels;
    const key = JSON.stringify(own);
    const point = series.get(key) ?? { labels: own, bounds: [], totals: [], sum: 0, count: 0 };
    series.set(key, point);
    if (metricName === `${name}_sum`) point.sum = value;
    else if (metricName === `${name}_count`) point.count = value;
    else {
      point.totals.push(value);
      if (le !== "+Inf") point.bounds.push(Number(le));
    }
  }
  return [...series.values()].map(({ labels, bounds, totals, sum, count }) => ({
    ...times,
    attributes: attributesOf(labels),
    sum,
    count: String(count),
    explicitBounds: bounds,
    bucketCounts: totals.map((total, n) => String(total - (totals[n - 1] ?? 0))),
  }));
}

const attributesOf = (labels: object): readonly object[] =>
  Object.entries(labels).map(([key, value]) => ({ key, value: { stringValue: String(value) } }));

const nanoseconds = (ms: number): string => `${Math.round(ms)}000000`;

function endpointOf(env: NodeJS.ProcessEnv): string {
  if (env.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT) return env.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT;
  return `${(env.OTEL_EXPORTER_OTLP_ENDPOINT || "http://localhost:4318").replace(/\/$/, "")}/v1/metrics`;
}

const headersOf = (env: NodeJS.ProcessEnv): Record<string, string> =>
  pairsOf(env.OTEL_EXPORTER_OTLP_METRICS_HEADERS || env.OTEL_EXPORTER_OTLP_HEADERS);

/** `name=value` pairs with commas between them, percent-encoded. */
function pairsOf(text = ""): Record<string, string> {
  const pairs = text.split(",").flatMap((pair) => {
    const at = pair.indexOf("=");
    return at < 1 ? [] : [[pair.slice(0, at).trim(), decoded(pair.slice(at + 1).trim())] as const];
  });
  return Object.fromEntries(pairs);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const CUMULATIVE = 2;
const TIMEOUT_MS = 10_000;
