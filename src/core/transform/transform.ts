import { errorText, isTransformFailure, PublishError } from "../../model/errors.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { TransformStage } from "../delivery/deliver.ts";
import type { Condition } from "../delivery/expansion.ts";
import type { SourceStage } from "../receipt/receive.ts";

/** A transform block of the configuration (spec, "Transform block"). */
export interface TransformSettings {
  readonly expression: string;
  readonly timeoutMs: number;
  /** Deepest recursion. */
  readonly maxDepth: number;
  readonly onError: "Fail" | "Skip" | "Dead";
}

type Evaluates = Pick<Evaluator, "evaluate">;

/**
 * The transform of a route or a destination (spec, "Transform stages and variables"). `run` throws a TransformError,
 * subject to `onError`, or a PublishError if the evaluator is unavailable: that fails the delivery in any case.
 *
 * @param owner its key path without `.transform`, such as `destinations.billing`
 */
export function createDeliveryStage(settings: TransformSettings, evaluator: Evaluates, owner: string): TransformStage {
  const { expression, timeoutMs, maxDepth, onError } = settings;
  return {
    onError,
    async run(body, row) {
      const { id, topic, attempt, createdAt } = row;
      const bindings = { messageId: id, topic, attempt, timestamp: createdAt?.toISOString() ?? null };
      const source = row.headers["x-source"];
      // One source's messages must not delay those of others to the same destination.
      const lane = source === undefined ? owner : `${owner} from ${source}`;
      try {
        return await evaluator.evaluate({ lane, expression, input: body, bindings, timeoutMs, maxDepth });
      } catch (error) {
        if (isTransformFailure(error)) throw error;
        throw new PublishError("transform_unavailable", `no transform could be run: ${errorText(error)}`);
      }
    },
  };
}

/**
 * The transform of a source with its variables (spec, "Transform stages and variables"). A failure is counted and
 * handled by `onError`: `Fail` and `Dead` both reject the message.
 */
export function createSourceStage(
  settings: TransformSettings,
  evaluator: Evaluates,
  metrics: Pick<Metrics, "transformFailure">,
): SourceStage {
  const { expression, timeoutMs, maxDepth, onError } = settings;
  return async (body, context, refusable = false) => {
    const { messageId, source, eventType, idempotencyKey, timestamp, headers } = context;
    const topic = eventType ?? "";
    const bindings = { messageId, topic, attempt: 0, timestamp, source, headers, idempotencyKey, eventType };
    try {
      const lane = `sources.${source}`;
      const limits = { timeoutMs, maxDepth, refusable };
      const payload = await evaluator.evaluate({ lane, expression, input: body, bindings, ...limits });
      return { kind: "replaced", payload };
    } catch (error) {
      if (!isTransformFailure(error)) return { kind: "unavailable", reason: errorText(error) };
      metrics.transformFailure(onError);
      return onError === "Skip" ? { kind: "unchanged" } : { kind: "rejected", reason: error.message };
    }
  };
}

/** As the service evaluates a condition: a result that is nothing is false. */
export const truthOf = (expression: string): string => `(${expression}) ? true : false`;

/**
 * The condition `when` of an entry of a list. A result that is nothing, as of a path that the body lacks, is false.
 *
 * @param owner its key path without `.when`, such as `routes[0].destinations[1]`
 */
export function createCondition(settings: TransformSettings, evaluator: Evaluates, owner: string): Condition {
  const { timeoutMs, maxDepth, onError } = settings;
  const expression = truthOf(settings.expression);
  return {
    onError,
    async holds(body, { id, topic, key, headers, attempt, createdAt }) {
      const timestamp = createdAt?.toISOString() ?? null;
      const bindings = { messageId: id, topic, key, headers, attempt, timestamp };
      try {
        const lane = `${owner}.when`;
        return (await evaluator.evaluate({ lane, expression, input: body, bindings, timeoutMs, maxDepth })) === "true";
      } catch (error) {
        if (isTransformFailure(error)) throw error;
        throw new PublishError("transform_unavailable", `no condition could be evaluated: ${errorText(error)}`);
      }
    },
  };
}
