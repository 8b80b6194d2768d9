import { sourceKindOf } from "../src/adapters/kinds.ts";
import type { SourceConfig } from "../src/config/types.ts";
import { type AttributePlan, brokerPlan, httpPlan } from "../src/core/receipt/attributes.ts";
import { createIntake } from "../src/core/receipt/intake.ts";
import { createSourceStage } from "../src/core/transform/transform.ts";
import type { InsertResult, NewInboxRow } from "../src/model/rows.ts";
import type { HealthComponent } from "../src/ports/runtime.ts";
import type { Intake, Source } from "../src/ports/source.ts";
import { sleep } from "../src/time/wait.ts";
import type { RoleContext } from "./context.ts";

type BrokerSourceConfig = Exclude<SourceConfig, { readonly kind: "http" }>;

/**
 * Makes the configured broker sources with their health components. Only the client libraries of the configured kinds are loaded.
 *
 * @param insert stores rows in one commit
 */
export async function brokerSources(
  context: RoleContext,
  insert: (rows: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>,
): Promise<{ readonly workers: readonly Source[]; readonly health: readonly HealthComponent[] }> {
  const { clock, log } = context;
  const workers: Source[] = [];
  const health: HealthComponent[] = [];
  for (const [name, config] of Object.entries(context.config.sources)) {
    if (config.kind === "http") continue;
    const intake = brokerIntake(name, config, context, insert);
    const tools = { name, intake, log: log.child({ source: name }), clock, random: Math.random };
    const source = await sourceKindOf(config).create(config, tools);
    workers.push(source);
    health.push({ name: `${config.kind}.${name}`, decidesReadiness: config.required, check: () => source.check() });
  }
  return { workers, health };
}

function brokerIntake(
  source: string,
  config: BrokerSourceConfig,
  context: RoleContext,
  insert: (rows: readonly NewInboxRow[]) => Promise<readonly InsertResult[]>,
): Intake {
  const { clock, metrics, log, redact, evaluator } = context;
  const { transform } = config;
  return createIntake({
    source,
    settings: config,
    attributes: attributePlanOf(config),
    stage: transform === undefined ? undefined : createSourceStage(transform, evaluator, metrics),
    insert,
    wait: sleep,
    redact,
    clock,
    random: Math.random,
    metrics,
    log,
  });
}

/** The places of the attributes of a source's messages, in the order of its kind. */
export function attributePlanOf(settings: SourceConfig): AttributePlan {
  return settings.kind === "http" ? httpPlan(settings) : brokerPlan(settings, sourceKindOf(settings).attributes);
}
