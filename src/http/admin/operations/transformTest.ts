import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { memberText } from "../../../core/receipt/jsonDocument.ts";
import * as schema from "../../../model/described.ts";
import { TransformError } from "../../../model/errors.ts";
import { DEFAULT_LIMITS } from "../../../ports/evaluator.ts";
import { ERRORS, JSON_TYPE, send, sendJson } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { httpRoute } from "../../routes.ts";
import type { Admin } from "../operation.ts";

/**
 * One evaluation runs at a time, for up to `admin.maxTransformTimeoutMs`: behind more than these a caller would wait
 * too long, and each holds a payload in memory.
 */
const MAX_UNANSWERED = 16;

/** `POST /admin/transform/test` (spec): evaluates an expression on a sample payload; sends and writes nothing. */
export function testTransform({ access, guardBody, limits, evaluator, admin, clock }: Admin) {
  const { maxTransformTimeoutMs: maxTimeoutMs } = admin;
  let unanswered = 0;

  async function evaluate(request: ReturnType<typeof readRequest>, res: ServerResponse): Promise<void> {
    const { expression, payload, mockTopic: topic, mockSource: source, timeoutMs } = request;
    const timestamp = new Date(clock.now()).toISOString();
    const context = { messageId: randomUUID(), topic, attempt: 0, timestamp };
    const result = await evaluator.evaluate({
      lane: "tests",
      expression,
      input: payload,
      bindings: source === undefined ? context : { ...context, source },
      // A bound of 0 would leave no time at all.
      timeoutMs: Math.max(1, Math.min(timeoutMs, maxTimeoutMs)),
      maxDepth: DEFAULT_LIMITS.maxDepth,
    });
    send(res, 200, JSON_TYPE, `{"success":true,"result":${result},"context":${JSON.stringify(context)}}`);
  }

  const handle = guardBody(async ({ body }, res) => {
    const request = field.parsed(res, () => readRequest(body), answerFailure);
    if (request === undefined) return;
    if (unanswered >= MAX_UNANSWERED) {
      res.setHeader("Retry-After", 1);
      answerFailure(res, 503, TOO_MANY);
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

  return httpRoute(
    "admin_transform_test",
    {
      summary: "Try a transform expression on a sample payload",
      description:
        `Evaluates a JSONata expression as a transform would, with the default \`maxDepth\` of ${DEFAULT_LIMITS.maxDepth}; sends and writes nothing. ` +
        "It binds `$messageId`, `$topic`, `$attempt` (0), `$timestamp` and, with `mockSource`, `$source`. An evaluation " +
        `takes at most ${maxTimeoutMs} ms, whatever \`timeoutMs\` asks for; one test runs at a time.`,
      access,
      body: {
        maxBytes: limits.maxBytes,
        schema: REQUEST,
        examples: {
          sum: {
            summary: "A sum over a list",
            value: {
              expression: '{"id": id, "total": $sum(lines.price)}',
              payload: { id: 7, lines: [{ price: 2 }, { price: 3 }] },
            },
          },
        },
      },
      error: failure,
      answers: [
        answer.json(200, "The expression ran.", RESULT),
        answer.invalidBody('"payload" is missing; any JSON value is expected', failure),
        failure(400, "The expression does not compile.", 'Invalid expression: Expected ")" before end of expression'),
        failure(
          400,
          "The evaluation failed or exceeded a limit.",
          "the evaluation took longer than 100 ms (timeoutMs)",
        ),
        failure(503, "Too many tests are unanswered.", TOO_MANY, "Error", answer.RETRY_AFTER),
        failure(503, "The service stopped before the evaluation ended.", ERRORS.shuttingDown),
      ],
    },
    handle,
  );
}

const TOO_MANY = `Too many transform tests at once: ${MAX_UNANSWERED} are unanswered`;

const found = (value: unknown) => (typeof value === "number" ? String(value) : field.kindOf(value));

const anyText = (description: string): field.Field<string> => ({
  schema: schema.nullable("string", description),
  read(value, place) {
    if (typeof value === "string") return value;
    throw new Error(`"${place}" is ${found(value)}; a string is expected`);
  },
  absent: () => undefined,
});

const timeout: field.Field<number> = {
  schema: schema.nullable("integer", {
    minimum: 1,
    description: "Longest evaluation in ms, at most `admin.maxTransformTimeoutMs`.",
  }),
  read(value, place) {
    if (typeof value === "number" && Number.isInteger(value) && value >= 1) return value;
    throw new Error(`"${place}" is ${found(value)}; a whole number of at least 1 is expected`);
  },
  absent: () => undefined,
};

/** Without `payload`, whose text is passed on as it came. */
const FIELDS = {
  expression: field.required(anyText("A JSONata expression."), "a string"),
  mockTopic: field.byDefault(anyText("Value of `$topic`."), "test.topic"),
  mockSource: anyText("Value of `$source`; unbound when absent."),
  timeoutMs: field.byDefault(timeout, DEFAULT_LIMITS.timeoutMs),
};

const PAYLOAD = { description: "The input document `$`: any JSON value." };
const { properties, ...OBJECT } = field.bodySchema({ fields: FIELDS });
const REQUEST = schema.named("TransformTestRequest", {
  ...OBJECT,
  required: ["expression", "payload"],
  properties: { ...(properties as object), payload: PAYLOAD },
});

/**
 * @returns `payload`: its JSON text as received; `mockSource`: undefined leaves the variable unbound
 * @throws Error that names the field, what was found and what is expected; it quotes no text of the body
 */
function readRequest(body: Buffer) {
  const fields = field.readFields(FIELDS, field.readBody(body, 'a JSON object with "expression" and "payload"'));
  const payload = memberText(body.toString("utf8"), "payload");
  if (payload === undefined) throw new Error('"payload" is missing; any JSON value is expected');
  return { ...fields, payload };
}

const RESULT = schema.named(
  "TransformTestResult",
  schema.object({
    success: { const: true },
    result: [{ description: "The result of the expression: any JSON value." }, { id: 7, total: 5 }],
    context: schema.object(
      {
        messageId: [{ ...schema.UUID, description: "Random." }, "6f1c8a52-3b0d-4e7a-9c55-0d2f6b8e1a34"],
        topic: [schema.TEXT, "test.topic"],
        attempt: { const: 0 },
        timestamp: [schema.TIME, schema.AT],
      },
      "The bound variables.",
    ),
  }),
);

const FAILURE = schema.named(
  "TransformTestFailure",
  schema.object({
    success: { const: false },
    error: schema.text("What is wrong, for the author of the request."),
  }),
);

/** The form of its errors: each answer reports in `success` whether the expression ran. */
const failure: typeof answer.error = (status, description, message, _schema, headers) =>
  answer.json(status, description, FAILURE, { success: false, error: message }, headers);

function answerTransformError(res: ServerResponse, error: unknown): void {
  if (!(error instanceof TransformError)) throw error;
  if (error.code === "closed") answerFailure(res, 503, ERRORS.shuttingDown);
  else if (error.code === "invalid_expression") answerFailure(res, 400, `Invalid expression: ${error.message}`);
  else answerFailure(res, 400, error.message);
}

function answerFailure(res: ServerResponse, status: number, message: string): void {
  sendJson(res, status, { success: false, error: message });
}
