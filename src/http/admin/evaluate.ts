import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { TransformError } from "../../model/errors.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { Clock } from "../../time/clock.ts";
import { JSON_TYPE, send, sendJson } from "../respond.ts";
import type { Gate } from "./gate.ts";
import { parseTransformTest, type TransformTestRequest } from "./transformRequest.ts";

export interface TransformTestOptions {
  readonly gate: Gate;
  readonly evaluator: Pick<Evaluator, "evaluate">;
  /** `admin.maxTransformTimeoutMs` */
  readonly maxTimeoutMs: number;
  readonly clock: Pick<Clock, "now">;
}

/** The default of a transform block. */
const MAX_DEPTH = 100;

/**
 * Evaluations run one after another, each for up to `admin.maxTransformTimeoutMs`: behind more than these a caller would wait for longer
 * than most clients do, and each holds a payload in memory.
 */
const MAX_UNANSWERED = 16;

/** `POST /admin/transform/test` (spec): evaluates an expression on a sample payload; sends and writes nothing. */
export function transformTest(options: TransformTestOptions) {
  const { gate, evaluator, maxTimeoutMs, clock } = options;
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
      maxDepth: MAX_DEPTH,
    });
    send(res, 200, JSON_TYPE, `{"success":true,"result":${result},"context":${JSON.stringify(context)}}`);
  }

  return async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await gate(req, res, answerFailure);
    if (body === null) return;
    let request: TransformTestRequest;
    try {
      request = parseTransformTest(body);
    } catch (error) {
      answerFailure(res, 400, `Invalid request: ${(error as Error).message}`);
      return;
    }
    if (unanswered >= MAX_UNANSWERED) {
      res.setHeader("Retry-After", 1);
      answerFailure(res, 503, `Too many transform tests at once: ${MAX_UNANSWERED} are unanswered`);
      return;
    }
    unanswered++;
    try {
      await evaluate(request, res);
    } catch (error) {
      answerTransformError(res, error);
    } finally {
      unanswered--;
    }
  };
}

function answerTransformError(res: ServerResponse, error: unknown): void {
  if (!(error instanceof TransformError)) throw error;
  if (error.code === "closed") answerFailure(res, 503, "Service is shutting down");
  else if (error.code === "invalid_expression") answerFailure(res, 400, `Invalid expression: ${error.message}`);
  else answerFailure(res, 400, error.message);
}

/** Every answer of this route tells in `success` whether the expression ran. */
function answerFailure(res: ServerResponse, status: number, message: string): void {
  sendJson(res, status, { success: false, error: message });
}
