import type { Config } from "../src/config/types.ts";
import { hasExpressions } from "../src/core/receipt/expressions.ts";
import type { Role } from "../src/model/roles.ts";
import type { Evaluator } from "../src/ports/evaluator.ts";
import type { Log, Service } from "../src/ports/runtime.ts";
import { EvaluatorPool, workerSizing } from "../src/runtime/evaluation/pool.ts";

/** The evaluator of the configured transforms, as a service that stops after the roles that use it. */
interface Transforms {
  readonly evaluator: Pick<Evaluator, "evaluate">;
  readonly service: Service;
}

/** Workers start with the process only where one of its roles has a transform, or computes attributes. */
export function openTransforms(config: Config, roles: ReadonlySet<Role>, log: Log): Transforms {
  const { workers, memoryLimitMb, limitedBy } = workerSizing();
  const pool = new EvaluatorPool({ script: EVALUATOR_SCRIPT, workers, memoryLimitMb, log });
  return {
    evaluator: pool,
    service: {
      name: "transforms",
      async start() {
        if (!hasTransforms(config, roles)) return;
        await pool.start();
        log.info({ workers, memoryLimitMb, limitedBy }, "evaluation workers are up");
      },
      stop: () => pool.close(),
    },
  };
}

/** Entry of the evaluation workers. */
export const EVALUATOR_SCRIPT = new URL("./evaluatorWorker.js", import.meta.url);

function hasTransforms({ sources, destinations, routes }: Config, roles: ReadonlySet<Role>): boolean {
  const used = [
    ...(roles.has("ingest") ? Object.values(sources) : []),
    ...(roles.has("poller") ? [...Object.values(destinations), ...routes] : []),
  ];
  const computesAttributes = roles.has("ingest") && Object.values(sources).some(hasExpressions);
  return computesAttributes || used.some(({ transform }) => transform !== undefined);
}
