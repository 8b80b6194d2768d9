import { OVERLOADED, UNDECODABLE, UNSUPPORTED_ENCODING } from "../admission.ts";
import { object } from "./object.ts";
import {
  type Answer,
  bodyAnswers,
  ENCODINGS,
  errorAnswer,
  json,
  jsonContent,
  RETRY_AFTER,
  responses,
  SHUTTING_DOWN,
  tooLarge,
  unauthorized,
  withHeaders,
} from "./responses.ts";
import { ref } from "./schemas.ts";
import type { Security } from "./security.ts";
import type { ServedAdmin } from "./served.ts";
import type { Operation } from "./types.ts";

/** `POST /admin/transform/test`. `common`: what every route of its port may answer. */
export function transformTestOperation(admin: ServedAdmin, access: Security, common: readonly Answer[]): Operation {
  return {
    operationId: "admin_transform_test",
    tags: ["admin"],
    summary: "Try a transform expression on a sample payload",
    description:
      "Evaluates a JSONata expression as a transform would, with the default `maxDepth` of 100; sends and writes nothing. Bound are " +
      "`$messageId`, `$topic`, `$attempt` (0), `$timestamp` and, when `mockSource` is given, `$source`. An evaluation takes at most " +
      `${admin.maxTransformTimeoutMs} ms, whatever \`timeoutMs\` asks for; tests run one after another.`,
    parameters: access.parameters,
    requestBody: {
      required: true,
      description: `At most ${admin.maxPayloadBytes} bytes.`,
      content: jsonContent(ref("TransformTestRequest"), { sum: { summary: "A sum over a list", value: SUM } }),
    },
    responses: responses([...transformTestAnswers(admin), ...common]),
    security: access.security,
  };
}

const SUM = {
  expression: '{"id": id, "total": $sum(lines.price)}',
  payload: { id: 7, lines: [{ price: 2 }, { price: 3 }] },
};

const SUM_RESULT = {
  success: true,
  result: { id: 7, total: 5 },
  context: {
    messageId: "6f1c8a52-3b0d-4e7a-9c55-0d2f6b8e1a34",
    topic: "test.topic",
    attempt: 0,
    timestamp: "2025-01-31T12:00:00.000Z",
  },
};

function transformTestAnswers(admin: ServedAdmin): readonly Answer[] {
  const failure = (status: number, description: string, error: string): Answer =>
    json(status, description, ref("TransformTestFailure"), { success: false, error });
  const { description, error } = tooLarge(admin.maxPayloadBytes);
  return [
    json(200, "The expression ran.", ref("TransformTestResult"), SUM_RESULT),
    failure(400, "The body is no valid request.", 'Invalid request: "payload" is missing; any JSON value is expected'),
    failure(400, "The expression does not compile.", 'Invalid expression: Expected ")" before end of expression'),
    failure(400, "The evaluation failed or exceeded a limit.", "the evaluation took longer than 100 ms (timeoutMs)"),
    ...(admin.auth === undefined ? [] : [unauthorized("TransformTestFailure", { success: false, error: NO_TOKEN })]),
    failure(413, description, error),
    withHeaders(
      failure(503, "Too many tests are unanswered.", "Too many transform tests at once: 16 are unanswered"),
      RETRY_AFTER,
    ),
    failure(400, "The body is not what its Content-Encoding says.", UNDECODABLE),
    withHeaders(failure(415, "The Content-Encoding is not supported.", UNSUPPORTED_ENCODING), ENCODINGS),
    withHeaders(failure(503, "Too many unfinished request bodies are held in memory.", OVERLOADED), RETRY_AFTER),
    failure(503, "The service stopped before the evaluation ended.", SHUTTING_DOWN),
  ];
}

const NO_TOKEN = "missing Authorization header";

/** `POST /admin/replay`. `common`: what every route of its port may answer. */
export function replayOperation(admin: ServedAdmin, access: Security, common: readonly Answer[]): Operation {
  return {
    operationId: "admin_replay",
    tags: ["admin"],
    summary: "Deliver finished outbox rows again",
    description:
      "Moves outbox rows in state `sent` or `dead` that match back to `pending`, with `attempt` 0 and due now; rows that wait or are in " +
      "delivery are never touched, and each row keeps its `id`. What is finished after the request came is not part of it. Rows are moved " +
      "in batches: what was moved before an error stays moved, and the same request may be sent again.",
    parameters: access.parameters,
    requestBody: {
      required: true,
      description: `At most ${admin.maxPayloadBytes} bytes.`,
      content: jsonContent(
        { allOf: [ref("ReplayRequest"), { properties: { destination: { enum: [...admin.destinations, null] } } }] },
        {
          dead: {
            summary: "What died since an instant",
            value: { state: "dead", createdAfter: "2025-01-31T12:00:00Z" },
          },
          byTopic: {
            summary: "What had a topic within an hour",
            value: {
              topic: "orders.created",
              createdAfter: "2025-01-31T12:00:00Z",
              createdBefore: "2025-01-31T13:00:00Z",
            },
          },
        },
      ),
    },
    responses: responses([...replayAnswers(admin), ...common]),
    security: access.security,
  };
}

function replayAnswers(admin: ServedAdmin): readonly Answer[] {
  const { description, error } = tooLarge(admin.maxPayloadBytes);
  return [
    json(200, "The replay has ended.", ref("ReplayResult"), { moved: 42 }),
    errorAnswer(400, "No filter is set.", "InvalidRequest", "A replay needs at least one filter."),
    errorAnswer(
      400,
      "The body is not a valid request.",
      "InvalidRequest",
      'Invalid request: "topic" is a number; a string is expected',
    ),
    ...(admin.auth === undefined ? [] : [unauthorized("Error", { error: NO_TOKEN })]),
    ...bodyAnswers,
    errorAnswer(413, description, "BodyTooLarge", error),
    interrupted(500, "The database failed.", "Storage failed"),
    interrupted(503, "The service stopped before the replay had ended.", SHUTTING_DOWN),
  ];
}

function interrupted(status: number, description: string, error: string): Answer {
  const moved = { type: "integer", minimum: 0, description: "Rows that were moved before; they stay moved." };
  return json(status, description, object({ error: { const: error }, moved }), { error, moved: 2000 });
}
