import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { DEFAULT_LIMITS } from "../../core/transform/limits.ts";
import { TransformError } from "../../model/errors.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { Clock } from "../../time/clock.ts";
import { ERRORS, JSON_TYPE, send, sendJson } from "../exchange.ts";
import type { RouteHandler } from "../routes.ts";
import { type Guard, parsed, parseJsonBody } from "./requests.ts";

interface TransformTestOptions {
  readonly evaluator: Pick<Evaluator, "evaluate">;
  /** `admin.maxTransformTimeoutMs` */
  readonly maxTimeoutMs: number;
  readonly clock: Pick<Clock, "now">;
}

const DEFAULT_TOPIC = "test.topic";

/**
 * One evaluation runs at a time, for up to `admin.maxTransformTimeoutMs`: behind more than these a caller would wait
 * too long, and each holds a payload in memory.
 */
const MAX_UNANSWERED = 16;

/** `POST /admin/transform/test` (spec): evaluates an expression on a sample payload; sends and writes nothing. */
export function transformTestHandler(guard: Guard, options: TransformTestOptions): RouteHandler {
  const { evaluator, maxTimeoutMs, clock } = options;
  let unanswered = 0;

  async function evaluate(request: TransformTestRequest, res: ServerResponse): Promise<void> {
    const { expression, payload, topic, source } = request;
    const timestamp = new Date(clock.now()).toISOString();
    const context = { messageId: randomUUID(), topic, attempt: 0, timestamp };
    const result = await evaluator.evaluate({
      lane: "tests",
      expression,
      input: payload,
      bindings: source === undefined ? context : { ...context, source },
      // A bound of 0 would leave no time at all.
      timeoutMs: Math.max(1, Math.min(request.timeoutMs, maxTimeoutMs)),
      maxDepth: DEFAULT_LIMITS.maxDepth,
    });
    send(res, 200, JSON_TYPE, `{"success":true,"result":${result},"context":${JSON.stringify(context)}}`);
  }

  return guard(async ({ body }, res) => {
    const request = parsed(res, () => parseTransformTest(body), answerFailure);
    if (request === undefined) return;
    if (unanswered >= MAX_UNANSWERED) {
      res.setHeader("Retry-After", 1);
      answerFailure(res, 503, `Too many transform tests at once: ${MAX_UNANSWERED} are unanswered`);
      return;
    }
    unanswered++;
    try {
      await evaluate(request.value, res);
    } catch (error) {
      answerTransformError(res, error);
    } finally {
      unanswered--;
    }
  }, answerFailure);
}

function answerTransformError(res: ServerResponse, error: unknown): void {
  if (!(error instanceof TransformError)) throw error;
  if (error.code === "closed") answerFailure(res, 503, ERRORS.shuttingDown);
  else if (error.code === "invalid_expression") answerFailure(res, 400, `Invalid expression: ${error.message}`);
  else answerFailure(res, 400, error.message);
}

/** Every answer of this route reports in `success` whether the expression ran. */
function answerFailure(res: ServerResponse, status: number, message: string): void {
  sendJson(res, status, { success: false, error: message });
}

type TransformTestRequest = ReturnType<typeof parseTransformTest>;

/**
 * Reads the body of a transform test. Unknown fields are ignored; null in an optional field counts as absent.
 *
 * @returns `payload`: its JSON text as received; `source`: undefined leaves the variable unbound
 * @throws Error that names the field, what was found and what is expected; it quotes no text of the body
 */
function parseTransformTest(body: Buffer) {
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
    topic: optional("mockTopic", mockTopic, isText, "a string") ?? DEFAULT_TOPIC,
    source: optional("mockSource", mockSource, isText, "a string"),
    timeoutMs: optional("timeoutMs", timeoutMs, isTimeout, "a whole number of at least 1") ?? DEFAULT_LIMITS.timeoutMs,
  };
}

const isText = (value: unknown): value is string => typeof value === "string";
const isTimeout = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 1;

function optional<T>(
  name: string,
  value: unknown,
  isValid: (value: unknown) => value is T,
  expected: string,
): T | undefined {
  if (value === undefined || value === null) return undefined;
  if (isValid(value)) return value;
  throw unexpected(name, value, expected);
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

/**
 * The text of one member of a JSON object, so that its content is passed on byte for byte: numbers keep their digits
 * (`12345678901234567890`, `1.0`), and nesting of any depth needs no stack.
 *
 * @param json the JSON text of an object; it has been parsed before
 * @param name of the member
 * @returns the member's text without the blanks around it, of the last one when there are several (as `JSON.parse`
 *   has it); undefined when there is none
 */
export function memberText(json: string, name: string): string | undefined {
  let found: string | undefined;
  let at = json.indexOf("{");
  do {
    const nameStart = json.indexOf('"', at);
    // An empty object.
    if (nameStart < 0) return found;
    const nameEnd = closingQuote(json, nameStart) + 1;
    const from = json.indexOf(":", nameEnd) + 1;
    at = endOfValue(json, from);
    if (JSON.parse(json.slice(nameStart, nameEnd)) === name) found = json.slice(from, at).trim();
  } while (json[at] === ",");
  return found;
}

/** The index of the comma or brace that ends a member's value. */
function endOfValue(json: string, from: number): number {
  let depth = 0;
  for (let at = from; ; at++) {
    const character = json[at];
    if (character === '"') at = closingQuote(json, at);
    else if (character === "{" || character === "[") depth++;
    else if (depth === 0 && (character === "," || character === "}")) return at;
    else if (character === "}" || character === "]") depth--;
  }
}

function closingQuote(json: string, openingQuote: number): number {
  let at = openingQuote + 1;
  while (json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at;
}
