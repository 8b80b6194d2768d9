import { errorText, isTransformFailure, PublishError } from "../../model/errors.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { Condition } from "../delivery/expansion.ts";
import type { TransformSettings } from "./transform.ts";

/** As the service evaluates a condition: a result that is nothing is false. */
export const truthOf = (expression: string): string => `(${expression}) ? true : false`;

/**
 * The condition `when` of an entry of a list. A result that is nothing, as of a path that the body lacks, is false.
 *
 * @param owner its key path without `.when`, such as `routes[0].destinations[1]`
 */
export function createCondition(
  settings: TransformSettings,
  evaluator: Pick<Evaluator, "evaluate">,
  owner: string,
): Condition {
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
