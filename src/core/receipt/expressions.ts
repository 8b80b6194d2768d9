import { errorText, isTransformFailure, type TransformErrorCode } from "../../model/errors.ts";
import type { Headers } from "../../model/rows.ts";
import { DEFAULT_LIMITS, type Evaluator } from "../../ports/evaluator.ts";
import { type FoundAttributes, findHeader, storedKey } from "./attributes.ts";
import { hourlyWarning, type WarningTools } from "./refusals.ts";

/** Keys of a source that compute attributes, and the headers that are read before them. */
export interface ExpressionSettings {
  readonly idempotencyKeyExpression?: string | undefined;
  readonly eventTypeExpression?: string | undefined;
  readonly aggregateIdExpression?: string | undefined;
  readonly idempotencyKeyHeader?: string | undefined;
  readonly eventTypeHeader?: string | undefined;
  readonly aggregateIdHeader?: string | undefined;
}

interface ExpressionInput {
  /** The input document `$` as JSON text. */
  readonly text: string;
  readonly headers: Headers;
  /** Its place among the messages of its request, from 0; undefined if it came alone. */
  readonly position?: number | undefined;
  /** Whether its evaluations may be refused when too many wait. Default false. */
  readonly refusable?: boolean;
}

export type ComputedAttributes =
  | {
      readonly kind: "computed";
      /** Only the attributes for which an expression gave a value. */
      readonly values: Partial<FoundAttributes>;
      /** The expression for the key ran into its time limit: it may give a value another time. */
      readonly isKeyLate?: boolean;
    }
  /** The evaluator failed, not an expression: the message may come again, and must get the same key then. */
  | { readonly kind: "unavailable"; readonly reason: string };

/** Computes the attributes of a message. Never rejects. */
export type AttributeExpressions = (input: ExpressionInput) => Promise<ComputedAttributes>;

interface ExpressionOptions {
  readonly source: string;
  readonly settings: ExpressionSettings;
  readonly evaluator: Pick<Evaluator, "evaluate">;
  /** Is given the configuration's key of an expression that failed, and why: no text of the message. */
  readonly onFailure: (key: string, code: string) => void;
}

const ATTRIBUTES = ["idempotencyKey", "eventType", "aggregateId"] as const;

export const hasExpressions = (settings: ExpressionSettings): boolean =>
  ATTRIBUTES.some((name) => settings[`${name}Expression`] !== undefined);

/**
 * Computes a source's attributes; undefined without expressions. An expression gives no value if it fails or finds
 * nothing, null, an empty text, an object or an array.
 */
export function createExpressions(options: ExpressionOptions): AttributeExpressions | undefined {
  const { source, settings, evaluator, onFailure } = options;
  const expressions = ATTRIBUTES.flatMap((name) => {
    const expression = settings[`${name}Expression`];
    return expression === undefined ? [] : [{ name, expression, header: settings[`${name}Header`]?.toLowerCase() }];
  });
  if (expressions.length === 0) return undefined;

  /** @returns the value, null if there is none; and the code of a failure */
  async function compute(
    { name, expression }: (typeof expressions)[number],
    input: ExpressionInput,
  ): Promise<{ readonly value: string | null; readonly failure?: TransformErrorCode }> {
    const { text, headers, position, refusable = false } = input;
    const bindings = { source, headers, ...(position === undefined ? {} : { position }) };
    const lane = `sources.${source}`;
    try {
      const result = await evaluator.evaluate({
        lane,
        expression,
        input: text,
        bindings,
        ...DEFAULT_LIMITS,
        refusable,
      });
      return { value: textOf(result) };
    } catch (error) {
      if (!isTransformFailure(error)) throw error;
      // Nothing found is no fault of the expression: its message may have the attribute elsewhere.
      if (error.code !== "no_result") onFailure(`${name}Expression`, error.code);
      return { value: null, failure: error.code };
    }
  }

  return async (input) => {
    const values: Partial<Record<keyof FoundAttributes, string>> = {};
    let isKeyLate = false;
    try {
      for (const each of expressions) {
        if (isInHeader(each.name, each.header, input)) continue;
        // One by one: the queue admits any single document, but not a large one several times at once.
        const { value, failure } = await compute(each, input);
        if (value !== null) values[each.name] = each.name === "idempotencyKey" ? storedKey(value) : value;
        if (each.name === "idempotencyKey" && failure === "timeout") isKeyLate = true;
      }
    } catch (error) {
      return { kind: "unavailable", reason: errorText(error) };
    }
    return isKeyLate ? { kind: "computed", values, isKeyLate } : { kind: "computed", values };
  };
}

/** Warns of expressions that failed, once an hour for each key of a source. The error itself may quote the message. */
export const warnOfFailures = (source: string, tools: WarningTools): ExpressionOptions["onFailure"] =>
  hourlyWarning(
    source,
    "an expression failed for a received message and gives no value: correct it, or what it expects of messages",
    tools,
  );

/** A header of the request is not the key of each of its messages: there the expression decides. */
function isInHeader(name: string, header: string | undefined, { headers, position }: ExpressionInput): boolean {
  if (header === undefined || (name === "idempotencyKey" && position !== undefined)) return false;
  return Boolean(findHeader(headers, header));
}

/** @param result JSON text */
function textOf(result: string): string | null {
  // They may be large.
  if (result.startsWith("{") || result.startsWith("[")) return null;
  const value: unknown = JSON.parse(result);
  if (typeof value === "string") return value === "" ? null : value;
  return typeof value === "number" || typeof value === "boolean" ? String(value) : null;
}
