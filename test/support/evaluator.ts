import { EvaluatorPool, type EvaluatorPoolOptions } from "../../src/runtime/evaluation/pool.ts";
import { builtModule } from "./processes.ts";

/** The entry of evaluation workers, built. */
export const EVALUATOR_SCRIPT = new URL(builtModule("roles/evaluatorWorker.ts"));

/** An evaluator that a test owns: `await using evaluator = testEvaluator()` closes it, whatever becomes of the test. */
export type TestEvaluator = EvaluatorPool & AsyncDisposable;

/** An evaluator with real workers, one with 128 MB unless `options` say otherwise. */
export function testEvaluator(options: Partial<EvaluatorPoolOptions> = {}): TestEvaluator {
  const pool = new EvaluatorPool({ script: EVALUATOR_SCRIPT, workers: 1, memoryLimitMb: 128, ...options });
  return Object.assign(pool, { [Symbol.asyncDispose]: () => pool.close() });
}
