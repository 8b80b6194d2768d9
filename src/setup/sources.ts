import { sourceKindOf } from "../adapters/kinds.ts";
import { providerOf } from "../adapters/sources/http/kind.ts";
import type { Config, SourceConfig } from "../config/types.ts";
import { type Tally, tallySource } from "../core/operations/heartbeat.ts";
import { type AttributePlan, brokerPlan, httpPlan } from "../core/receipt/attributes.ts";
import { createExpressions, warnOfFailures } from "../core/receipt/expressions.ts";
import type { Journal } from "../core/receipt/journal.ts";
import type { SourceOptions } from "../core/receipt/receive.ts";
import { createSourceStage } from "../core/transform/transform.ts";
import type { Evaluator } from "../ports/evaluator.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { Log } from "../ports/runtime.ts";
import type { Clock } from "../time/clock.ts";
import type { Tracing } from "./tracing.ts";

interface SourceTools {
  readonly clock: Clock;
  readonly evaluator: Pick<Evaluator, "evaluate">;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly tally: Tally;
  readonly tracing: Pick<Tracing, "sourceStage">;
}

/** What the messages of each source are received with, for a replay; without a journal. */
export function everySource({ config, ...tools }: SourceTools & { readonly config: Config }): readonly SourceOptions[] {
  return Object.entries(config.sources).map(([name, settings]) => sourceOptions(tools, name, settings));
}

/** What the messages of a source are received with. */
export function sourceOptions(
  { clock, evaluator, log, metrics, tally, tracing }: SourceTools,
  source: string,
  settings: SourceConfig,
  journal?: Journal,
): SourceOptions {
  const { transform } = settings;
  const onFailure = warnOfFailures(source, { log, clock });
  return {
    source,
    settings,
    attributes: attributePlanOf(settings),
    expressions: createExpressions({ source, settings, evaluator, onFailure }),
    stage: transform === undefined ? undefined : tracing.sourceStage(createSourceStage(transform, evaluator, metrics)),
    keepsRefused: settings.kind !== "http",
    journal,
    clock,
    metrics: tallySource(metrics, tally, source),
    log,
  };
}

/** The places of the attributes of a source's messages, in the order of its kind. */
export function attributePlanOf(settings: SourceConfig): AttributePlan {
  if (settings.kind !== "http") return brokerPlan(settings, sourceKindOf(settings).attributes);
  const { auth } = settings;
  return httpPlan(settings, auth?.kind === "provider" ? providerOf(auth.provider) : undefined);
}
