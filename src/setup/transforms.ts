import { targetsOf } from "../config/routes.ts";
import type { Config } from "../config/types.ts";
import { hasExpressions } from "../core/receipt/expressions.ts";
import type { Role } from "../model/roles.ts";
import type { Evaluator } from "../ports/evaluator.ts";
import type { Log, Service } from "../ports/runtime.ts";
import { EvaluatorPool, workerSizing } from "../runtime/evaluation/pool.ts";

/**
 * The evaluator of the configured transforms, a service that stops after the roles that use it. Workers start with the
 * process only if one of its roles has a transform, or computes attributes.
 */
export function openTransforms(
  config: Config,
  roles: ReadonlySet<Role>,
  log: Log,
): Service & Pick<Evaluator, "evaluate"> {
  const { workers, memoryLimitMb, limitedBy } = workerSizing();
  const pool = new EvaluatorPool({ script: EVALUATOR_SCRIPT, workers, memoryLimitMb, log });
  return {
    name: "transforms",
    evaluate: (evaluation) => pool.evaluate(evaluation),
    async start() {
      if (!hasTransforms(config, roles)) return;
      await pool.start();
      log.info({ workers, memoryLimitMb, limitedBy }, "evaluation workers are up");
    },
    stop: () => pool.close(),
  };
}

/** Entry of the evaluation workers. */
export const EVALUATOR_SCRIPT = new URL("../../roles/evaluatorWorker.js", import.meta.url);

function hasTransforms({ sources, destinations, routes }: Config, roles: ReadonlySet<Role>): boolean {
  const targets = roles.has("poller") ? routes.flatMap(targetsOf) : [];
  const used = [
    ...(roles.has("ingest") ? Object.values(sources) : []),
    ...(roles.has("poller") ? Object.values(destinations) : []),
    ...targets,
  ];
  const computesAttributes = roles.has("ingest") && Object.values(sources).some(hasExpressions);
  const hasConditions = targets.some(({ when }) => when !== undefined);
  return computesAttributes || hasConditions || used.some(({ transform }) => transform !== undefined);
}
