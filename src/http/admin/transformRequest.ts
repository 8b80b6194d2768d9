import { parseJsonBody } from "./jsonBody.ts";
import { memberText } from "./memberText.ts";

/** The body of `POST /admin/transform/test`, checked. */
export interface TransformTestRequest {
  readonly expression: string;
  /** JSON text, as it came. */
  readonly payload: string;
  readonly topic: string;
  /** Undefined when the caller gave none: the variable is then unbound. */
  readonly source: string | undefined;
  /** As asked for, in ms. */
  readonly timeoutMs: number;
}

const DEFAULT_TOPIC = "test.topic";
const DEFAULT_TIMEOUT_MS = 100;

/**
 * Reads the body of a transform test (spec, "POST /admin/transform/test"). Unknown fields are ignored; null in an optional field is as good as
 * absent, for many clients write it for what they do not set.
 *
 * @throws Error that names the field, what was found and what is expected; it quotes no text of the body
 */
export function parseTransformTest(body: Buffer): TransformTestRequest {
  const fields = parseJsonBody(body);
  if (typeof fields !== "object" || fields === null || Array.isArray(fields)) {
    throw new Error(`the body is ${kindOf(fields)}; a JSON object with "expression" and "payload" is expected`);
  }
  const { expression, mockTopic, mockSource, timeoutMs } = fields as Readonly<Record<string, unknown>>;
  const payload = memberText(body.toString("utf8"), "payload");
  if (typeof expression !== "string") throw unexpected("expression", expression, "a string");
  if (payload === undefined) throw unexpected("payload", undefined, "any JSON value");
  return {
    expression,
    payload,
    topic: optionalText("mockTopic", mockTopic) ?? DEFAULT_TOPIC,
    source: optionalText("mockSource", mockSource),
    timeoutMs: optionalMilliseconds("timeoutMs", timeoutMs) ?? DEFAULT_TIMEOUT_MS,
  };
}

function optionalText(name: string, value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === "string") return value;
  throw unexpected(name, value, "a string");
}

function optionalMilliseconds(name: string, value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === "number" && Number.isInteger(value) && value >= 1) return value;
  throw unexpected(name, value, "a whole number of at least 1");
}

function unexpected(name: string, value: unknown, expected: string): Error {
  return new Error(`"${name}" is ${kindOf(value)}; ${expected} is expected`);
}

function kindOf(value: unknown): string {
  if (value === undefined) return "missing";
  if (value === null || typeof value === "number") return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
