import type { Config } from "../config/types.ts";
import type { Log } from "../ports/runtime.ts";
import { REPLICA } from "../runtime/log.ts";
import type { createMetrics } from "../runtime/metrics.ts";
import { MetricsPush } from "../runtime/otlpMetrics.ts";
import { systemClock } from "../time/clock.ts";
import { isSdkDisabled } from "./tracing.ts";

/** What pushes the metrics of this process; nothing without `metrics.otlp`. */
export function metricsPushes(
  { config, version, log }: { readonly config: Config; readonly version: string; readonly log: Log },
  registry: Pick<ReturnType<typeof createMetrics>, "figures">,
): readonly MetricsPush[] {
  const { otlp, otlpIntervalMs } = config.metrics;
  if (!otlp || isSdkDisabled(process.env)) return [];
  return [
    new MetricsPush({
      read: () => registry.figures(),
      version,
      replica: REPLICA,
      env: process.env,
      intervalMs: otlpIntervalMs,
      log,
      now: () => systemClock.now(),
    }),
  ];
}
